"""Changes of many runs at once: the rows that one change after another leaves, in a fixed number of statements."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy

from fa_registry.errors import RegistryError
from fa_registry.tracking.base import Point, RunUpdate, Tracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.store_errors import StoreRefusal

TABLES = {
    "tags": "key, value",
    "metrics": "key, value, step, timestamp, is_nan",
    "latest_metrics": "key, value, step, timestamp, is_nan",
}
KEPT = Point("margin", 0.25, 3, 1000)


@pytest.fixture
def opened(tmp_path, empty_store):
    """Return a function that opens a new store of this name."""

    def make(name: str) -> MlflowTracker:
        shutil.copy(empty_store, tmp_path / f"{name}.db")
        return MlflowTracker(f"sqlite:///{tmp_path / name}.db")

    return make


def filled(tracker: Tracker, count: int) -> list[str]:
    run_ids = [tracker.create(f"run {index}", {"old": "1", "kept": "1"}, {}) for index in range(count)]
    for run_id in run_ids:
        tracker.log(run_id, [KEPT], {})
    return run_ids


def rows(tracker: MlflowTracker, run_id: str) -> dict[str, list[tuple]]:
    with closing(sqlite3.connect(tracker.uri.removeprefix("sqlite:///"))) as database:
        return {
            table: sorted(database.execute(f"SELECT {columns} FROM {table} WHERE run_uuid = ?", (run_id,)))
            for table, columns in TABLES.items()
        }


@pytest.mark.parametrize(
    "change",
    [
        RunUpdate("", {}),
        RunUpdate("", {"old": "2", "new": "“x” · \n"}, outdated=["kept"]),
        RunUpdate("", {"long": "x" * 9000}),
        RunUpdate("", {"new": "1"}, [Point("margin", 0.5, 4, 2000), Point("other", -1e300, 0, 5)]),
        RunUpdate("", {}, [Point("margin", 0.5, 2, 2000)]),  # older than the value that is there
        RunUpdate("", {}, [Point("margin", 0.5, 3, 1000), Point("margin", 0.125, 3, 999)]),
        RunUpdate("", {}, [KEPT, KEPT]),
    ],
)
def test_the_rows_are_those_of_one_change_after_another(opened, change):
    together, apart = opened("together"), opened("apart")
    found = []
    for tracker, log_all in ((together, MlflowTracker.log_all), (apart, Tracker.log_all)):
        run_id, other = filled(tracker, 2)
        log_all(tracker, [RunUpdate(run_id, change.tags, change.points, change.outdated)])
        found.append([rows(tracker, run_id), rows(tracker, other)])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["deleted", "missing", "tag"])
def test_a_change_that_the_store_refuses_changes_no_run_of_its_batch(opened, name):
    tracker = opened("store")
    first, second = filled(tracker, 2)
    if name == "deleted":
        tracker.discard(second)
    bad = RunUpdate("0" * 32 if name == "missing" else second, {"": "1"} if name == "tag" else {"old": "2"})
    before = rows(tracker, first)
    with pytest.raises(StoreRefusal) as refused:
        tracker.log_all([RunUpdate(first, {"old": "2"}), bad])
    with pytest.raises(StoreRefusal) as alone:
        Tracker.log_all(tracker, [bad])
    assert refused.value.code == alone.value.code and rows(tracker, first) == before


def test_a_further_run_needs_no_further_statement(opened):
    tracker = opened("store")
    run_ids, counts = filled(tracker, 40), []
    for changed in (run_ids[:10], run_ids):
        statements: list[str] = []
        listen = lambda *given, statements=statements: statements.append(given[2])  # noqa: E731
        sqlalchemy.event.listen(sqlalchemy.engine.Engine, "before_cursor_execute", listen)
        try:
            tracker.log_all(RunUpdate(run_id, {"new": "1"}, [Point("m", 1.0, 9)], ["old"]) for run_id in changed)
            assert tracker.everywhere("tags", "new") == dict.fromkeys(changed, "1")
        finally:
            sqlalchemy.event.remove(sqlalchemy.engine.Engine, "before_cursor_execute", listen)
        counts.append(len(statements))
    assert counts[0] == counts[1] > 0


def test_a_value_everywhere_is_that_of_every_run_or_unknown(tracker):
    first, second = (tracker.create("run", {"a": value}, {"p": value}) for value in "xy")
    tracker.create("run", {"b": "x"}, {})
    tracker.discard(second)
    expected = None if tracker.uri == "memory" else {first: "x", second: "y"}
    assert tracker.everywhere("tags", "a") == tracker.everywhere("params", "p") == expected


def test_an_attached_file_is_written_only_where_it_changed(tracker):
    run_id = tracker.create("run", {}, {})

    def attached(data: bytes) -> int:
        tracker.attach(run_id, "report/form.html", data)
        path = tracker.artifact(run_id, "report/form.html")
        assert path.read_bytes() == data
        return path.stat().st_ino

    first = attached(b"one")
    if isinstance(tracker, MlflowTracker):
        assert attached(b"one") == first
    tracker.artifact(run_id, "report/form.html").write_bytes(b"two")  # of equal length, by somebody else
    attached(b"one")
    attached(b"three")


def test_an_attached_file_follows_no_link(tracker, tmp_path):
    run_id, secret = tracker.create("run", {}, {}), tmp_path / "secret"
    secret.write_bytes(b"one")
    tracker.attach(run_id, "form.html", b"one")
    path = tracker.artifact(run_id, "form.html")
    if isinstance(tracker, MlflowTracker):
        path.unlink()
        path.symlink_to(secret)
        tracker.attach(run_id, "form.html", b"one")  # the content of the target
        assert not path.is_symlink() and path.read_bytes() == secret.read_bytes() == b"one"
        path.parent.joinpath("report").symlink_to(tmp_path)
        with pytest.raises(RegistryError):
            tracker.attach(run_id, "report/form.html", b"one")
