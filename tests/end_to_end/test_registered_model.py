"""promote against a real `mlflow server`: the version, its card and its tags on MLflow's own pages, and back by load_model."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

import fa_registry
from fa_registry.tracking import models, schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import ModelRegistry
from fa_registry.training.checkpoint import load_tensors
from tests.end_to_end.browser import chromium
from tests.end_to_end.conftest import BIN

TRAIN = "train --method dfa --seed 7 --epochs 1 --set architecture.d_hidden=16,architecture.num_blocks=2 --device cpu"
REASON = "shown in a tutorial <i>on purpose</i>"
SECONDS = 90


@pytest.fixture
def server(workplace):
    """A server on a free loopback port that keeps artifacts itself, so that nothing of a run lies where its client is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store, kept = f"sqlite:///{workplace / 'mlflow.db'}", str(workplace / "kept")
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(
        [str(BIN / "mlflow"), "server", *where, "--backend-store-uri", store, "--artifacts-destination", kept],
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PATH": f"{BIN}:{os.environ['PATH']}"},
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
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"{address} did not answer")


@pytest.fixture
def registered(server, command):
    """(address, run, version) of a run trained, audited and promoted through the server."""

    def call(*arguments: str) -> None:
        done = command("fa-registry", *arguments, "--store", server)
        assert done.returncode == 0, done.stderr

    call(*TRAIN.split())
    (run,) = MlflowTracker(server).search({schema.TAG_KIND: "run"})
    call("audit", "--run", run.run_id, "--edition", "2026-05", "--exit-zero")
    call(
        "promote", run.run_id, "--name", "tutorial", "--alias", "champion", "--despite", REASON, "--author", "A. Nother"
    )
    return server, run, ModelRegistry(server).find("models:/tutorial@champion")


def test_a_server_takes_the_version_and_gives_it_back(registered):
    server, run, version = registered
    assert version.source.startswith("mlflow-artifacts:/") and version.run_id == run.run_id
    loaded = fa_registry.load_model("models:/tutorial@champion", server)
    trained = load_tensors(MlflowTracker(server).artifact(run.run_id, schema.FINAL))
    assert all(value.equal(trained[name]) for name, value in loaded.network.state_dict().items())
    assert loaded.card.despite.reason == REASON


@pytest.mark.browser
def test_the_version_shows_its_card_its_tags_and_its_alias(registered, workplace):
    server, run, version = registered
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1600})
        page.goto(f"{server}/#/models/tutorial/versions/1")
        page.get_by_text("Promoted despite INCOMPLETE").first.wait_for(timeout=60_000)
        page.get_by_text(version.tags[models.TAG_WEIGHTS]).first.wait_for(timeout=60_000)
        for shown in (f"by A. Nother: {REASON}", models.TAG_WEIGHTS, "fa.verdict.2026-05", run.name, "champion"):
            assert page.get_by_text(shown).count() >= 1, shown
        page.screenshot(path=os.environ.get("FA_REGISTRY_SCREENSHOT", str(Path(workplace) / "version.png")))
