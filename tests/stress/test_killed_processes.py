"""Three kills at random points; `make stress` kills fifty times."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.commands.promotion import judged_study
from tests.helpers.stores import made_once
from tests.stress.killed_processes import COMMANDS


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks for the killed in /proc")
def test_nothing_is_lost_running_left_or_different_after_a_kill(tmp_path_factory):
    """In a separate process, because it forks: this one has stores open, and threads."""
    judged = made_once(tmp_path_factory, "judged", judged_study)
    command = [sys.executable, "-m", "tests.stress.killed_processes", "--judged", str(judged), "--kills", "3"]
    assert {"train", "audit", "promote"} <= COMMANDS.keys()
    done = subprocess.run([*command, "--verbs", "train,audit,promote"], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
