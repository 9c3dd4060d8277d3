"""Folders of the files that ship with the package: editions, templates, studies.

A checkout has the templates and studies at its top level, a wheel has them inside the package.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent


def editions() -> Path:
    return PACKAGE / "protocol" / "editions"


def templates() -> Path:
    return _shipped("templates")


def projects() -> Path:
    """Return the folder of the studies that ship with the package."""
    return _shipped("projects")


def _shipped(name: str) -> Path:
    installed = PACKAGE / "_shipped" / name
    return installed if installed.is_dir() else PACKAGE.parent / name
