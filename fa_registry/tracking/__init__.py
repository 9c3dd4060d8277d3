"""Runs in a store: record ↔ run. The only layer that knows MLflow."""

import os

# Unless this is set before it is imported, MLflow tells its makers what is called. Who wants that sets it otherwise.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
