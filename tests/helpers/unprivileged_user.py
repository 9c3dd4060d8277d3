"""What a store reports to a user who may not write to it. Root may write anywhere, so root's powers are given up first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# 0x20080522 is the kernel's version 3 of this call: two sets of three words each, here without a bit.
BEFORE = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()):
    sys.exit(f"capset: error {ctypes.get_errno()}")
"""
CALLS = """
from click.testing import CliRunner
from fa_registry.cli import main
answers = [CliRunner().invoke(main, call) for call in json.loads(sys.argv[1])]
print("ANSWERS" + json.dumps([[a.exit_code, a.stdout, a.stderr, repr(a.exception)] for a in answers]))
"""


def make_read_only(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)


def powerless(calls: Sequence[Sequence[str]], folder: Path) -> list[Any]:
    """[exit code, stdout, stderr, exception] of each call of the command line, in one process started in `folder`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    started = subprocess.run(
        [sys.executable, "-c", BEFORE + CALLS, json.dumps(calls)],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "ANSWERS" in started.stdout, started.stdout + started.stderr
    return json.loads(started.stdout.rpartition("ANSWERS")[2])
