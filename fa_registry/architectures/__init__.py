"""Networks with one residual stream, one file each."""
from fa_registry.architectures.base import Architecture
from fa_registry.catalog import Catalog

CATALOG = Catalog("architectures", "architecture", Architecture)
