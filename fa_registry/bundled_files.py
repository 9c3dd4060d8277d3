"""Folders of the files that are distributed with the package.

These files are the editions, the templates and the studies. Templates and studies are at the top level of a source checkout,
and inside the package in an installed wheel.
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
