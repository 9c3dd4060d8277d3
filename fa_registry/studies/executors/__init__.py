"""Executors, one module per way to run jobs: local processes, one process, or a cluster."""

from fa_registry.plugin_registry import Catalog
from fa_registry.studies.executors.base import Executor

CATALOG = Catalog("executors", "executor", Executor, "studies.executors")
