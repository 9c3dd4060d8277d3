"""Ways to run many jobs: here, or on a cluster."""
