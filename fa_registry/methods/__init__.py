"""Training methods, one per file."""

from fa_registry.late_imports import late_imports
from fa_registry.plugin_registry import Catalog

CATALOG = Catalog("methods", "method", "base:Method", card="_card:MethodCard")
__getattr__ = late_imports(__name__, {name: f"{__name__}.base" for name in ("Method", "MethodCard")})
