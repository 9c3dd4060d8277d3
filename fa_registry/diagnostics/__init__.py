"""Diagnostics, one per file. A diagnostic measures metrics of a network.

Diagnostics contain no thresholds, because the rules of an edition judge the metrics.
"""
# ruff: noqa: F401 - the imported names are the names of this package

from fa_registry.deprecated_names import aliases
from fa_registry.diagnostics._forward_backward import ForwardBackward, eval_mode, observe, run_forward_backward
from fa_registry.diagnostics._probe import ProbeContext, Unavailable
from fa_registry.diagnostics._reference_check import ReferenceCheck
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Observation
from fa_registry.plugin_registry import Catalog

CATALOG = Catalog("diagnostics", "diagnostic", Diagnostic, card=DiagnosticCard)


__getattr__ = aliases(__name__)
