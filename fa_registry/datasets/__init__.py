"""Built-in data sets, one module per data set, and the catalog of all data sets."""

from fa_registry.datasets.base import Dataset, DatasetCard, DatasetFamily
from fa_registry.errors import UnknownName
from fa_registry.plugin_registry import Catalog

CATALOG = Catalog("datasets", "data set", Dataset, card=DatasetCard)


def get(name: str) -> Dataset:
    """Return a data set by name.

    Args:
        name: Name of a data set, or `family:argument`. The field `card.name` of the result contains the canonical name.

    Raises:
        UnknownName: If no data set has this name.
    """
    family, colon, argument = name.partition(":")
    dataset = CATALOG.get(family)
    if isinstance(dataset, DatasetFamily):
        return dataset.of(argument)
    if colon:
        raise UnknownName("data set", name, CATALOG.names())
    return dataset
