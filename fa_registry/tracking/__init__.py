"""Storage of runs: convert records to stored runs and back.

This package is the only one that uses MLflow.
"""

import os

# MLflow sends usage data to its makers unless this is set before it is imported. A user's own setting is kept.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
