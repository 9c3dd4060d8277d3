"""Built-in networks, one module per architecture, and `adapt` for third-party models."""

from fa_registry.architectures._adapter import AdaptedNetwork, adapt, unwrapped
from fa_registry.architectures.base import Architecture, ArchitectureCard
from fa_registry.deprecated_names import aliases
from fa_registry.plugin_registry import Catalog

__all__ = ["CATALOG", "AdaptedNetwork", "adapt", "unwrapped"]

CATALOG = Catalog("architectures", "architecture", Architecture, card=ArchitectureCard)


__getattr__ = aliases(__name__)
