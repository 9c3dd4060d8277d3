"""Comparison of published values (reference.toml) with the runs of an audit."""

from fa_registry.protocol.reproduction.figure_verdicts import reproduction
from fa_registry.protocol.reproduction.reference_file import FILE, load_reference

__all__ = ["FILE", "load_reference", "reproduction"]
