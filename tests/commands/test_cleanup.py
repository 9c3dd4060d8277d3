"""What killed processes leave: doctor shows it, --repair and the next command that writes take it away, and nothing else."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing

import pytest

from fa_registry import process_ownership
from fa_registry.tracking import cleanup, schema
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.stores import open_tracker
from tests.helpers.dead_process import killed_mark, killed_tag, left_folder


@pytest.fixture
def temporary(tmp_path_factory, monkeypatch):
    """A temporary folder that no other process uses, and no process but this one."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(process_ownership, "abandoned_processes", list)
    return folder


def begun(status="running", owner=None, kind="run"):
    tags = {schema.TAG_KIND: kind, schema.TAG_STATUS: status, schema.TAG_PROCESS: owner or killed_tag()}
    return MlflowTracker().create(kind, tags, {})


def states(result):
    rows = {row["check"]: row for row in json.loads(result.stdout)}
    return {kind: rows[kind]["state"] for kind in cleanup.KINDS}


def of_run(run_id):
    run = MlflowTracker().get(run_id)
    return run.state, run.tags[schema.TAG_STATUS]


@pytest.fixture
def half_done(registry, workplace, temporary):
    """A folder in which something of every kind was killed, and something of every kind is at work."""
    left_folder("fa_registry-run-", temporary)
    left_folder(".rendering-", workplace / "reports")
    resume = workplace / ".fa_registry" / "resume"
    resume.mkdir(parents=True)
    (resume / f".a.resume{killed_mark()}").touch()
    (resume / "b.resume.damaged").touch()
    with (
        process_ownership.temp_dir("fa_registry-run-"),
        process_ownership.temp_dir(".rendering-", workplace / "reports"),
    ):
        (resume / "c.resume").touch()
        yield registry


def test_doctor_shows_and_repairs_what_the_killed_left(half_done, workplace, temporary):
    audit, run = begun(kind="audit"), begun()
    shown = half_done("doctor", "--json")
    there = [kind for kind in cleanup.KINDS if kind not in (cleanup.JOURNAL, cleanup.PROCESSES)]
    assert {kind for kind, state in states(shown).items() if state == "left behind"} == set(there)
    assert audit in shown.stdout and run in shown.stdout and of_run(run) == ("RUNNING", "running")
    assert {
        kind for kind, state in states(half_done("doctor", "--repair", "--json")).items() if state == "repaired"
    } == set(there)
    assert set(states(half_done("doctor", "--json")).values()) == {"ok"}
    assert of_run(run) == of_run(audit) == ("KILLED", "failed")
    assert [len(list(folder.iterdir())) for folder in (temporary, workplace / "reports")] == [1, 1]  # those at work
    assert [path.name for path in (workplace / ".fa_registry" / "resume").iterdir()] == ["c.resume"]


@pytest.mark.parametrize(
    ("status", "owner", "expected"),
    [
        *((status, "", ("FINISHED", status)) for status in ("complete", "diverged", schema.STOPPED_EARLY)),
        ("failed", "", ("KILLED", "failed")),
        *(("running", owner, ("RUNNING", "running")) for owner in ("here", "elsewhere:1:2:3")),
    ],
)
def test_a_killed_run_is_what_it_says_it_is_and_one_at_work_is_not_touched(
    registry, temporary, status, owner, expected
):
    run_id = begun(status, process_ownership.process_tag() if owner == "here" else owner)
    registry("doctor", "--repair")
    assert of_run(run_id) == expected


@pytest.mark.parametrize(("state", "status"), [("FAILED", "failed"), ("KILLED", schema.INTERRUPTED)])
def test_a_run_that_mlflow_ended_for_its_killed_process_no_longer_says_running(workplace, temporary, state, status):
    """`mlflow run` ends the run that it began, regardless of what that one reports. A person who stops it gets KILLED."""
    tracker, run_id = MlflowTracker(), begun()
    tracker.finish(run_id, state)
    cleanup.clear(tracker, workplace)
    assert of_run(run_id) == ("KILLED", status)


