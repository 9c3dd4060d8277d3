"""The name of a process that is gone: of this machine, and with a pid that none is ever given."""

from __future__ import annotations

import os
from pathlib import Path

from fa_registry import process_ownership

FREE_PID = 2**30


def killed_tag() -> str:
    return process_ownership.process_tag().replace(f":{os.getpid()}:", f":{FREE_PID}:")


def killed_mark() -> str:
    return process_ownership.owner_suffix().replace(f".{os.getpid():x}.", f".{FREE_PID:x}.")


def left_folder(prefix: str, parent: Path) -> Path:
    """As a process that was killed would have left it."""
    folder = parent / f"{prefix}{killed_mark()}abc"
    folder.mkdir(parents=True)
    (folder / "half").touch()
    return folder
