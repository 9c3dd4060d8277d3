"""promote against a real `mlflow server`: the version, its card and its tags on MLflow's own pages, and back by load_model."""

from __future__ import annotations

import os
import shutil

import pytest

import fa_registry
from fa_registry.tracking import models, schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import ModelRegistry
from fa_registry.training.checkpoint import load_tensors
from tests.builders import verdict_tag
from tests.end_to_end.browser import chromium
from tests.end_to_end.conftest import commands_in
from tests.end_to_end.server import mlflow_server

TRAIN = "train --method dfa --seed 7 --epochs 1 --set architecture.d_hidden=16,architecture.num_blocks=2 --device cpu"
REASON = "shown in a tutorial <i>on purpose</i>"


@pytest.fixture(scope="module")
def registered(tmp_path_factory, empty_store):
    """(address, run, version) of a run trained, audited and promoted through a server on a free loopback port, which keeps
    artifacts itself, so that nothing of a run lies where its client is."""
    folder = tmp_path_factory.mktemp("registered")
    shutil.copy(empty_store, folder / "mlflow.db")
    with mlflow_server(f"sqlite:///{folder / 'mlflow.db'}", folder / "kept") as server:
        yield _registered(server, commands_in(folder))


def _registered(server, command):
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
def test_the_version_shows_its_card_its_tags_and_its_alias(registered, tmp_path):
    server, run, version = registered
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1600})
        page.goto(f"{server}/#/models/tutorial/versions/1")
        page.get_by_text("Promoted despite INCOMPLETE").first.wait_for(timeout=60_000)
        page.get_by_text(version.tags[models.TAG_WEIGHTS]).first.wait_for(timeout=60_000)
        for shown in (f"by A. Nother: {REASON}", models.TAG_WEIGHTS, verdict_tag("2026-05"), run.name, "champion"):
            assert page.get_by_text(shown).count() >= 1, shown
        page.screenshot(path=os.environ.get("FA_REGISTRY_SCREENSHOT", str(tmp_path / "version.png")))