def test_a_worker_without_a_parent_is_named_and_ended(workplace, temporary, monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setattr(process_ownership, "abandoned_processes", lambda: [child.pid])
        (left,) = cleanup.stale_items(None, workplace)
        assert (left.kind, left.what, child.poll()) == (cleanup.PROCESSES, str(child.pid), None)
        left.mend()
        assert child.wait(300) == -cleanup.KILL
        left.mend()  # it is gone by now


def test_the_next_command_that_writes_takes_it_away_and_leaves_what_a_person_should_see(
    half_done, workplace, temporary
):
    audit = begun(kind="audit")
    assert half_done("audit", "--study", "tiny").exit_code == 2  # it has no runs
    assert of_run(audit) == ("KILLED", "failed") and len(list(temporary.iterdir())) == 1
    assert {path.name for path in (workplace / ".fa_registry" / "resume").iterdir()} == {"c.resume", "b.resume.damaged"}


def test_a_journal_is_shown_and_rolled_back(workplace, tmp_path_factory, temporary):
    """A copy of a database in the middle of a commit is what a kill leaves there."""
    database, killed = workplace / "mlflow.db", tmp_path_factory.mktemp("killed") / "mlflow.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE half AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 9999) SELECT i FROM n"
        )
        for name in ("mlflow.db", "mlflow.db-journal"):
            shutil.copy(workplace / name, killed.with_name(name))
        assert cleanup.stale_items(None, workplace, database) == []  # its writer is at work
        connection.execute("ROLLBACK")
    (journal,) = cleanup.stale_items(None, workplace, killed)
    assert journal.kind == cleanup.JOURNAL
    journal.mend()
    assert cleanup.stale_items(None, workplace, killed) == []
    with closing(sqlite3.connect(killed)) as connection:
        assert not connection.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall()


def audit_elsewhere(heartbeat, host="gone"):
    tags = {schema.TAG_HEARTBEAT: heartbeat, schema.TAG_PROCESS: f"{host}:1:2:3", schema.TAG_KIND: "audit"}
    return StoredRun("a" * 32, "audit", "fa_registry", "RUNNING", 0, tags)


def test_an_audit_of_another_machine_is_dead_if_its_heartbeat_stays_longer_than_its_lease(tmp_path):
    def silent(heartbeat, now):
        return bool(cleanup.silent_audits([audit_elsewhere(heartbeat)], tmp_path, now))

    assert not silent("4 of 120 s", 1000.0)  # the first observation
    assert not silent("4 of 120 s", 1120.0)
    assert silent("4 of 120 s", 1121.0)
    assert not silent("5 of 120 s", 5000.0)  # it lives
    assert not silent("no heartbeat", 9e9) and not silent("no heartbeat", 99e9)


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', '{"a": ["x", "y"]}', "\x00"])
def test_a_damaged_file_of_heartbeats_remembers_nothing(tmp_path, content):
    (tmp_path / cleanup.HEARTBEATS).write_text(content, encoding="utf-8")
    assert cleanup.silent_audits([audit_elsewhere("4 of 120 s")], tmp_path, 9e9) == set()
    assert cleanup.silent_audits([audit_elsewhere("4 of 120 s")], tmp_path, 9e9 + 121) == {"a" * 32}


def test_an_audit_of_this_machine_and_a_training_run_are_left_to_other_checks(tmp_path):
    here = audit_elsewhere("4 of 120 s", process_ownership.process_tag().partition(":")[0])
    here.tags[schema.TAG_PROCESS] = process_ownership.process_tag()
    training = audit_elsewhere("4 of 120 s")
    training.tags[schema.TAG_KIND] = "run"
    for now in (0.0, 9e9):
        assert cleanup.silent_audits([here, training], tmp_path, now) == set()


def test_the_next_command_that_writes_closes_an_audit_of_a_host_that_is_gone(registry, temporary, monkeypatch):
    audit = begun(owner="gone:1:2:3", kind="audit")
    MlflowTracker().log(audit, tags={schema.TAG_HEARTBEAT: "4 of 120 s"})
    open_tracker("", write=True)
    assert of_run(audit) == ("RUNNING", "running")
    later = time.time() + 121
    monkeypatch.setattr(cleanup.time, "time", lambda: later)
    open_tracker("", write=True)
    assert of_run(audit) == ("KILLED", "failed")
