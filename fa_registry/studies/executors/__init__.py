"""Executors: each module runs jobs in local processes or on a cluster."""

from fa_registry.plugin_registry import Catalog
from fa_registry.studies.executors.base import Executor

CATALOG = Catalog("executors", "executor", Executor, "studies.executors")
