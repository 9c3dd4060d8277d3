"""Training methods, one file each."""

from fa_registry.catalog import Catalog
from fa_registry.methods.base import Method, MethodCard

CATALOG = Catalog("methods", "method", Method, card=MethodCard)
