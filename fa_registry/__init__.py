"""Registry of feedback-alignment experiments and their audits.

A public name is imported when a program first uses it.
"""

import sys

# `python -m fa_registry` puts the current folder first on sys.path: a torch.py next to a store would be imported as
# torch. Nothing may be imported before this entry is removed, not even __future__. If the folder contains this package,
# it is moved to the end of sys.path. While Python searches for the module to run, argv[0] is "-m".
if sys.argv[:1] == ["-m"] and "fa_registry" in sys.orig_argv and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))
    if __path__[0][: -len("/fa_registry")] != sys.path[-1]:
        sys.path.pop()

import importlib
from typing import Any

__all__ = [
    "AuditReport",
    "EvidenceWarning",
    "FAProtocol",
    "Finding",
    "Measurements",
    "Reading",
    "Recipe",
    "RegistryError",
    "RunRecord",
    "RunSpec",
    "Verdict",
    "adapt",
    "alignment",
    "audit",
    "bundle",
    "compare",
    "diagnose",
    "forget",
    "frozen_control",
    "import_bundle",
    "load_model",
    "report",
    "runs",
    "series",
    "study",
    "torchvision",
    "track",
    "train",
    "verify",
    "work",
]

_HOMES = {
    "EvidenceWarning": "fa_registry.errors",
    "FAProtocol": "fa_registry.external",
    "RegistryError": "fa_registry.errors",
    "adapt": "fa_registry.architectures",
    "alignment": "fa_registry.external",
    "diagnose": "fa_registry.external",
    "load_model": "fa_registry.tracking.model_loader",
    "frozen_control": "fa_registry.external.frozen_control",
    "torchvision": "fa_registry.datasets._files",
    "track": "fa_registry.external.track",
    **dict.fromkeys(("runs", "series"), "fa_registry.audits.dataframes"),
    **dict.fromkeys(
        ("audit", "bundle", "compare", "forget", "import_bundle", "report", "study", "train", "verify", "work"),
        "fa_registry.api",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fa_registry' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "fa_registry.records")), name)


def __dir__() -> list[str]:
    return __all__
