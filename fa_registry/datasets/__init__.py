"""Data sets as tensors, one file each."""

from fa_registry.datasets.base import Dataset, DatasetCard, DatasetFamily
from fa_registry.errors import UnknownName
from fa_registry.plugin_registry import Catalog

CATALOG = Catalog("datasets", "data set", Dataset, card=DatasetCard)


def get(name: str) -> Dataset:
    """Return the data set called `name` or `family:argument`; its `card.name` is the canonical name.

    Raises:
        UnknownName: there is no such data set.
    """
    family, colon, argument = name.partition(":")
    member = CATALOG.get(family)
    if isinstance(member, DatasetFamily):
        return member.of(argument)
    if colon:
        raise UnknownName("data set", name, CATALOG.names())
    return member
