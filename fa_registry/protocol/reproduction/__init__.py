"""Reproduction: a study's published figures, read from its reference.toml, beside the figures of an audit's runs."""

from fa_registry.protocol.reproduction.comparison import reproduction
from fa_registry.protocol.reproduction.reference_file import FILE, load_reference

__all__ = ["FILE", "load_reference", "reproduction"]
