"""Runs in a store: record ↔ run. The only layer that knows MLflow."""

import os

# MLflow asks an address of its makers, and tells it what is called, unless this is set before it is imported. Who wants that says so.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
