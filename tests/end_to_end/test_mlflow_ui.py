"""MLflow's own pages over a trained study, in a real browser: the run table, the chart of h_norm, the compare page."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request

import pytest
from playwright.sync_api import sync_playwright

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.end_to_end.conftest import BIN, needed

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def server(command, workplace):
    """`make ui`'s server on a free loopback port, over the tiny study; yields its address."""
    assert command("fa-registry", "study", "tiny", "--jobs", "1", "--device", "cpu").returncode == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            str(BIN / "mlflow"),
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--workers",
            "1",
            "--backend-store-uri",
            command.environment["MLFLOW_TRACKING_URI"],
            "--artifacts-destination",
            str(workplace / "mlartifacts"),
        ],
        env={**command.environment, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, 15)
        process.wait(timeout=30)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"{address} did not answer")


@pytest.mark.browser
def test_runs_are_listed_charted_and_compared(server, workplace):
    browser_path = needed("chromium")
    tracker = MlflowTracker(f"sqlite:///{workplace / 'mlflow.db'}")
    runs = {run.tags["fa.method"]: run for run in tracker.search({schema.TAG_KIND: "run"})}
    experiment = tracker.experiment_id
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{server}/#/experiments/{experiment}/runs")
        page.get_by_text("study tiny").first.wait_for(timeout=60_000)  # its runs are folded under it
        page.goto(f"{server}/#/experiments/{experiment}/runs/{runs['dfa'].run_id}/model-metrics")
        page.get_by_text("h_norm").first.wait_for(timeout=60_000)
        pair = f'["{runs["bp"].run_id}","{runs["dfa"].run_id}"]'
        page.goto(f'{server}/#/compare-runs?runs={pair}&experiments=["{experiment}"]')
        page.get_by_text("Parallel Coordinates Plot").first.wait_for(timeout=60_000)
        page.get_by_text("cfg/method").first.wait_for(timeout=60_000)
        page.screenshot(path=os.environ.get("FA_REGISTRY_SCREENSHOT", str(workplace / "compare.png")))
        assert page.get_by_text("bp · resmlp-16x2 · digits · s1").count() >= 1
        assert page.get_by_text("dfa · resmlp-16x2 · digits · s1").count() >= 1
        browser.close()
