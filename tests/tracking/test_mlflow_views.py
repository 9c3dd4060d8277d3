"""Shared views of MLflow's pages: which runs and which figures they show. Whether the pages read them is a browser's test."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace

import pytest

from fa_registry.metrics import DECLARED
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.mlflow_views import View, is_our_note, is_ours, note_of, views_of
from fa_registry.tracking.schema import SCALAR_METRICS, TAG_VIEW

SITES = {f"{name}/site_0{site}": 1.0 for name in ("h_norm", "g_norm") for site in range(2)}
GAMMA = SCALAR_METRICS["gamma_deep_mean"]
SCALARS = {"accuracy/test": 0.5, "growth_max": 2.0, "h_L": 3.0, "g_L": 1e-3}


def run(method: str, setting: str = "small", metrics=SCALARS | SITES, started: int = 0, **tags: str) -> StoredRun:
    named = {"fa.kind": "run", "fa.study": "digits", "fa.method": method, "fa.setting": setting}
    return StoredRun(method, method, "fa_registry", "FINISHED", started, named | tags, metrics)


def drawn(view: View) -> dict[str, tuple[str, str]]:
    """Section and metric of every chart → its title and its axis."""
    return {
        f"{chart['metricSectionId']}: {chart['metricKey']}": (chart["displayName"], chart["scaleType"])
        for chart in view.state["compareRunCharts"]
    }


def test_the_charts_are_the_headlines_and_single_sites_with_titles_and_decades_on_a_log_axis():
    charts, _ = views_of("digits", [run("bp"), run("dfa", metrics=SCALARS | SITES | {GAMMA: 0.1})])
    assert drawn(charts) == {
        "headline: accuracy/test": ("test accuracy", "linear"),
        "headline: growth_max": ("largest growth", "log"),
        "headline: h_L": ("‖h_L‖₂", "log"),
        "headline: g_L": (DECLARED["g_norm_mean_ce_L"].label, "log"),
        f"headline: {GAMMA}": ("Γ, gamma_deep_mean", "linear"),
        "sites: h_norm/site_00": ("‖h_l‖₂ at site 0", "log"),
        "sites: h_norm/site_01": ("‖h_l‖₂ at site 1", "log"),
        "sites: g_norm/site_00": ("‖g_l‖₂ at site 0", "log"),
        "sites: g_norm/site_01": ("‖g_l‖₂ at site 1", "log"),
    }


def test_what_no_run_has_gets_no_chart_and_no_column():
    charts, table = views_of("digits", [run("bp", metrics={"accuracy/test": 0.5})])
    assert list(drawn(charts)) == ["headline: accuracy/test"]
    assert table.state["selectedColumns"] == ["tags.`fa.verdict`", "tags.`fa.proof`", "metrics.`accuracy/test`"]


def test_of_many_sites_the_first_the_middle_and_the_last_have_a_chart():
    charts, _ = views_of("digits", [run("dfa", metrics={f"gamma/site_{site:02}": 0.1 for site in range(17)})])
    assert list(drawn(charts)) == ["sites: gamma/site_00", "sites: gamma/site_08", "sites: gamma/site_16"]


@pytest.mark.parametrize("first", ["whole", "bare"])
def test_the_view_of_all_settings_shows_what_the_runs_of_any_have(first, monkeypatch):
    monkeypatch.setattr("fa_registry.tracking.mlflow_views.LOADED", 1)
    whole = run("dfa", "whole", started=int(first == "bare"), **{"fa.first_fire.D1": "3"})
    bare = run("bp", "bare", {"accuracy/test": 0.5}, started=int(first == "whole"))
    *_, charts, table = views_of("digits", [whole, bare])
    assert "headline: g_L" in drawn(charts) and len(charts.state["groupsExpanded"]) == 2
    assert table.state["selectedColumns"][-1] == "tags.`fa.first_fire.D1`"
    assert charts.state["orderByKey"] == "params.`cfg/seed`"  # two runs are more than one


def test_the_table_begins_with_the_verdict_and_ends_with_the_first_fires():
    _, table = views_of("digits", [run("dfa", **{"fa.first_fire.D1": "3"})])
    columns = table.state["selectedColumns"]
    assert columns[0] == "tags.`fa.verdict`" and columns[-1] == "tags.`fa.first_fire.D1`"
    assert table.state["columnOrder"][1:] == columns


def test_only_runs_of_the_study_are_asked_for_and_grouped_by_method():
    charts, table = views_of("digits", [run("bp")])
    for view in (charts, table):
        assert view.state["searchFilter"] == "tags.`fa.kind` = 'run' and tags.`fa.study` = 'digits'"
    assert charts.state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "fa.method"}]
    assert charts.state["groupsExpanded"] == {"tag.fa.method.bp": False}


def test_several_settings_have_views_of_their_own_first_and_never_one_mean():
    runs = [run("bp", "deep · wide", started=2), run("dfa", started=1), run("bp", started=0)]
    views = views_of("digits", runs)
    assert [view.key for view in views] == [
        "digits-small",
        "digits-small-table",
        "digits-deep-wide",
        "digits-deep-wide-table",
        "digits",
        "digits-table",
    ]
    assert set(views[0].state["groupsExpanded"]) == {"tag.fa.method.bp", "tag.fa.method.dfa"}
    assert views_of("digits", runs, first_run_ids={"bp"})[0].key == "digits-small"
    deep = [replace(one, run_id="trained now") if "deep" in one.tags["fa.setting"] else one for one in runs]
    assert views_of("digits", deep, first_run_ids={"trained now"})[0].key == "digits-deep-wide"
    *_, whole, _ = views_of("", runs)
    assert whole.state["searchFilter"] == "tags.`fa.kind` = 'run'"
    for view in (whole, views[4]):
        assert set(view.state["groupsExpanded"]) == {
            "tag.fa.method.bp,tag.fa.setting.small",
            "tag.fa.method.dfa,tag.fa.setting.small",
            "tag.fa.method.bp,tag.fa.setting.deep · wide",
        }


def test_a_view_that_is_opened_names_its_groups_by_method_alone():
    """MLflow puts the names of the tags first if there are several. Runs of no study have views of the first setting only."""
    runs = [run("bp", "deep", started=2), run("dfa", started=1), run("bp", "wide", started=0)]
    for study in ("", "digits"):
        opened = views_of(study, runs, first_run_ids={"dfa"})[0]
        assert [key["groupByData"] for key in opened.state["groupBy"]["groupByKeys"]] == ["fa.method"]
    assert [view.key for view in views_of("", runs)] == ["runs-wide", "runs-wide-table", "runs", "runs-table"]
    assert [view.key for view in views_of("", runs[1:2])] == ["runs", "runs-table"]


def test_the_tag_of_a_view_is_short_enough_for_mlflow_and_keeps_long_settings_apart():
    """MLflow refuses a tag whose name has more than 250 characters, and then the study has no view at all."""
    long = " · ".join(f"field_{number}=0.000287604813302375" for number in range(12))
    views = views_of("digits", [run("bp", f"{long} · a", started=1), run("bp", f"{long} · b")])
    keys = [TAG_VIEW + view.key for view in views]
    assert len(set(keys)) == len(keys) == 6 and max(map(len, keys)) <= 250


@pytest.mark.parametrize(("count", "key"), [(100, "attributes.start_time"), (101, "params.`cfg/seed`")])
def test_of_more_runs_than_are_loaded_at_once_all_methods_come_first(count, key):
    """MLflow makes groups of the runs that it has loaded: by time those were the first methods alone."""
    charts, _ = views_of("digits", [run(f"m{place}") for place in range(count)])
    assert charts.state["orderByKey"] == key


def test_a_view_is_distinguished_from_what_a_person_made_of_it():
    view = View("all", {"groupBy": None})
    state = json.loads(zlib.decompress(base64.b64decode(view.text.removeprefix("deflate;"))))
    assert is_ours(view.text) and is_ours(json.dumps(state))
    assert not is_ours(json.dumps(state | {"groupBy": 1}))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "deflate;", "deflate;%", "deflate;bm90IHpsaWI=", '{"fa_registry": 1}']
)
def test_damaged_views_are_nobodys_of_ours(text):
    assert not is_ours(text)


def test_an_experiments_note_is_distinguished_from_one_with_a_persons_text():
    note = note_of({"digits": "#/experiments/1/runs?viewStateShareKey=digits", "table": "#/2"})
    assert is_our_note(note) and "[digits](#/experiments/1/runs?viewStateShareKey=digits) · [table](#/2)" in note
    for theirs in (
        "",
        "Ours",
        f"{note}\nSee the wiki.",
        f"My notes. {note}",
        note.replace("newest", "last"),
        note.replace(" ·", " and mine ·"),
    ):
        assert not is_our_note(theirs)
