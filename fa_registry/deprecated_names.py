"""Names that a module imports at their first use: old public names, and names that need torch.

An old name remains importable for one release. Each use emits a DeprecationWarning that contains the new name.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Any

MODULES = {
    "fa_registry.api": "fa_registry.published_api",
    "fa_registry.lint": "fa_lint",
    "fa_registry.positions": "fa_registry.token_axes",
    "fa_registry.quantities": "fa_registry.metrics",
    "fa_registry.terminal_loss": "fa_registry.tasks",
}
SUBMODULES = {"fa_registry.published_api.loading": "fa_registry.published_api.model_loader"}
ANALYSIS = {"Cell": "AnalysisCell", "Column": "AnalysisColumn", "Table": "AnalysisTable"}
NAMES: Mapping[str, Mapping[str, str]] = {  # module → old name → new name
    "fa_registry.adapters.lightning": {"Tracking": "LightningCallback"},
    "fa_registry.adapters.transformers": {"Tracking": "TransformersCallback"},
    "fa_registry.analyses": ANALYSIS,
    "fa_registry.analyses.base": {**ANALYSIS, "Answer": "AnalysisResult"},
    "fa_registry.architectures": {"Adapted": "AdaptedNetwork"},
    "fa_registry.diagnostics": {
        "Absent": "Unavailable",
        "Bench": "ProbeContext",
        "Look": "ForwardBackward",
        "evaluating": "eval_mode",
        "look": "run_forward_backward",
    },
    "fa_registry.diagnostics.base": {"Table": "SiteBySample"},
    "fa_registry.methods.base": {
        "LearnsByLoss": "LearnsFeedbackByLoss",
        "MovesStates": "HasOwnStates",
        "ReplacesWeights": "UsesBackwardWeights",
        "Stream": "NetworkView",
        "UpdatesFeedback": "HasFeedbackRule",
    },
    "fa_registry.metrics": {
        "BESIDE_CONTROL": "COMPARED_WITH_CONTROL",
        "Quantity": "Metric",
        "further": "other_metrics",
        "held": "metrics_of_cards",
        "of_a_run": "run_metrics",
    },
    "fa_registry.records": {"Choice": "SelectionSummary", "Measured": "MeasuredFigure"},
    "fa_registry.studies.executors.base": {
        "Resources": "JobResources",
        "Room": "Capacity",
        "Stop": "StopCheck",
        "Tell": "EventSink",
        "Work": "JobFunction",
    },
    "fa_registry.testing": {"Case": "NetworkCase"},
    "fa_registry.testing.outcomes": {"Outcome": "CheckOutcome"},
    "fa_registry.testing.small_networks": {"Case": "NetworkCase"},
    "fa_registry.token_axes": {
        "averaged": "mean_over_positions",
        "spread": "broadcast_over_positions",
        "summed": "sum_over_positions",
    },
    "fa_registry.training.loop": {
        "Outcome": "TrainingOutcome",
        "in_one_go": "run_to_completion",
        "training": "train_epochs",
    },
}


def aliases(module: str, late: Mapping[str, str] = MappingProxyType({})) -> Callable[[str], Any]:
    """Return a function `__getattr__` that resolves the old names of a module.

    The module `module` assigns this function to its module-level name `__getattr__` (PEP 562). `late` maps present names to the
    modules from which they are imported at their first use.
    """

    def __getattr__(name: str) -> Any:
        if name in late:
            return getattr(importlib.import_module(late[name]), name)
        renamed = NAMES.get(module, {}).get(name)
        if renamed is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} was renamed; use {module}.{renamed}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(module), renamed)

    return __getattr__


class OldModules:
    """Finder for `sys.meta_path` that finds a renamed module and its submodules under the old names."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the import spec of a renamed module, or None for any other module."""
        old = next((old for old in MODULES if name == old or name.startswith(f"{old}.")), None)
        if old is None:
            return None
        new = MODULES[old] + name.removeprefix(old)
        new = SUBMODULES.get(new, new)
        if importlib.util.find_spec(new) is None:
            return None
        return ModuleSpec(name, _Moved(name, new), is_package=name == old)


class _Moved:
    """Loader for an old module name that imports the module under its new name."""

    def __init__(self, old: str, new: str):
        self._old, self._new = old, new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{self._old} was renamed; use {self._new}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(self._new)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own_spec  # the import system has replaced this spec by the spec of the old name
