"""docs/many-machines.md: each way to start workers, as written there, on a store that is a server; processes replace machines."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import STUDY
from tests.end_to_end.conftest import BIN, ROOT
from tests.end_to_end.server import mlflow_server

PAGE = (ROOT / "docs" / "many-machines.md").read_text(encoding="utf-8")
STORE = "http://registry:5000"
AT_ONCE = 3  # of a job array or of a Job's pods
SECONDS = 600


def by_ssh() -> str:
    """The loop over hosts; each is this one."""
    (line,) = re.findall(r"^    (for host in .*)$", PAGE, re.M)
    assert "ssh $host " in line
    return line.replace("ssh $host ", "")


def by_slurm() -> str:
    """What the job array runs in each of its jobs, so many of them."""
    (command,) = re.findall(r'^    sbatch --array.*--wrap "(.*)"$', PAGE, re.M)
    return together(command)


def by_kubernetes() -> str:
    """What the Job runs in each of its pods, so many of them."""
    (job,) = re.findall(r"^    apiVersion: batch/v1\n(?:    .*\n)+", PAGE, re.M)
    (container,) = yaml.safe_load(job)["spec"]["template"]["spec"]["containers"]
    return together(" ".join(container["command"]))


def together(command: str) -> str:
    return " ".join([f"{command} &"] * AT_ONCE) + " wait"


@pytest.mark.long
def test_every_way_to_start_workers_trains_each_run_once(tmp_path, monkeypatch):
    with mlflow_server(f"sqlite:///{tmp_path / 'server.db'}", tmp_path / "files") as store:
        for seed, way in enumerate((by_ssh, by_slurm, by_kubernetes), start=10):
            name = f"paper{seed}"
            (tmp_path / f"{name}.toml").write_text(
                STUDY.replace('"tiny"', f'"{name}"').replace("seeds = [1]", f"seeds = [{seed}]"), encoding="utf-8"
            )
            run_in_a_shell(way().replace("worker paper", f"worker {name}.toml").replace(STORE, store), tmp_path)
            runs = MlflowTracker(store).search({schema.TAG_STUDY: name, schema.TAG_KIND: "run"})
            complete = Counter(run.tags[schema.TAG_SPEC] for run in runs if run.tags[schema.TAG_STATUS] == "complete")
            assert set(complete.values()) == {1} and len(complete) == 4, way.__name__
            assert {run.state for run in runs} == {"FINISHED"}, way.__name__


def run_in_a_shell(line: str, folder: Path) -> None:
    own = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(["bash", "-c", line], cwd=folder, env=own, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stderr
