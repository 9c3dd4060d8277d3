"""Files that ship with the package: editions, templates, studies. In a checkout they are at its top; in a wheel, inside."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent


def editions() -> Path:
    return PACKAGE / "protocol" / "editions"


def templates() -> Path:
    return _shipped("templates")


def projects() -> Path:
    """The folder of the studies that ship with the package."""
    return _shipped("projects")


def _shipped(name: str) -> Path:
    installed = PACKAGE / "_shipped" / name
    return installed if installed.is_dir() else PACKAGE.parent / name
