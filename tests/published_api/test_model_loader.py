"""load_model: from a folder without MLflow, from the registry with it, and into the two entry points that judge a network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

import fa_registry
from fa_registry import jsonio
from fa_registry.errors import IntegrityError, UnknownName, UsageError
from fa_registry.jsonio import file_digest
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import FILES, FOLDER, TAG_CARD, ModelRegistry, folder_name, promotion_key
from fa_registry.training.model_folder import CARD, ModelCard
from tests.helpers.tiny_tasks import weights_equal
from tests.training.test_model_folder import made


def test_a_loaded_network_can_be_judged(tmp_path):
    task = made(tmp_path)
    network = fa_registry.load_model(tmp_path / "model").network
    x, y = task.eval_batch
    again = fa_registry.FAProtocol(network, x, y).run(0.5, 0.9)
    assert again == fa_registry.FAProtocol(task.network.eval(), x, y).run(0.5, 0.9)
    assert again["verdict"] == "PASS"
    report = fa_registry.diagnose(network, [(x[:64], y[:64]), (x[64:], y[64:])], 0.9, 0.5)
    assert len(report.residual_norms) == len(network.blocks) + 1


def test_a_folder_needs_no_mlflow(tmp_path):
    made(tmp_path)
    code = (
        "import sys\nfor name in ('mlflow', 'sqlalchemy', 'pandas'): sys.modules[name] = None\n"
        f"import fa_registry\nprint(fa_registry.load_model({str(tmp_path / 'model')!r}).card.method)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "dfa\n"


@pytest.mark.parametrize("name", ["nowhere", "model:/dfa/1"])
def test_what_is_neither_a_folder_nor_a_reference_is_reported(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UsageError, match=f"model '{name}': expected models:/NAME@alias, models:/NAME/3 or the path of an existing"
    ):
        fa_registry.load_model(name)


@pytest.fixture
def registered(tmp_path, empty_store):
    """Two versions of the same files in a store: one whose card the registry knows, and one made by another person."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    tracker = MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    task = made(tmp_path)
    run_id = tracker.create("run", {}, {})
    path = tmp_path / "model" / CARD
    card = jsonio.decode(ModelCard, json.loads(path.read_text(encoding="utf-8")) | {"run_id": run_id}, CARD)
    path.write_text(jsonio.pretty(card), encoding="utf-8")
    folder = tmp_path / "upload" / FOLDER / folder_name(promotion_key(card), file_digest(path))
    folder.parent.mkdir(parents=True)
    path.parent.rename(folder)
    recorded = {artifact: card.digests[name] for name, artifact in FILES.items()}
    provenance = tmp_path / "upload" / schema.PROVENANCE
    provenance.write_text(jsonio.pretty({"digests": recorded}), encoding="utf-8")
    seal = jsonio.digest_of({**recorded, schema.PROVENANCE: file_digest(provenance)})
    tracker.log(run_id, tags={schema.TAG_ARTIFACTS: seal})
    tracker.upload(run_id, tmp_path / "upload")
    registry = ModelRegistry(tracker.uri)
    for tags in ({TAG_CARD: file_digest(folder / CARD)}, {}):
        registry.register("tiny", run_id, f"{FOLDER}/{folder.name}", tags, "")
    return registry, task


def test_a_registered_version_is_what_was_promoted(registered, monkeypatch):
    registry, task = registered
    assert weights_equal(fa_registry.load_model("models:/tiny/1", registry.uri).network, task.network)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry.uri)
    assert weights_equal(fa_registry.load_model("models:/tiny/1").network, task.network)


def test_the_registry_vouches_for_the_card(registered):
    """In a folder alone, a user with write access could change card and weights together."""
    registry, _ = registered
    card = registry.files(registry.find("models:/tiny/1")) / CARD
    card.write_text(card.read_text(encoding="utf-8").replace('"verified"', '"trusted"'), encoding="utf-8")
    assert fa_registry.load_model(card.parent).card.integrity.state == "trusted"
    with pytest.raises(IntegrityError, match=r"card.json: expected SHA-256"):
        fa_registry.load_model("models:/tiny/1", registry.uri)


def test_what_another_user_registered_is_not_read(registered):
    registry, _ = registered
    with pytest.raises(UsageError, match="models:/tiny/2 was not created by `fa-registry promote`"):
        fa_registry.load_model("models:/tiny/2", registry.uri)


def test_a_mistyped_name_is_reported_with_the_nearest(registered):
    registry, _ = registered
    with pytest.raises(UnknownName, match="did you mean 'tiny'"):
        fa_registry.load_model("models:/tinny/1", registry.uri)
