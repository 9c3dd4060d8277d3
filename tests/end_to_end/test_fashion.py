"""Fashion-MNIST as Debian's package installs it: the real files, found, checked and trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from fa_registry.cli import main
from fa_registry.datasets import fashion_mnist
from tests.end_to_end.conftest import commands_in, skipped

EDITIONS, SCALES = "2026-05,2026-12", ("growth_max", "growth_init_max")
SMALL = "architecture.d_hidden=16,architecture.num_blocks=1,batch_size=512"


@pytest.fixture
def away(monkeypatch, tmp_path) -> Path:
    """A working folder without a data root; skipped where the package is not installed."""
    if not fashion_mnist.PACKAGE.folder.is_dir():
        skipped(f"{fashion_mnist.PACKAGE.name} is not installed")
    monkeypatch.delenv("FA_REGISTRY_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
def test_the_images_are_those_that_the_field_knows(away):
    """6,000 of each class, and the mean and deviation that published recipes normalise by."""
    raw = fashion_mnist.PLUGIN.raw(away)
    assert raw.train_labels.bincount().tolist() == [6000] * 10 and raw.test_labels.bincount().tolist() == [1000] * 10
    pixels = raw.train_images.to(torch.float64) / 255
    assert (pixels.mean().item(), pixels.std().item()) == pytest.approx((0.2860, 0.3530), abs=5e-5)


@pytest.mark.long  # an epoch and an audit of 70,000 images
def test_a_run_on_it_is_trained_and_verified_without_a_data_root(workplace, away):
    def call(*arguments):
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    checked = call("data", "check", "fashion_mnist", "--json")
    assert checked.exit_code == 0 and all(row["ok"] for row in json.loads(checked.stdout)), checked.stderr
    how = ("--method", "dfa", "--seed", "1", "--epochs", "1", "--set", SMALL, "--device", "cpu", "--json")
    trained = call("train", "--dataset", "fashion_mnist", *how)
    assert trained.exit_code == 0, trained.stderr
    audited = call("audit", "--run", json.loads(trained.stdout)["run_id"], "--json")
    (run,) = json.loads(audited.stdout)["report"]["runs"]
    assert run["record"]["integrity"]["state"] == "verified"
    assert run["record"]["measurements"]["scalars"]["accuracy"] > 0.3  # chance is .1
    assert not (away / "data").exists()


@pytest.mark.long
def test_the_study_shows_the_papers_story_in_its_first_epochs(away):
    """Two epochs of one seed: dfa explodes and loses its reference, the penalty moves the explosion into the embedding."""
    call = commands_in(away)
    command = f"fa-registry run fashion --epochs 2 --seeds 42 --editions {EDITIONS} --device cpu"
    done = call(*command.split(), timeout=3600)  # ends a test that hangs; a busy machine may take its time
    assert done.returncode == 0, done.stderr
    report = json.loads((away / "reports" / "audit.json").read_text(encoding="utf-8"))
    assert {run["record"]["integrity"]["state"] for run in report["runs"]} == {"verified"}
    runs = {(run["record"]["spec"]["method"], run["record"]["spec"]["penalty"]): run for run in report["runs"][:4]}
    first_fires = {
        (key, finding["rule"]): finding["first_fire"] for key, run in runs.items() for finding in run["findings"]
    }
    dfa, penalised = ("dfa", 0.0), ("dfa", 1e-2)
    assert (first_fires[dfa, "D1"], first_fires[dfa, "D2"]) == (1, 2)
    assert first_fires[("bp", 0.0), "D1"] is None
    quiet, since = (runs[penalised]["record"]["measurements"]["scalars"][name] for name in SCALES)
    assert quiet < 2 < 50 < since
    accuracies = [run["record"]["measurements"]["scalars"]["accuracy"] for run in runs.values()]
    assert max(accuracies) == runs["bp", 0.0]["record"]["measurements"]["scalars"]["accuracy"] > 0.8
