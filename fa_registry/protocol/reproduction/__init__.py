"""Reproduction: a study's published figures, read from its reference.toml, beside the figures of an audit's runs."""

from fa_registry.protocol.reproduction.reference_file import FILE, load_reference
from fa_registry.protocol.reproduction.reproduced import reproduction

__all__ = ["FILE", "load_reference", "reproduction"]
