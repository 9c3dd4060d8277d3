"""Products over all methods: the short suite has one method of each way to train, the long one has all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from fa_registry import methods

# by autograd; by fixed matrices to each block; through replaced weights; learned by a rule and by a loss; by relaxation
WAYS = ("bp", "dfa", "weight_fa", "kolen_pollack", "credit_bridge", "ep")


def rest_long(values: Iterable[Any], short: Collection[Any]) -> list[Any]:
    """Return the values as parameters; all but those in `short` are marked long."""
    return [value if value in short else pytest.param(value, marks=pytest.mark.long) for value in values]


def every_method(names: Iterable[str] | None = None) -> list[Any]:
    """Return the methods as parameters; those that train in a way of another one are marked long."""
    return rest_long(methods.CATALOG.names() if names is None else names, WAYS)
