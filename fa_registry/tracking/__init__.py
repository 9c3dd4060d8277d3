"""Runs in a store: record ↔ run. The only layer that knows MLflow."""
