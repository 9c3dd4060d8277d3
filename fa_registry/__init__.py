"""Feedback-alignment experiments as an audited registry. Names are loaded on first use: importing this costs nothing."""

from __future__ import annotations

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
    "FAProtocol": "fa_registry.api",
    "RegistryError": "fa_registry.errors",
    "adapt": "fa_registry.architectures",
    "alignment": "fa_registry.api",
    "diagnose": "fa_registry.api",
    "load_model": "fa_registry.api.loading",
    "frozen_control": "fa_registry.training.frozen",
    "torchvision": "fa_registry.datasets._files",
    "track": "fa_registry.workflows.track",
    **dict.fromkeys(("runs", "series"), "fa_registry.workflows.frames"),
    **dict.fromkeys(
        ("audit", "bundle", "compare", "forget", "import_bundle", "report", "study", "train", "verify", "work"),
        "fa_registry.workflows.verbs",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fa_registry' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "fa_registry.records")), name)


def __dir__() -> list[str]:
    return __all__
