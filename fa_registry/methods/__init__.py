"""Training methods, one per file."""

from fa_registry.deprecated_names import aliases
from fa_registry.plugin_registry import Catalog

CATALOG = Catalog("methods", "method", "base:Method", card="_card:MethodCard")
__getattr__ = aliases(__name__, {name: f"{__name__}.base" for name in ("Method", "MethodCard")})
