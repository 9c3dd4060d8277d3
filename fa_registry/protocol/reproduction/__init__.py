"""Reproduction: a study's published figures, read from its reference.toml, beside the figures of an audit's runs."""

from fa_registry.protocol.reproduction.comparing import reproduction
from fa_registry.protocol.reproduction.loading import FILE, load_reference

__all__ = ["FILE", "load_reference", "reproduction"]
