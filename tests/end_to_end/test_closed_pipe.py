"""A reader that closes the pipe of a command's output, as `head` does, ends the output and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.helpers.plugins import NAME, installed

COMMAND = f"{sys.executable} -m fa_registry"
STUDY = "study tiny --jobs 2 --device cpu"


@pytest.fixture
def shell(command, workplace):
    """shell(line): run a line of bash in the working folder; its standard output, standard error apart."""

    def run(line: str, **variables: str) -> subprocess.CompletedProcess:
        environment = {**command.environment, **variables}
        return subprocess.run(
            ["bash", "-c", line], cwd=workplace, env=environment, capture_output=True, text=True, timeout=600
        )

    return run


def with_closed_output(folder, environment, *arguments: str) -> int:
    """The exit code of a command whose standard output and error were never read."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [sys.executable, "-m", "fa_registry", *arguments], cwd=folder, env=environment, stdout=write, stderr=write
        ).returncode
    finally:
        os.close(write)


def runs_of(folder):
    runs = MlflowTracker(f"sqlite:///{folder / 'mlflow.db'}").search({})
    return sorted((run.state, run.tags[schema.TAG_STATUS]) for run in runs)


@pytest.mark.long
@pytest.mark.parametrize("variables", [{}, {"FORCE_COLOR": "1"}], ids=["lines", "progress bars"])
def test_a_study_whose_output_is_closed_trains_to_its_end(shell, workplace, variables):
    """Rich draws bars into a pipe too where FORCE_COLOR is set."""
    ended = shell(f"{COMMAND} {STUDY} 2>&1 | head -3; echo ${{PIPESTATUS[0]}}", **variables)
    assert ended.stdout.splitlines()[-1] == "0" and not ended.stderr
    assert runs_of(workplace) == [("FINISHED", "complete")] * 5  # four runs, and the study's own


@pytest.mark.long
def test_a_method_that_prints_into_a_closed_pipe_is_trained(command, workplace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    with installed(folder) as plugin:
        text = plugin.module.read_text(encoding="utf-8")
        assert "    def credits(" in text
        head, body = text.split("    def credits(", 1)
        signature, rest = body.split(":\n", 1)
        printing = f"{head}    def credits({signature}:\n        print('credits', flush=True)\n{rest}"
        plugin.module.write_text(printing, encoding="utf-8")
        study = workplace / "tiny" / "study.toml"
        study.write_text(study.read_text().replace('"fa", "dfa"', f'"{NAME}"'), encoding="utf-8")
        environment = {**command.environment, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
        assert with_closed_output(workplace, environment, *STUDY.split()) == 0
    assert set(runs_of(workplace)) == {("FINISHED", "complete")}


@pytest.mark.long
def test_every_kind_of_output_ends_quietly_with_the_commands_own_exit_code(shell, command, workplace):
    assert shell(f"{COMMAND} {STUDY}").returncode == 0
    verdict = shell(f"{COMMAND} audit --study tiny --trust-logged").returncode
    expected = {
        "--help": 0,
        "audit --help": 0,
        "nonsense": 2,
        "list methods": 0,
        "list runs --json": 0,
        "show 00": 2,
        "audit --study tiny --trust-logged": verdict,
        "audit --study tiny --trust-logged --json": verdict,
    }
    assert verdict != 0  # else a lost verdict would not show
    for arguments, code in expected.items():
        assert with_closed_output(workplace, command.environment, *arguments.split()) == code, arguments
    for arguments in ("--help", "list runs --json", "audit --study tiny --trust-logged"):  # standard error stays open
        ended = shell(f"{COMMAND} {arguments} | true")
        assert "Error" not in ended.stderr and "Exception" not in ended.stderr, ended.stderr
    assert not [state for state, _ in runs_of(workplace) if state == "RUNNING"]


@pytest.mark.long
def test_watch_ends_when_its_output_is_not_read(command, workplace):
    """It would continue as long as a run is at work, without a reader."""
    tracker = MlflowTracker(f"sqlite:///{workplace / 'mlflow.db'}")
    tracker.create("at work", {schema.TAG_KIND: "run", schema.TAG_STATUS: "running"}, {})
    assert with_closed_output(workplace, command.environment, "watch", "--json") == 0
