"""Storage of runs: conversion of records to stored runs and back.

Only this package uses MLflow.
"""

import os

# MLflow sends usage data to its makers unless this variable is set before MLflow is imported. A value set by the user is kept.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
