"""Folders of the files that are distributed with the package.

These files are the editions, the templates and the studies. In a source checkout, templates and studies are at the top
level. In an installed wheel, templates and studies are inside the package.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent


def editions() -> Path:
    return PACKAGE / "protocol" / "editions"


def templates() -> Path:
    return _shipped("templates")


def projects() -> Path:
    """Return the folder of the studies that are distributed with the package."""
    return _shipped("projects")


def _shipped(name: str) -> Path:
    installed = PACKAGE / "_shipped" / name
    return installed if installed.is_dir() else PACKAGE.parent / name
