"""Measurements, one file each. They know no threshold: judging is the protocol's."""

from fa_registry.catalog import Catalog
from fa_registry.diagnostics._observe import evaluating, observe
from fa_registry.diagnostics.base import Diagnostic, Observation

__all__ = ["CATALOG", "Observation", "evaluating", "observe"]

CATALOG = Catalog("diagnostics", "diagnostic", Diagnostic)
