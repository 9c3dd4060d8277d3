"""Old public names that stay importable for one release.

Each use raises a DeprecationWarning that names the new name.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

MODULES = {"fa_registry.api": "fa_registry.published_api", "fa_registry.quantities": "fa_registry.metrics"}
NAMES: Mapping[str, Mapping[str, str]] = {  # module → old name → new name
    "fa_registry.adapters.lightning": {"Tracking": "LightningCallback"},
    "fa_registry.adapters.transformers": {"Tracking": "TransformersCallback"},
    "fa_registry.analyses.base": {
        "Answer": "AnalysisResult",
        "Cell": "AnalysisCell",
        "Column": "AnalysisColumn",
        "Table": "AnalysisTable",
    },
    "fa_registry.diagnostics.base": {"Table": "SiteBySample"},
    "fa_registry.methods.base": {
        "LearnsByLoss": "LearnsFeedbackByLoss",
        "MovesStates": "HasOwnStates",
        "ReplacesWeights": "UsesBackwardWeights",
        "Stream": "NetworkView",
        "UpdatesFeedback": "HasFeedbackRule",
    },
    "fa_registry.metrics": {"Quantity": "Metric"},
    "fa_registry.studies.executors.base": {
        "Resources": "JobResources",
        "Room": "Capacity",
        "Stop": "StopCheck",
        "Tell": "EventSink",
        "Work": "JobFunction",
    },
    "fa_registry.testing.outcomes": {"Outcome": "CheckOutcome"},
    "fa_registry.training.loop": {"Outcome": "TrainingOutcome", "in_one_go": "run_to_completion"},
}


def aliases(module: str) -> Callable[[str], Any]:
    """Return the module-level `__getattr__` (PEP 562) that resolves the old names of `module`.

    If the whole module has moved, every public name of the new module is resolved.
    """

    def __getattr__(name: str) -> Any:
        home = MODULES.get(module, module)
        renamed = NAMES.get(home, {}).get(name, "" if home == module else name)
        if (
            not renamed
            or renamed.startswith("__")
            or not (home == module or hasattr(importlib.import_module(home), renamed))
        ):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {home}.{renamed}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(home), renamed)

    return __getattr__
