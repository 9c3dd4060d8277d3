"""Provenance of a result: code version, package versions and hardware."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("fa_registry", "torch", "numpy", "scipy", "scikit-learn", "safetensors", "mlflow")
NOT_A_CHECKOUT, NO_REPOSITORY = "not a git checkout", "no repository"
UNKNOWN = "unknown"  # prefix of a commit that git could not name


@cache  # imported code does not change while the process runs
def commit() -> tuple[str, bool | None]:
    """Return the git commit of this source checkout and whether it has local changes, as `commit_of`.

    The commit of an installed wheel is NOT_A_CHECKOUT.
    """
    root = Path(__file__).resolve().parent.parent
    return commit_of(root) if (root / ".git").exists() else (NOT_A_CHECKOUT, None)


def commit_of(path: Path) -> tuple[str, bool | None]:
    """Return the git commit of the repository of a file or folder, and whether it has local changes.

    A new file counts as a change only if it is `path` or in this folder. The commit is NO_REPOSITORY if no folder above has a
    repository. The second value is None if local changes are unknown.
    """
    folder = path if path.is_dir() else path.parent
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return NO_REPOSITORY, None
    try:
        head = _git(folder, "rev-parse", "HEAD")
        status = ("status", "--porcelain")
        return head, bool(_git(folder, *status, "--untracked-files=no") or _git(folder, *status, "--", str(path)))
    except (OSError, subprocess.SubprocessError) as error:
        return f"{UNKNOWN}: {error}", None


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


def is_commit(text: Any) -> bool:
    """Return whether a recorded text is a commit, and not the reason why none is known."""
    return bool(text) and text not in (NOT_A_CHECKOUT, NO_REPOSITORY) and not str(text).startswith(UNKNOWN)


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


def login_name() -> str:
    """Return the login name of this user, or the number of a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's uid may have no name
        return f"uid {os.getuid()}"
