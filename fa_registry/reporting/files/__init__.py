"""Reports for machines: CSV, JUnit, canonical JSON and the schemas that describe them."""
