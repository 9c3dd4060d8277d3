"""Built-in networks, one module per architecture, and `adapt` for third-party models."""
# ruff: noqa: F822 - the names are imported at their first use, because their module imports torch

from fa_registry.late_imports import late_imports
from fa_registry.plugin_registry import Catalog

__all__ = ["CATALOG", "AdaptedNetwork", "adapt", "unwrapped"]

CATALOG = Catalog("architectures", "architecture", "base:Architecture", card="_card:ArchitectureCard")
NAMES = {
    "_adapter": ("AdaptedNetwork", "adapt", "unwrapped"),
    "base": ("Architecture",),
    "_card": ("ArchitectureCard",),
}
__getattr__ = late_imports(
    __name__, {name: f"{__name__}.{module}" for module, names in NAMES.items() for name in names}
)
