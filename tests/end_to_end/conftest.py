"""Whole commands in separate processes, as a user starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import STUDY

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def needed(program: str) -> str:
    """The path of a system program; see `skipped` for a machine without it."""
    path = shutil.which(program)
    if path is None:
        skipped(f"{program} is not installed")
    return path


def skipped(why: str) -> None:
    """Skip visibly what this machine lacks something for; in CI, where nothing may skip, fail."""
    if os.environ.get("FA_REGISTRY_NO_SKIP"):
        pytest.fail(why)
    pytest.skip(why)


def commands_in(folder: Path):
    """call('fa-registry', …, cwd=…) → completed process, in an environment whose store is the folder's."""
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }

    def call(program: str, *arguments: str, cwd: Path = folder, timeout: float = 300) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(BIN / program), *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout
        )

    call.environment = environment
    return call


@pytest.fixture
def command(workplace: Path):
    """command('fa-registry', …, cwd=…) → completed process; the store is the workplace's, the tiny study in tiny/."""
    folder = workplace / "tiny"
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return commands_in(workplace)
