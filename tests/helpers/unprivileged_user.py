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
# Another user of the group 60001, who may read every file, as the interpreter may be in root's home (capability 2).
OTHER_USER = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.umask(0o002)
os.setgroups([])
os.setresgid(60001, 60001, 60001)
libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
os.setresuid(*[int(sys.argv[2])] * 3)
if libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(1 << 2, 1 << 2, 0, 0, 0, 0)):
    sys.exit(f"capset: error {ctypes.get_errno()}")
"""
GROUP = 60001
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
    return _answers(calls, folder, BEFORE)


def as_member_of_group(calls: Sequence[Sequence[str]], folder: Path, user: int) -> list[Any]:
    """The same of a user with this number in the group GROUP and with the umask 002; only root can be another user."""
    return _answers(calls, folder, OTHER_USER, str(user))


def _answers(calls: Sequence[Sequence[str]], folder: Path, before: str, *arguments: str) -> list[Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    started = subprocess.run(
        [sys.executable, "-c", before + CALLS, json.dumps(calls), *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "ANSWERS" in started.stdout, started.stdout + started.stderr
    return json.loads(started.stdout.rpartition("ANSWERS")[2])
