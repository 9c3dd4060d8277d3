"""Old name of fa_registry.metrics, kept for one release: see deprecated_names."""

from fa_registry.deprecated_names import aliases

__getattr__ = aliases(__name__)
