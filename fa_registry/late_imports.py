"""Names of a package that are imported at their first use, because their module needs torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def late_imports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a function `__getattr__` that imports names at their first use (PEP 562).

    Args:
        package: name of the module that assigns the function to its `__getattr__`.
        homes: name → module that defines the name.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return __getattr__
