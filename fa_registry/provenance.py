"""Provenance of a result: code version, package versions and hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("fa_registry", "torch", "numpy", "scipy", "scikit-learn", "safetensors", "mlflow")
NOT_A_CHECKOUT = "not a git checkout"


@cache  # imported code does not change while the process runs
def commit() -> tuple[str, bool | None]:
    """Return the git commit of this source checkout and whether it has local changes.

    The commit of an installed wheel is NOT_A_CHECKOUT. The second value is None if local changes are unknown.
    """
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return NOT_A_CHECKOUT, None
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head, bool(_git(root, "status", "--porcelain"))
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {error}", None


@cache  # reading the metadata of the packages takes 20 ms
def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages in PACKAGES."""
    versions_by_name = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions_by_name[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions_by_name[package] = "not installed"
    return {name: version for name, version in versions_by_name.items() if version != "not installed"}


def hardware(gpu: str = "") -> dict[str, Any]:
    """Return the machine's architecture, processor, number of cores, and GPU (empty if none was used)."""
    return {"machine": platform.machine(), "cpu": _processor(), "cores": os.cpu_count() or 0, "gpu": gpu or "none"}


def collect(threads: int, gpu: str = "") -> dict[str, Any]:
    """Return all data of provenance.json for a run with this number of threads and this GPU."""
    head, dirty = commit()
    return {"commit": head, "dirty": dirty, "versions": dict(versions()), "hardware": hardware(gpu), "threads": threads}


def commit_of(folder: Path) -> str:
    """Return the git commit of a folder, with a `+` if files were changed; empty if there is no commit."""
    try:
        return _git(folder, "describe", "--always", "--abbrev=40", "--dirty=+")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
