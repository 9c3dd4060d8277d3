"""Registered models in a real store: versions, aliases and references."""

from __future__ import annotations

import shutil

import pytest

from fa_registry.errors import StoreError, UsageError
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import ModelRegistry


@pytest.fixture
def store(tmp_path, empty_store):
    """(registry, id of a run)."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    tracker = MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    return ModelRegistry(tracker.uri), tracker.create("run", {}, {})


def test_versions_have_their_run_their_tags_and_the_aliases_that_were_set_last(store):
    registry, run_id = store
    first = registry.register("a.b-c", run_id, {"fa.x": "1"})
    second = registry.register("a.b-c", run_id, {"fa.x": "2"})
    registry.set_aliases(first, ("best",))
    registry.set_aliases(second, ("warn", "best"))
    found = {version.version: (version.tags, version.run_id) for version in registry.versions_of(run_id)}
    assert {int(number): value for number, value in found.items()} == {
        1: ({"fa.x": "1"}, run_id),
        2: ({"fa.x": "2"}, run_id),
    }
    assert {alias: int(number) for alias, number in registry.aliases("a.b-c").items()} == {"best": 2, "warn": 2}
    assert {registry.find(f"models:/a.b-c{end}").tags["fa.x"] for end in ("/2", "@best", "@warn")} == {"2"}


@pytest.mark.parametrize("reference", ["models:/dfaa/1", "models:/dfa@bets", "models:/dfa/2", "models:/it's/1"])
def test_a_version_that_does_not_exist_is_an_error_of_the_store(store, reference):
    registry, run_id = store
    registry.set_aliases(registry.register("dfa", run_id, {}), ("best",))
    with pytest.raises(StoreError):
        registry.find(reference)


@pytest.mark.parametrize(
    "reference", ["models:/a", "models:/a/b", "models:/a/latest", "a/1", "models:/a@b@c", "models://a/1"]
)
def test_a_text_that_is_no_reference_is_refused(store, reference):
    with pytest.raises(UsageError):
        store[0].find(reference)


@pytest.mark.parametrize(("name", "run"), [("a/b", ""), ("a", "nowhere")])
def test_a_name_or_run_that_mlflow_refuses_is_a_store_error(store, name, run):
    registry, run_id = store
    with pytest.raises(StoreError):
        registry.register(name, run or run_id, {})
