"""Audits: runs are selected, recomputed and judged, and the report is written, published, compared and verified."""
