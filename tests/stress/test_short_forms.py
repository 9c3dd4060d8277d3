"""The short forms of `make stress`: a few of each kind, the same each time."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from fa_registry.training.checkpoint import load_tensors, save_tensors
from tests.commands.promotion import Judged, judged_study
from tests.end_to_end.conftest import skipped
from tests.end_to_end.server import mlflow_server
from tests.helpers.postgres import missing, postgres
from tests.helpers.stores import copy_store, made_once
from tests.stress import disk_faults, killed_processes, malformed, server_outage
from tests.stress.bit_flips import flip, prepare
from tests.stress.race_conditions import race
from tests.stress.workers import Counts, rounds

pytestmark = pytest.mark.long

SEED, WRITERS, RUNS, WORKERS, SPECS = 17, 4, 3, 4, 8


@pytest.fixture(params=["sqlite", "postgresql", "server"])
def new_store(request, tmp_path, monkeypatch):
    """A store of each kind that is not there yet."""
    monkeypatch.chdir(tmp_path)  # where MLflow puts the artifacts of a database that no server serves
    if request.param == "postgresql":
        if missing():
            skipped(missing())
        with postgres() as database:
            yield database.address()
    elif request.param == "server":
        with mlflow_server(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlartifacts") as store:
            yield store
    else:
        yield f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_writers_that_begin_together_lose_nothing(new_store):
    assert race(new_store, WRITERS, RUNS) == (0, [])


def test_workers_that_start_together_train_each_specification_once(new_store):
    found, ends = rounds(new_store, WORKERS, SPECS)
    assert [end.error for end in ends] == [""] * WORKERS
    assert found == Counts(complete=SPECS, lost=0, twice=0, running=0)
    assert sum(len(end.trained) for end in ends) == SPECS


def test_a_server_that_is_killed_while_a_study_trains_loses_no_run_and_no_point(tmp_path):
    assert server_outage.of_server(tmp_path, kills=1) == (1, 0, "")


def test_nor_does_a_database_that_goes_away_while_a_study_writes_to_it(tmp_path):
    if missing():
        skipped(missing())
    assert server_outage.of_postgresql(tmp_path, kills=2) == (2, 0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the killed in /proc")
def test_nothing_is_lost_running_left_or_different_after_a_kill(tmp_path_factory):
    """In a separate process, because it forks: this one has stores open, and threads."""
    judged = made_once(tmp_path_factory, "judged", judged_study)
    command = [sys.executable, "-m", killed_processes.__name__, "--judged", str(judged), "--kills", "3"]
    done = subprocess.run([*command, "--verbs", "train,audit,promote"], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", disk_faults.COMMANDS)
def test_a_write_that_fails_is_refused_and_the_command_repeated_ends_as_if_it_had_not(
    command, tmp_path_factory, undrawn, measured_once
):
    store = made_once(tmp_path_factory, "judged", judged_study)
    assert disk_faults.faults(command, store, random.Random(SEED), 1) == ([], [])


def test_what_is_malformed_is_read_or_refused(tmp_path):
    tallies = malformed.stress(tmp_path, 400, seed=1)
    assert all(tally.tried for tally in tallies.values())
    assert all(tally.refused for name, tally in tallies.items() if name != "pages")
    assert {name: tally.uncaught for name, tally in tallies.items() if tally.uncaught} == {}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flips")
    copy_store(made_once(tmp_path_factory, "judged", judged_study), folder)
    return prepare(Judged(folder))


def test_a_flipped_bit_is_found_in_every_kind_of_file(files):
    handed_out = {"audit's index.html", "audit's audit.json", "report/form.html", "resume file"}
    assert handed_out <= files.keys()
    tallies = flip(files, 0, seed=1)
    assert {kind: tally for kind, tally in tallies.items() if tally.lost or tally.crashed} == {}


@pytest.mark.parametrize("kind", ["checkpoints/epoch_*.safetensors", "feedback/card.json", "audit's index.html"])
def test_a_missing_file_is_found(files, kind):
    path, find = files[kind][0]
    whole = path.read_bytes()
    path.unlink()
    try:
        assert find()
    finally:
        path.write_bytes(whole)


def test_the_first_weights_of_another_run_are_found(files):
    path, find = files["checkpoints/init.safetensors"][0]
    whole = path.read_bytes()
    save_tensors(path, {name: tensor + 1 for name, tensor in load_tensors(path).items()})
    try:
        assert find()
    finally:
        path.write_bytes(whole)
