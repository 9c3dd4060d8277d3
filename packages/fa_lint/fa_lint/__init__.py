"""Linter that finds the pitfalls 1 to 13 of protocol §5 without running the code."""

__version__ = "0.1.0"
