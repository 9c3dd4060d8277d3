"""Training methods, one per file."""

from fa_registry.methods.base import Method, MethodCard
from fa_registry.plugin_registry import Catalog

CATALOG = Catalog("methods", "method", Method, card=MethodCard)
