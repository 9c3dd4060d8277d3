"""MLflow's own pages over an audited study, in a real browser: table, chart, comparison, note and form.

FA_REGISTRY_SCREENSHOTS=docs/images pytest tests/end_to_end/test_mlflow_ui.py  also takes the pictures of the README.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.end_to_end.browser import chromium
from tests.end_to_end.conftest import commands_in
from tests.end_to_end.server import mlflow_server

pytestmark = pytest.mark.browser
PATIENCE = 60_000  # ms; a page of MLflow takes seconds on a busy machine
QUIET = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"  # MLflow's chat stays closed
PLOTS = "[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data[0])"
STUDY = """
name = "seen"
title = "Does credit by direct feedback train the blocks?"
edition = "2026-05"
cost = "a few seconds"

[recipe]
epochs = 6

[[grid]]
methods = ["bp", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2]
architecture_options = { d_hidden = 32, num_blocks = 3 }
"""


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


@pytest.fixture(scope="module")
def audited(tmp_path_factory, empty_store) -> Path:
    """A folder whose store holds the study, trained and audited."""
    folder = tmp_path_factory.mktemp("seen")
    shutil.copy(empty_store, folder / "mlflow.db")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    command = commands_in(folder)
    ended = command("fa-registry", "study", "study.toml", "--jobs", "1", "--device", "cpu")
    assert ended.returncode == 0, ended.stderr
    ended = command("fa-registry", "audit", "--study", "study.toml", "--trust-logged")
    assert ended.returncode in (0, 1), ended.stderr  # 1: a method failed the audit
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
def page(browser):
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_init_script(QUIET)
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    yield context.new_page()
    context.close()


def picture(page: Page, name: str) -> None:
    """docs/images/ui-<name>.png, with a palette: a tenth of the bytes."""
    folder = os.environ.get("FA_REGISTRY_SCREENSHOTS")
    if folder:
        path = Path(folder) / f"ui-{name}.png"
        page.screenshot(path=path, animations="disabled")
        Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def logged(site: Site, run_id: str, key: str) -> list[float]:
    return [point.value for point in site.tracker._client.get_metric_history(run_id, key)]


def test_the_table_shows_verdicts_and_columns_with_the_runs_under_their_study(site, page):
    page.goto(f"{site.experiment}/runs/{site.only('audit').run_id}")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The table of runs").click()
    table = opened.value
    study = table.get_by_role("row").filter(has_text="study seen")
    study.first.wait_for()
    run = site.run("dfa")
    assert table.get_by_text(run.name).count() == 0  # folded
    study.get_by_role("button").first.click()
    table.get_by_text(run.name).first.wait_for()
    row = table.get_by_role("row").filter(has_text=run.name).first.get_attribute("row-id")
    cells = table.locator(f'[row-id="{row}"] [role="gridcell"]')
    shown = dict(cells.evaluate_all("cells => cells.map(cell => [cell.getAttribute('col-id'), cell.textContent])"))
    assert shown["tags.`fa.verdict`"] == run.tags[schema.TAG_VERDICT]
    for key in ("accuracy/test", "growth_max", "gamma_deep_mean", schema.MARGIN):
        (value,) = (shown[column] for column in shown if key in column)
        assert float(value) == pytest.approx(logged(site, run.run_id, key)[-1], rel=1e-2)
    picture(table, "table")


def test_the_chart_of_h_norm_by_epoch_has_the_logged_values(site, page):
    run = site.run("dfa")
    page.goto(f"{site.experiment}/runs/{run.run_id}/model-metrics")
    page.get_by_placeholder("Search metric charts").fill("h_norm")
    expected = logged(site, run.run_id, "h_norm/site_01")
    assert len(expected) == 7
    same = "JSON.stringify(trace?.y) === JSON.stringify(expected)"
    page.wait_for_function(f"expected => {PLOTS}.some(trace => {same})", arg=expected)
    traces = page.evaluate(PLOTS)
    (drawn,) = (trace for trace in traces if trace["y"] == expected)
    assert drawn["x"] == list(range(7)) and "h_norm" in drawn["metricKey"]
    points = page.locator(".js-plotly-plot .scatterlayer .point")
    expect(points.nth(6)).to_be_attached()
    # charts are grouped by quantity, one a site
    expect(page.locator("body")).to_contain_text(re.compile(r"h_norm\s*\(4\)"))
    for place in range(4):
        expect(page.get_by_text(f"site_0{place}", exact=True).first).to_be_visible()
    picture(page, "h_norm")


def test_two_methods_are_compared_in_parallel_coordinates(site, page):
    runs = [site.run("bp"), site.run("dfa")]
    ids = json.dumps([run.run_id for run in runs])
    experiments = json.dumps([site.tracker.experiment_id])
    page.goto(f"{site.address}/#/compare-runs?runs={ids}&experiments={experiments}")
    page.get_by_text("Parallel Coordinates Plot").first.wait_for()
    page.wait_for_function(f"() => {PLOTS}.some(trace => trace && trace.type === 'parcoords')")
    (plot,) = page.evaluate(PLOTS)
    axes = {axis["label"]: axis for axis in plot["dimensions"]}
    assert set(axes["cfg/method"]["ticktext"]) == {"bp", "dfa"}
    (metric,) = (label for label in axes if not label.startswith("cfg/"))
    assert sorted(axes[metric]["values"]) == sorted(logged(site, run.run_id, metric)[-1] for run in runs)
    drawn = page.locator(".js-plotly-plot svg text").evaluate_all("texts => texts.map(text => text.textContent)")
    assert {"bp", "dfa", metric} <= set(drawn)
    for run in runs:
        assert page.get_by_text(run.name).count() >= 1
    picture(page, "compare")


def test_the_note_says_the_verdict_and_its_link_opens_the_form(site, page):
    run = site.run("dfa")
    page.goto(f"{site.experiment}/runs/{run.run_id}")
    link = page.get_by_role("link", name="The reporting form")
    link.wait_for()
    assert page.get_by_role("strong").filter(has_text=run.tags[schema.TAG_VERDICT]).count() >= 1
    expect(page.get_by_text("digits (").first).to_be_visible()  # the data set with its digest
    with page.expect_popup() as opened:
        link.click()  # fails where MLflow has folded the line away
    form = opened.value.frame_locator("iframe")
    expect(form.get_by_role("heading", level=1)).to_have_text("dfa")
    expect(form.get_by_text("What may be claimed").first).to_be_visible()
    assert form.locator("a:not([href^='#']):not([href^='http'])").count() == 0
    # where the store lies on this machine is nobody's business
    opened.value.get_by_text("Path: file").first.evaluate("node => { node.style.visibility = 'hidden' }")
    picture(opened.value, "form")


def test_the_studys_note_leads_to_the_whole_audit_in_the_viewer(site, page):
    page.goto(f"{site.experiment}/runs/{site.only('study').run_id}")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="The whole audit").click()
    index = opened.value.frame_locator("iframe")
    expect(index.get_by_role("heading", level=1)).to_contain_text("Audit of study seen")
    expect(page.get_by_text("Does credit by direct feedback train the blocks?").first).to_be_attached()
