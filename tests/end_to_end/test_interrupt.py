"""Ctrl-C on a study with two workers: exit 130, nothing left running, and the same command goes on."""

from __future__ import annotations

import signal
import subprocess
import time

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.end_to_end.conftest import BIN


def test_a_study_can_be_stopped_and_goes_on(command, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace("epochs = 2", "epochs = 40"))
    arguments = ["study", "tiny", "--jobs", "2", "--device", "cpu"]
    process = subprocess.Popen(
        [str(BIN / "fa-registry"), *arguments],
        cwd=workplace,
        env=command.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    tracker = MlflowTracker(f"sqlite:///{workplace / 'mlflow.db'}")
    deadline = time.monotonic() + 120
    while not tracker.search({schema.TAG_KIND: "run"}) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "the same command goes on from there" in errors
    assert "RUNNING" not in {run.state for run in tracker.search({})}

    ended = command("fa-registry", *arguments)
    assert ended.returncode == 0, ended.stderr
    complete = tracker.search({schema.TAG_KIND: "run", schema.TAG_STATUS: "complete"})
    assert len({run.tags[schema.TAG_SPEC] for run in complete}) == 4
    assert not list((workplace / ".fa_registry" / "resume").glob("*"))
