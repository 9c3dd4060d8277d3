"""Linter that finds pitfalls 1, 2, 3, 7, 8, 9 and 12 of protocol §5 without running the checked code."""

__version__ = "0.1.0"
