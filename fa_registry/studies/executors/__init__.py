"""Ways to run many jobs, one file each: here, side by side on one card, or by another package on a cluster."""

from fa_registry.plugin_registry import Catalog
from fa_registry.studies.executors.base import Executor

CATALOG = Catalog("executors", "executor", Executor, "studies.executors")
