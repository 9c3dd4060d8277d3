"""Linter that finds pitfalls of protocol §5 (1 to 4, 6 to 10, 12, 13) without running the code."""

__version__ = "0.1.0"
