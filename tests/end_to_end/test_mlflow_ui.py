"""MLflow's own pages over an audited study, in a real browser: table, chart, comparison, note, form and models; and `promote`
through the same server, which keeps the artifacts itself: the version on those pages, and back by load_model.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

import fa_registry
from fa_registry.metrics import label_of
from fa_registry.tracking import schema
from fa_registry.tracking.base import Point
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.mlflow_views import LOADED
from fa_registry.tracking.models import ModelRegistry
from fa_registry.tracking.stores import UI, mlflow_page
from fa_registry.training.checkpoint import load_tensors
from tests.builders import verdict_tag
from tests.commands.conftest import call
from tests.end_to_end.browser import chromium, close_assistant
from tests.end_to_end.server import mlflow_server
from tests.helpers.stores import model_entries, working_in

pytestmark = pytest.mark.long  # of a minute and a half MLflow's server and its pages in chromium take the most
PATIENCE = 60_000  # ms; a page of MLflow takes seconds on a busy machine
PLOTS = "[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data[0])"
EPOCHS = 6
STUDY = f"""
name = "digits-short"
title = "Does credit by direct feedback train the blocks?"
edition = "2026-12"
cost = "a few seconds"

[recipe]
epochs = {EPOCHS}

[[grid]]
methods = ["bp", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2]
architecture_options = {{ d_hidden = 32, num_blocks = 3 }}
"""


TRAIN = (
    "train --experiment registered --method dfa --seed 7 --epochs 1"
    " --set architecture.d_hidden=16,architecture.num_blocks=2 --device cpu"
)
BY_HAND = TRAIN.replace("--experiment registered", "").replace("d_hidden=16", "d_hidden=8")  # of another setting
REASON = "shown in a tutorial <i>on purpose</i>"


@dataclasses.dataclass(frozen=True)
class Site:
    """A served store. address: of its pages; runs: by method and seed."""

    address: str
    tracker: MlflowTracker

    @property
    def experiment(self) -> str:
        return f"{self.address}/#/experiments/{self.tracker.experiment_id}"

    def run(self, method: str, seed: int = 1):
        (found,) = (run for run in self.tracker.search({"fa.method": method}) if run.name.endswith(f" s{seed}"))
        return found

    def only(self, kind: str):
        (found,) = self.tracker.search({schema.TAG_KIND: kind})
        return found


def done(*arguments: str) -> str:
    """What the command printed, which must have gone well."""
    ended = call(*arguments)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.fixture(scope="module")
def audited(tmp_path_factory, empty_store) -> Path:
    """A folder whose store holds the study, trained and audited."""
    folder = tmp_path_factory.mktemp("seen")
    shutil.copy(empty_store, folder / "mlflow.db")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    with working_in(folder):
        printed = done("study", "study.toml", "--jobs", "1", "--device", "cpu")
        Path("printed.txt").write_text(printed, encoding="utf-8")
        done("audit", "--study", "study.toml", "--trust-logged", "--exit-zero")
        Path("by_hand.txt").write_text(done(*BY_HAND.split()), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def site(audited):
    """`make ui`'s server on a free loopback port."""
    store = f"sqlite:///{audited / 'mlflow.db'}"
    with mlflow_server(store, audited / "mlartifacts") as address:
        yield Site(address, MlflowTracker(store))


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser, site):
    """A fresh browser profile, after the user has closed the panel *MLflow Assistant* as `fa-registry ui` says."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    page = context.new_page()
    close_assistant(page, site.address)
    yield page
    context.close()


def logged(site: Site, run_id: str, key: str) -> list[float]:
    return [point.value for point in site.tracker.history(run_id, [key])]


AXES = "[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.layout.yaxis.type)"
TITLES = tuple(map(label_of, ("accuracy", "growth_max", "h_L", "g_norm_mean_ce_L", "gamma_deep_mean")))


@pytest.mark.browser
def test_the_printed_link_opens_the_methods_side_by_side(site, page, audited):
    """Legible on a small screen without a further click: the methods, five headline charts, decades on log axes."""
    (printed,) = re.findall(r"side by side: http://127\.0\.0\.1:5000(\S+)", (audited / "printed.txt").read_text())
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(site.address + printed)
    page.wait_for_function(f"() => {AXES}.length >= 5")
    for method in ("bp", "dfa", "frozen"):
        expect(page.get_by_text(f"Group: {method}", exact=True)).to_be_in_viewport()
        expect(page.get_by_text(f"{method} (growth_max)", exact=True).first).to_be_attached()  # the legend
    assert page.get_by_text("study digits-short").count() == page.get_by_text("Additional runs").count() == 0
    sections = r"Headline\s*\(5\).*By site: first, middle and last\s*\(9\)"
    expect(page.locator("body")).to_contain_text(re.compile(sections, re.DOTALL))
    for title in TITLES:
        expect(page.get_by_text(title, exact=True).first).to_be_in_viewport()
    assert page.evaluate(AXES)[:5] == ["linear", "log", "log", "log", "linear"]
    shown = page.locator(".js-plotly-plot").evaluate_all("plots => plots.map(plot => plot.getBoundingClientRect().top)")
    assert all(0 < top < 800 for top in shown[:5])


@pytest.mark.browser
def test_of_more_runs_than_mlflow_loads_at_once_every_method_is_a_group(site, page):
    tracker = site.tracker.with_experiment("many")
    for method in ("a1", "b2", "c3"):  # one after another, as a study trains them
        for seed in range(LOADED // 3 + 2):
            tags = {schema.TAG_KIND: "run", schema.TAG_STUDY: "many", schema.TAG_METHOD: method}
            run_id = tracker.create(f"{method} s{seed}", tags, {f"{schema.PARAM}seed": str(seed)})
            tracker.log(run_id, [Point("growth_max", 2.0, 1)])
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{site.address}/{mlflow_page(tracker, 'many')}")
    for method in ("a1", "b2", "c3"):
        expect(page.get_by_text(f"Group: {method}", exact=True)).to_be_in_viewport()
    expect(page.get_by_text("Load more")).to_be_visible()


@pytest.mark.browser
def test_the_table_shows_verdicts_first_and_numbers_that_fit(site, page):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{site.experiment}/runs?workflowType=machine_learning&viewStateShareKey=digits-short-table")
    run = site.run("dfa")
    page.get_by_text(run.name).first.wait_for()  # no study folds it away
    row = page.get_by_role("row").filter(has_text=run.name).first.get_attribute("row-id")
    cells = page.locator(f'[row-id="{row}"] [role="gridcell"]')
    shown = dict(cells.evaluate_all("cells => cells.map(cell => [cell.getAttribute('col-id'), cell.textContent])"))
    assert shown["tags.`fa.verdict`"] == run.tags[schema.TAG_VERDICT]
    for key in (*(schema.SCALAR_METRICS[name] for name in ("accuracy", "growth_max", "gamma_deep_mean")), "margin_pp"):
        (text,) = (shown[column] for column in shown if key in column)
        assert float(text) == logged(site, run.run_id, key)[-1] and len(text) <= len("-0.00001234")


@pytest.mark.browser
def test_the_chart_of_h_norm_by_epoch_has_the_logged_values(site, page):
    run = site.run("dfa")
    page.goto(f"{site.experiment}/runs/{run.run_id}/model-metrics")
    page.get_by_placeholder("Search metric charts").fill("h_norm")
    expected = logged(site, run.run_id, "h_norm/site_01")
    assert len(expected) == EPOCHS + 1
    same = "JSON.stringify(trace?.y) === JSON.stringify(expected)"
    page.wait_for_function(f"expected => {PLOTS}.some(trace => {same})", arg=expected)
    traces = page.evaluate(PLOTS)
    (drawn,) = (trace for trace in traces if trace["y"] == expected)
    assert drawn["x"] == list(range(EPOCHS + 1)) and "h_norm" in drawn["metricKey"]
    points = page.locator(".js-plotly-plot .scatterlayer .point")
    expect(points.nth(6)).to_be_attached()
    # charts are grouped by metric, one per site
    expect(page.locator("body")).to_contain_text(re.compile(r"h_norm\s*\(4\)"))
    for place in range(4):
        expect(page.get_by_text(f"site_0{place}", exact=True).first).to_be_visible()


@pytest.mark.browser
def test_two_methods_compared_open_on_what_differs_and_have_their_short_forms_side_by_side(site, page, audited):
    """By the address that `compare` prints. MLflow sorts both tables by name, and leaves a narrow window no list of files."""
    runs = [site.run("dfa"), site.run("bp")]
    page.set_viewport_size({"width": 1920, "height": 1080})
    with working_in(audited):
        printed = done("compare", "dfa", "bp", "--study", "study.toml", "--device", "cpu")
    (address,) = re.findall(rf"side by side: {UI}(/#/compare-runs\S+)", printed)
    page.goto(site.address + address)
    page.wait_for_function(f"() => {PLOTS}.some(trace => trace && trace.type === 'parcoords')")
    (plot,) = page.evaluate(PLOTS)
    axes = {axis["label"]: axis for axis in plot["dimensions"]}
    assert set(axes) == {"cfg/method", "accuracy/test"}  # the one that differs, and what was logged first
    assert set(axes["cfg/method"]["ticktext"]) == {"bp", "dfa"}
    assert axes["accuracy/test"]["values"] == [logged(site, run.run_id, "accuracy/test")[-1] for run in runs]
    for run in runs:
        assert page.get_by_text(run.name).count() >= 1
    expect(page.get_by_text("Prompts", exact=True)).to_have_count(0)  # of MLflow's bar for language models
    page.get_by_label("Parameters - Show diff only").click()
    expect(page.locator("tr.diff-row").filter(has_text="cfg/")).to_have_text(["cfg/methoddfabp"])
    page.get_by_text(schema.SHORT_FORM, exact=True).click()
    tables = page.get_by_role("table").filter(has_text=label_of("growth_max"))
    expect(tables).to_have_count(2)
    left, right = (tables.nth(place).bounding_box() for place in range(2))
    assert left["x"] + left["width"] <= right["x"] and abs(left["y"] - right["y"]) < 50  # pixels: a line more above one
    for run in runs:
        assert page.get_by_role("strong").filter(has_text=run.tags[schema.TAG_VERDICT]).count() >= 1


@pytest.mark.browser
def test_the_note_says_the_verdict_and_its_link_opens_the_form(site, page):
    run = site.run("dfa")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{site.address}/{site.tracker.run_page(run.run_id)}")
    link = page.get_by_role("link", name="The reporting form")
    link.wait_for()
    note, metrics = (
        page.get_by_text(text).first.bounding_box() for text in (run.tags[schema.TAG_VERDICT], "Metrics (")
    )
    assert note["y"] < metrics["y"] < 800  # the note is what the page begins with
    assert page.get_by_role("strong").filter(has_text=run.tags[schema.TAG_VERDICT]).count() >= 1
    expect(page.get_by_text("digits (").first).to_be_visible()  # the data set with its digest
    with page.expect_popup() as opened:
        link.click()  # fails where MLflow has folded the line away
    form = opened.value.frame_locator("iframe")
    heading = form.get_by_role("heading", level=1)
    expect(heading).to_contain_text("dfa")
    expect(heading).to_contain_text(run.tags[schema.TAG_VERDICT])
    expect(form.get_by_text("What may be claimed").first).to_be_visible()
    assert form.locator("a:not([href^='#']):not([href^='http'])").count() == 0
    expect(opened.value.get_by_text("Prompts", exact=True)).to_have_count(0)


@pytest.mark.browser
def test_a_run_that_was_trained_by_hand_begins_with_its_missing_audit_and_leads_to_the_study(site, page, audited):
    printed = (audited / "by_hand.txt").read_text()
    (study,) = re.findall(rf"side by side: {UI}/(\S+)", printed)
    assert study == mlflow_page(site.tracker, "digits-short")
    (own,) = re.findall(rf"run page: {UI}/(\S+)", printed)
    page.goto(f"{site.address}/{own}")
    note, metrics = page.get_by_text("Not audited"), page.get_by_text("Metrics (").first
    note.wait_for()
    assert note.bounding_box()["y"] < metrics.bounding_box()["y"]


@pytest.mark.browser
def test_the_tab_of_models_has_the_final_weights_with_their_metrics_and_leads_to_the_file(site, page):
    run = site.run("dfa")
    (model,) = (model for model in model_entries(site.tracker) if model.source_run_id == run.run_id)
    page.set_viewport_size({"width": 1920, "height": 620})
    page.goto(f"{site.experiment}/models?workflowType=machine_learning")
    row = page.get_by_role("row").filter(has_text=model.name)
    row.first.wait_for()
    expect(page.get_by_text("growth_max", exact=True)).to_be_visible()
    place = row.first.get_attribute("row-index")
    texts = page.locator(f'[row-index="{place}"] [role="gridcell"]').all_text_contents()
    assert {"Ready", run.name, str(run.metrics["growth_max"])} <= {text.strip() for text in texts}
    page.goto(f"{site.experiment}/models/{model.model_id}?workflowType=machine_learning")
    with page.expect_popup() as opened:
        page.get_by_role("link", name=schema.FINAL).click()
    assert opened.value.url.endswith(site.tracker.link(run.run_id, schema.FINAL))


@pytest.fixture(scope="module")
def registered(site, tmp_path_factory):
    """(run, version): trained, audited and promoted through the server, so that nothing of the run is where its client is."""
    store = ("--store", site.address)
    named = ("--name", "tutorial", "--override-reason", REASON, "--author", "A. Nother")
    with working_in(tmp_path_factory.mktemp("client")):
        done(*TRAIN.split(), *store)
        found = MlflowTracker(site.address).search({schema.TAG_KIND: "run"})
        (run,) = (run for run in found if run.experiment == "registered")
        done("audit", "--run", run.run_id, "--edition", "2026-05", "--exit-zero", *store)
        done("promote", run.run_id, *named, *store)
    return run, ModelRegistry(site.address).find("models:/tutorial@incomplete")


def test_a_server_takes_the_version_and_gives_it_back(site, registered):
    run, version = registered
    assert version.source.startswith("mlflow-artifacts:/") and version.run_id == run.run_id
    loaded = fa_registry.load_model("models:/tutorial@incomplete", site.address)
    trained = load_tensors(MlflowTracker(site.address).artifact(run.run_id, schema.FINAL))
    assert all(value.equal(trained[name]) for name, value in loaded.network.state_dict().items())
    assert loaded.tags[schema.TAG_DESPITE] == REASON


@pytest.mark.browser
def test_the_version_shows_its_tags_and_its_alias(site, registered, page):
    run, version = registered
    page.goto(f"{site.address}/#/models/tutorial/versions/1")
    page.get_by_text(version.tags[schema.TAG_WEIGHTS]).first.wait_for()
    for shown in (REASON, "A. Nother", schema.TAG_WEIGHTS, verdict_tag("2026-05"), run.name, "incomplete"):
        assert page.get_by_text(shown).count() >= 1, shown
