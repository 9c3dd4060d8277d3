"""Linter that finds the pitfalls 1 to 13 of protocol §5, and similar mistakes, in code that it does not run."""

__version__ = "0.1.0"
