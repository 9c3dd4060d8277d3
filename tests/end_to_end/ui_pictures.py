"""The pictures of docs/mlflow-ui.md: MLflow's pages over the study `digits`, as a fresh browser shows them.

In a folder where `fa-registry run digits` has ended:
PYTHONPATH=CHECKOUT python -m tests.end_to_end.ui_pictures CHECKOUT/docs/images
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from fa_registry.inspection.ui import served_pages
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.stores import mlflow_page
from tests.end_to_end.browser import chromium, close_assistant

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE = 300_000  # ms
STUDY, METHODS = "digits", ("dfa", "bp")
PLOTS = "[...document.querySelectorAll('.js-plotly-plot')].filter(plot => plot.data?.length)"
DRAWN = f"count => document.body.innerText.includes('dfa') && {PLOTS}.length >= count"
Shot = tuple[str, str, int, int]  # name, address, width in pixels, number of charts


def pages(tracker: MlflowTracker) -> Iterator[Shot]:
    """The five pictures: name, page, width in pixels, and how many charts the page must have drawn."""
    charts = mlflow_page(tracker, STUDY)
    dfa, bp = (
        tracker.search({schema.TAG_KIND: "run", schema.TAG_STUDY: STUDY, schema.TAG_METHOD: name})[0].run_id
        for name in METHODS
    )
    yield "charts", charts, 1280, 5
    yield "table", charts.replace(f"={STUDY}&compareRunsMode=CHART", f"={STUDY}-table"), 1280, 0
    yield "run", tracker.run_page(dfa), 1280, 0
    yield "compare", tracker.comparison([dfa, bp]), 1280, 1
    yield "models", charts.partition("/runs?")[0] + "/models?workflowType=machine_learning", 1920, 0


def take(page: Page, address: str, shot: Shot, folder: Path) -> None:
    """Saved with a palette, which takes a tenth of the bytes."""
    name, place, width, charts = shot
    page.set_viewport_size({"width": width, "height": 800})
    page.goto("about:blank")
    page.goto(f"{address}/{place}")
    page.wait_for_function(DRAWN, arg=charts)
    page.wait_for_timeout(5000)  # until fonts and columns have their places
    path = folder / f"ui-{name}.png"
    page.screenshot(path=path, animations="disabled")
    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def main(folder: Path) -> None:
    """Take all pictures into `folder`."""
    tracker = MlflowTracker(make=False)
    with served_pages("") as (opened, _), chromium() as browser:
        page, address = browser.new_page(), opened.partition("/#")[0]
        page.set_default_timeout(PATIENCE)
        close_assistant(page, address)
        for shot in pages(tracker):
            take(page, address, shot, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
