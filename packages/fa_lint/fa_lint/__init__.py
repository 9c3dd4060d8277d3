"""Linter that finds pitfalls of protocol §5, and similar mistakes, without running the code."""

__version__ = "0.1.0"
