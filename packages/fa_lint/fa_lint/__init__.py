"""Linter that finds the pitfalls 1 to 4, 6 to 10, 12 and 13 of protocol §5 without running the code."""

__version__ = "0.1.0"
