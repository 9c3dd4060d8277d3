"""Measurements, one file each. They know no threshold: judging is the protocol's."""

from fa_registry.catalog import Catalog
from fa_registry.diagnostics._bench import Absent, Bench
from fa_registry.diagnostics._observe import Look, evaluating, look, observe
from fa_registry.diagnostics._reference_check import ReferenceCheck
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Observation

__all__ = ["CATALOG", "Absent", "Bench", "Look", "Observation", "ReferenceCheck", "evaluating", "look", "observe"]

CATALOG = Catalog("diagnostics", "diagnostic", Diagnostic, card=DiagnosticCard)
