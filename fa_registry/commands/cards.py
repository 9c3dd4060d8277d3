"""The card verb: everything that is declared of one method, architecture, data set or diagnostic."""

from __future__ import annotations

from typing import Any

from fa_registry import datasets, jsonio
from fa_registry.commands.listing import CATALOGS
from fa_registry.errors import UnknownName


def card_of(name: str, family: str = "") -> dict[str, Any]:
    """The card of the member of this name as plain data, with `family` and `file`; of that family where one is given.

    Raises UnknownName with the nearest name. Where two families hold the name, the methods' comes first.
    """
    if family and family not in CATALOGS:
        raise UnknownName("family", family, CATALOGS)
    catalogs = {family: CATALOGS[family]} if family else CATALOGS
    for kind, catalog in catalogs.items():
        plain, colon, _ = name.partition(":") if kind == "datasets" else (name, "", "")
        if plain in catalog.names():
            member = datasets.get(name) if colon else catalog.get(name)  # `random_targets:digits` has a card of its own
            return {"family": kind, "file": catalog.location(plain).file, **jsonio.encode(member.card)}
    raise UnknownName("name", name, [known for catalog in catalogs.values() for known in catalog.names()])
