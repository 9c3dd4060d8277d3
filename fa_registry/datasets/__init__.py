"""Data sets as tensors, one file each."""

from fa_registry.catalog import Catalog
from fa_registry.datasets.base import Dataset

CATALOG = Catalog("datasets", "data set", Dataset)
