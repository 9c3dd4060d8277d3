"""Diagnostics, one per file. A diagnostic measures metrics of a network.

Diagnostics contain no thresholds, because the rules of an edition judge the metrics.
"""

from fa_registry.late_imports import late_imports
from fa_registry.plugin_registry import Catalog

CATALOG = Catalog("diagnostics", "diagnostic", "base:Diagnostic", card="base:DiagnosticCard")
NAMES = {  # module → its names that this package exports; imported at their first use, because these modules import torch
    "_forward_backward": ("ForwardBackward", "eval_mode", "observe", "run_forward_backward"),
    "_probe": ("ProbeContext", "Unavailable"),
    "_reference_check": ("ReferenceCheck",),
    "base": ("Diagnostic", "DiagnosticCard", "Observation"),
}
__getattr__ = late_imports(
    __name__, {name: f"{__name__}.{module}" for module, names in NAMES.items() for name in names}
)
