"""Registered models in a real store: versions, aliases, references, and the files behind them."""

from __future__ import annotations

import shutil

import pytest

from fa_registry.errors import StoreError, UnknownName, UsageError
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import CUT, MAX_DESCRIPTION, ModelRegistry


@pytest.fixture
def store(tmp_path, empty_store):
    """(registry, id of a run with the artifact kept/file.txt)."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    tracker = MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    run_id = tracker.create("run", {}, {})
    folder = tmp_path / "files"
    (folder / "kept").mkdir(parents=True)
    (folder / "kept" / "file.txt").write_text("held")
    tracker.upload(run_id, folder)
    return ModelRegistry(tracker.uri), run_id


def test_versions_come_newest_first_with_tags_aliases_and_files(store):
    registry, run_id = store
    first = registry.register("a", run_id, "kept", {"fa.x": "1"}, "one")
    second = registry.register("a", run_id, "kept", {"fa.x": "2"}, "two")
    for version, alias in ((first, "best"), (second, "warn"), (second, "best")):
        registry.set_alias(version, alias)
    found = registry.versions("a")
    assert [(one.version, one.tags["fa.x"], one.aliases, one.run_id) for one in found] == [
        ("2", "2", ("best", "warn"), run_id),
        ("1", "1", (), run_id),
    ]
    assert [path.name for path in registry.files(found[1]).iterdir()] == ["file.txt"]
    assert registry.names() == ["a"] and registry.versions("b") == []


def test_a_version_is_found_by_number_and_by_alias(store):
    registry, run_id = store
    registry.set_alias(registry.register("a.b-c", run_id, "kept", {}, ""), "best")
    for reference in ("models:/a.b-c/1", "models:/a.b-c@best"):
        assert registry.find(reference).reference == "models:/a.b-c/1"


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("models:/dfaa/1", r"unknown registered model of .* 'dfaa' \(did you mean 'dfa'\?\)"),
        ("models:/dfa@bets", r"unknown alias of dfa 'bets' \(did you mean 'best'\?\); known: best"),
        ("models:/dfa/2", "unknown version of dfa '2'; known: 1"),
        ("models:/it's/1", 'unknown registered model of .* "it\'s"; known: dfa'),
    ],
)
def test_what_is_not_there_is_named_with_what_is(store, reference, text):
    registry, run_id = store
    registry.set_alias(registry.register("dfa", run_id, "kept", {}, ""), "best")
    with pytest.raises(UnknownName, match=text):
        registry.find(reference)


@pytest.mark.parametrize(
    "reference", ["models:/a", "models:/a/b", "models:/a/latest", "a/1", "models:/a@b@c", "models://a/1"]
)
def test_what_is_no_reference_is_refused(store, reference):
    with pytest.raises(UsageError, match="expected models:/NAME@alias or models:/NAME/3"):
        store[0].find(reference)


def test_a_description_fits_the_database_and_says_that_it_was_cut(store):
    registry, run_id = store
    for text in ("x" * MAX_DESCRIPTION, "x" * (MAX_DESCRIPTION + 1)):
        registry.register("a", run_id, "kept", {}, text)
    descriptions = [registry._client.get_model_version("a", version).description for version in ("1", "2")]
    assert [len(text) for text in descriptions] == [MAX_DESCRIPTION, MAX_DESCRIPTION]
    assert not descriptions[0].endswith(CUT) and descriptions[1].endswith(CUT)


def test_what_the_store_refuses_is_a_store_error(store):
    registry, run_id = store
    with pytest.raises(StoreError, match="reports an error: .*cannot contain '/'"):
        registry.register("a/b", run_id, "kept", {}, "")
    with pytest.raises(StoreError, match="reports an error: .*nowhere"):
        registry.register("a", "nowhere", "kept", {}, "")


def test_files_that_are_gone_are_a_store_error(store):
    registry, run_id = store
    version = registry.register("a", run_id, "lost", {}, "")
    with pytest.raises(StoreError, match=r"models:/a/1: its files are missing in .*lost \(recorded: "):
        registry.files(version)
