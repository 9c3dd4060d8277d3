"""Where the credit equals the gradient by construction, so that Γ = 1 says nothing: the method's card knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_exact(method: str, site: int, sites: int, cards: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether Γ of `site` (0..sites−1) is exact by construction. cards: of the report; a method without one counts."""
    where = cards.get(f"methods/{method}", {}).get("exact_sites", "none")
    return where == "all" or (where == "last" and site == sites - 1)
