"""Stores that cannot be used say why, before anything is written."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from gc import get_freeze_count as frozen_count  # the real function, which conftest replaces
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from fa_registry.errors import StoreError
from fa_registry.tracking import client, mlflow_tracker, schema
from fa_registry.tracking.base import Point
from fa_registry.tracking.client import known_revisions
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.mlflow_views import View
from fa_registry.tracking.reader import FEW, runs_by_spec
from fa_registry.tracking.store import check_store, command_on, resolve_uri

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("uri", ["file:./mlruns", "./mlruns", "mlruns"])
def test_the_file_store_is_refused(uri):
    with pytest.raises(StoreError, match="file store is no longer supported"):
        resolve_uri(uri)


def test_the_argument_beats_the_environment_beats_the_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert resolve_uri() == f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert resolve_uri() == "http://127.0.0.1:5000"
    assert resolve_uri("sqlite:///other.db") == f"sqlite:///{tmp_path / 'other.db'}"


def test_a_store_made_by_a_newer_mlflow(tmp_path, empty_store):
    database = tmp_path / "mlflow.db"
    shutil.copy(empty_store, database)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'fedcba987654'")
    connection.close()
    before = database.read_bytes()
    with pytest.raises(StoreError, match="a newer MLflow created it"):
        MlflowTracker(f"sqlite:///{database}")
    assert database.read_bytes() == before


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "notes.db").write_text("these are notes, not a database; they are long enough to be read as a header")
    with pytest.raises(StoreError, match="expected an SQLite database"):
        MlflowTracker(f"sqlite:///{tmp_path / 'notes.db'}")


def test_an_address_of_no_store_does_not_advise_a_store_that_is_refused():
    with pytest.raises(StoreError, match=r"ftp://x reports an error: expected a database or a server") as refused:
        MlflowTracker("ftp://x")
    assert "file'" not in str(refused.value)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        MlflowTracker(f"sqlite:///{tmp_path / 'none' / 'mlflow.db'}")


def test_a_file_in_place_of_the_folder_is_not_to_be_created(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="/file is not a folder; choose another store with --store"):
        check_store(f"sqlite:///{tmp_path}/file/mlflow.db", {"a"})


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere, so the answer is given here
    with pytest.raises(StoreError, match="cannot be written"):
        check_store(f"sqlite:///{tmp_path / 'mlflow.db'}", known_revisions())


def test_an_artifact_folder_that_is_no_folder(tmp_path):
    (tmp_path / "mlartifacts").write_text("a file in the way")
    with pytest.raises(StoreError, match="mlartifacts is not a folder"):
        MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert not (tmp_path / "mlflow.db").exists()


@pytest.mark.parametrize("count", [2, FEW, FEW + 1, 3 * FEW])
def test_each_has_its_runs_newest_first_whatever_their_state(tracker, count, monkeypatch):
    names = [f"spec {index}" for index in range(count)]
    made: dict[str, list[str]] = {name: [] for name in names}
    for name in [*names[1:], names[1]]:
        made[name].insert(0, tracker.create("run", {schema.TAG_KIND: "run", schema.TAG_SPEC: name}, {}))
    tracker.create("run", {schema.TAG_KIND: "run", schema.TAG_SPEC: "of another run"}, {})
    tracker.create("run", {schema.TAG_KIND: "run"}, {})
    searches, genuine = [], tracker.search
    monkeypatch.setattr(tracker, "search", lambda *given: searches.append(given) or genuine(*given))
    found = runs_by_spec(tracker, names)
    assert {name: {run.run_id for run in runs} for name, runs in found.items()} == {
        name: set(ids) for name, ids in made.items()
    }
    assert all(list(runs) == sorted(runs, key=lambda run: -run.started) for runs in found.values())
    assert len(searches) == (count if count <= FEW else 1)


def test_runs_are_found_by_all_their_tags_newest_first(tracker):
    first = tracker.create("one", {"a": "1", "b": "x"}, {})
    second = tracker.create("two", {"a": "1", "b": "y"}, {})
    assert {run.run_id for run in tracker.search({"a": "1"})} == {first, second}
    assert [run.name for run in tracker.search({"a": "1", "b": "y"})] == ["two"]
    assert tracker.search({"a": "2"}) == []


def test_a_search_leaves_the_collector_as_it_was(tracker, monkeypatch):
    tracker.create("run", {}, {})
    assert tracker.search({}) and gc.isenabled()
    if tracker.uri == "memory":
        return
    monkeypatch.setattr(MlflowClient, "search_runs", lambda *given, **named: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tracker.search({})
    assert gc.isenabled()


def test_runs_are_found_by_the_first_characters_of_their_ids(tracker):
    first, second = (tracker.create(name, {"a": name}, {}) for name in ("one", "two"))
    shared = len(os.path.commonprefix([first, second]))
    assert [run.run_id for run in tracker.search({}, start=first[: shared + 1])] == [first]
    assert {run.run_id for run in tracker.search({}, start=first[:shared])} == {first, second}
    assert tracker.search({"a": "two"}, start=first[: shared + 1]) == tracker.search({}, start="%") == []


@pytest.mark.long
def test_a_search_that_is_left_half_way_leaves_the_garbage_collector_as_it_was(tracker, monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", frozen_count)
    for name in ("one", "two"):
        tracker.create(name, {"a": "b"}, {})
    gc.unfreeze()  # of conftest
    try:
        assert next(iter(tracker.search_everywhere({}, {"a": "b"}))).name == "two"
        assert gc.isenabled() and frozen_count() == 0
    finally:
        gc.freeze()
    assert len(tracker.search({"a": "b"})) == 2 and frozen_count() > 0  # which other code had frozen


@pytest.mark.parametrize(
    "name", ["it's", "' or 1=1 --", "`", "\\", "a\\'", '"', "%", "a_b", "both ' and \"", "; drop", "Γ ·\t#", "\u202e"]
)
def test_a_value_is_found_whatever_signs_it_has_and_no_other_with_it(tracker, name):
    wanted = tracker.create("one", {"fa.study": name}, {"cfg/x": name})
    tracker.create("two", {"fa.study": "?" * len(name)}, {"cfg/x": "?" * len(name)})
    assert [run.run_id for run in tracker.search({"fa.study": name}, most=1)] == [wanted]
    assert [run.run_id for run in tracker.search_everywhere({"cfg/x": name}, {"fa.study": name})] == [wanted]
    assert tracker.search({}, start=name) == []


def test_an_adopted_run_keeps_its_id_and_takes_name_tags_and_params(tracker):
    launched = tracker.create("launched", {"by": "mlflow"}, {"method": "'dfa'"})
    assert tracker.adopt(launched, "dfa · s7", {"kind": "run"}, {"cfg/method": "dfa"}) == launched
    run = tracker.get(launched)
    assert (run.name, run.tags["by"], run.tags["kind"]) == ("dfa · s7", "mlflow", "run")


def test_tags_can_be_set_on_a_finished_run_without_reopening_it(tracker):
    run_id = tracker.create("run", {}, {})
    tracker.finish(run_id, "FINISHED")
    tracker.log(run_id, tags={"fa.verdict": "PASS"})
    assert (tracker.get(run_id).state, tracker.get(run_id).tags["fa.verdict"]) == ("FINISHED", "PASS")


def test_tags_can_be_taken_off_a_finished_run(tracker):
    run_id = tracker.create("run", {"a": "1", "b": "2"}, {})
    tracker.finish(run_id, "FINISHED")
    tracker.remove_tags(run_id, ["a"])
    tags = tracker.get(run_id).tags
    assert "a" not in tags and tags["b"] == "2"


def test_a_run_tells_the_newest_value_of_each_metric(tracker):
    run_id = tracker.create("run", {}, {})
    tracker.log(run_id, [Point("h_L", 2.0, 1), Point("h_L", 1.0, 0), Point("g_L", 3.0, 0)])
    assert tracker.get(run_id).metrics == tracker.search({})[0].metrics == {"h_L": 2.0, "g_L": 3.0}
    tracker.log(run_id, [Point("h_L", 4.0, 2)])
    assert tracker.get(run_id).metrics == {"h_L": 4.0, "g_L": 3.0}


def test_a_tracker_with_another_experiment_sees_its_runs_and_makes_its_own_elsewhere(tracker):
    if tracker.uri == "memory":
        pytest.skip("there are no experiments in memory")
    here = tracker.create("run", {}, {})
    other = tracker.with_experiment("elsewhere")
    there = other.create("audit", {}, {})
    assert other.get(here).experiment != "elsewhere" == tracker.get(there).experiment
    assert tracker.get(tracker.create("another", {}, {})).experiment == tracker.get(here).experiment


def test_a_search_everywhere_knows_parameters_and_finds_what_was_deleted_or_lies_elsewhere(tracker):
    here = tracker.create("a", {"fa.setting": "s"}, {"cfg/epochs": "3", "cfg/seed": "1"})
    tracker.create("b", {"fa.setting": "s"}, {"cfg/epochs": "4"})
    both = {"cfg/epochs": "3"}, {"fa.setting": "s"}
    (found,) = tracker.search_everywhere(*both)
    assert (found.run_id, found.params["cfg/seed"], found.deleted) == (here, "1", False)
    assert len(list(tracker.search_everywhere({}, {"fa.setting": "s"}))) == 2
    if tracker.uri == "memory":
        return  # it has neither a bin nor experiments
    there = tracker.with_experiment("elsewhere").create("c", {"fa.setting": "s"}, {"cfg/epochs": "3"})
    MlflowClient(tracker.uri).delete_run(here)
    assert {run.run_id: run.deleted for run in tracker.search_everywhere(*both)} == {here: True, there: False}
    MlflowClient(tracker.uri).delete_experiment(tracker.with_experiment("elsewhere").experiment_id)
    assert {run.run_id for run in tracker.search_everywhere(*both)} == {here, there}
    assert [run.name for run in tracker.search({"fa.setting": "s"})] == ["b"]


def test_an_unknown_run_is_a_store_error(tracker):
    with pytest.raises(StoreError, match="no run 'nowhere'"):
        tracker.get("nowhere")


def test_an_artifact_that_is_not_there_is_none(tracker):
    assert tracker.artifact(tracker.create("run", {}, {}), "none.json") is None


def test_links_lead_to_the_runs_own_page_or_nowhere(tracker):
    run_id = tracker.create("run", {}, {})
    if tracker.uri == "memory":
        assert (
            tracker.link(run_id, "report/form.html")
            == tracker.publish_views([View("all")])
            == tracker.comparison([run_id])
            == ""
        )
        return
    experiment = tracker.experiment_id
    training = (
        "workflowType=machine_learning"  # in a fresh browser, MLflow shows its bar for language models without it
    )
    page = f"#/experiments/{experiment}/runs/{run_id}"
    assert tracker.link(run_id, "a b/x.html") == f"{page}/artifacts/a%20b/x.html?{training}"
    assert tracker.run_page(run_id) == f"{page}?{training}"
    other = tracker.with_experiment("elsewhere")
    runs = [other.create("other", {}, {}), run_id]
    page, wanted = unquote(tracker.comparison(runs)).split("?")
    *pairs, last = wanted.split("&")
    asked = {name: json.loads(value) for name, _, value in (pair.partition("=") for pair in pairs)}
    assert last == training and wanted.startswith("runs=")  # MLflow's page reads `?runs`
    assert page == "#/compare-runs" and asked == {"runs": runs, "experiments": [other.experiment_id, experiment]}


def test_a_view_is_kept_with_the_experiment_unless_a_person_made_another_of_it(tracker):
    tracker.create("run", {}, {})
    if tracker.uri == "memory":
        return
    experiment, client = tracker.experiment_id, MlflowClient(tracker.uri)
    first, second = View("all", {"groupBy": None}, charts=True), View("all", {"groupBy": 1}, charts=True)
    address = (
        f"#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey=all&compareRunsMode=CHART"
    )

    def stands() -> str:
        return client.get_experiment(experiment).tags["mlflow.sharedViewState.all"]

    assert tracker.publish_views([first]) == address and stands() == first.text
    assert (
        tracker.publish_views([second]) == address and stands() == second.text
    )  # the package's own text may be written again
    for theirs in ('{"groupBy": 2}', "deflate;bm90IHpsaWI="):
        client.set_experiment_tag(experiment, "mlflow.sharedViewState.all", theirs)
        assert tracker.publish_views([first]) == address and stands() == theirs


def test_the_experiments_note_links_the_newest_view_unless_a_person_wrote_one(tracker):
    tracker.create("run", {}, {})
    if tracker.uri == "memory":
        return
    experiment, client = tracker.experiment_id, MlflowClient(tracker.uri)

    def stands() -> str:
        return client.get_experiment(experiment).tags[schema.TAG_NOTE]

    for key in ("first", "second"):
        page = tracker.publish_views([View(key), View("another")])
        assert f"[{key}]({page}) · [another](" in stands()
    for theirs in (f"{stands()} And mine.", ""):
        client.set_experiment_tag(experiment, schema.TAG_NOTE, theirs)
        tracker.publish_views([View("third")])
        assert stands() == theirs


@pytest.mark.long
def test_a_deleted_experiment_takes_no_run_and_says_how_it_comes_back(tracker):
    run_id = tracker.create("run", {"fa.setting": "s"}, {})
    assert tracker.experiment_deleted_message() == ""
    if tracker.uri == "memory":
        return
    MlflowClient(tracker.uri).delete_experiment(tracker.experiment_id)
    later = MlflowTracker(tracker.uri)
    for act in (lambda: later.create("run", {}, {}), lambda: later.search({}, schema.EXPERIMENT)):
        with pytest.raises(
            StoreError, match=r"was deleted in MLflow\. To restore the experiment and its runs, run `(.+)`"
        ) as refused:
            act()
    command = re.search("`(.+)`", str(refused.value))[1]
    subprocess.run(command, shell=True, check=True, capture_output=True, env=os.environ | {"PATH": PATH})
    assert [run.run_id for run in later.search({"fa.setting": "s"})] == [run_id] and later.create("run", {}, {})


def test_a_store_that_takes_no_view_is_reported_and_nothing_else_is_lost(tracker, monkeypatch, caplog):
    tracker.create("run", {}, {})
    if tracker.uri == "memory":
        return

    def refuse(*_):
        raise MlflowException("Permission denied")

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    assert tracker.publish_views([View("all")]) == "" and "Permission denied" in caplog.text
    monkeypatch.setattr(mlflow_tracker.mlflow, "__version__", "4.0.1")
    assert tracker.publish_views([View("all")]) == "" and "MLflow 4.0.1" in caplog.text


def test_a_run_tells_its_params_and_every_point_of_the_metrics_asked_for(tracker):
    run_id = tracker.create("run", {}, {"cfg/seed": "1"})
    tracker.log(run_id, [Point("h_L", 2.0, 1), Point("h_L", 1.0, 0), Point("g_L", 3.0, 0), Point("mine", 4.0, 0)])
    assert tracker.get(run_id).params == tracker.search({})[0].params == {"cfg/seed": "1"}
    found = tracker.history(run_id, ["g_L", "h_L"])
    assert set(found) == {Point("h_L", 2.0, 1), Point("h_L", 1.0, 0), Point("g_L", 3.0, 0)} and len(found) == 3


def test_a_command_asks_for_the_experiments_once(tmp_path, empty_store, monkeypatch):
    store = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
    MlflowTracker(store).create("run", {}, {})
    genuine, asked = MlflowClient.search_experiments, []
    monkeypatch.setattr(
        MlflowClient, "search_experiments", lambda *given, **named: (asked.append(named), genuine(*given, **named))[1]
    )
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: 0.0))
    tracker = MlflowTracker(store)
    assert (
        tracker.search({})
        and tracker.with_experiment("fa_registry").search({}, "fa_registry")
        and tracker.create("run", {}, {})
    )
    assert tracker.get(tracker.search({})[0].run_id).experiment == "fa_registry" and len(asked) == 1
    MlflowTracker(store, "another").create("run", {}, {})
    assert {run.experiment for run in tracker.search({}, "another")} == {"another"}


def test_a_database_that_is_no_file_has_its_artifacts_where_the_caller_says(tmp_path, empty_store, monkeypatch, caplog):
    store = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
    monkeypatch.chdir((tmp_path / "work").mkdir() or tmp_path / "work")
    monkeypatch.setattr(mlflow_tracker, "sqlite_path", lambda uri: None)  # as that of postgresql://
    tracker = MlflowTracker(store)
    location = MlflowClient(store).get_experiment(tracker.experiment_id).artifact_location
    folder = tmp_path.joinpath("work", "mlartifacts", "fa_registry")
    assert location == folder.as_uri()
    assert f"in {folder}, which" in caplog.text


def test_tags_come_with_the_last_points_and_not_before_them(tmp_path, empty_store, monkeypatch):
    tracker, sent = MlflowTracker(f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"), []
    monkeypatch.setattr(
        tracker._client._client,
        "log_batch",
        lambda run, metrics, tags, params: sent.append((len(metrics), len(tags), len(params))),
    )
    tracker.log("a", [Point("h_L", 1.0, step) for step in range(2500)], {"fa.status": "complete"}, {"x": "y"})
    assert sent == [(998, 0, 1), (998, 0, 0), (504, 1, 0)]


def test_advice_names_the_store_even_if_the_default_store_is_not_supported(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "databricks")
    assert command_on("list runs", "sqlite:///s.db").endswith("--store sqlite:///s.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server")
    assert command_on("list runs", "http://server") == "fa-registry list runs"
