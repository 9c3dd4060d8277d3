"""The independent check outside the paper, where the MNIST files are at hand: published accuracies within one percentage point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fa_registry.workflows.data import overview


def test_the_classic_network_reaches_the_logged_accuracies(command, tmp_path):
    (mnist,) = [row for row in overview() if row["name"] == "mnist"]
    if mnist["missing"] and not mnist["decoded"]:
        pytest.skip("the MNIST files are not below $FA_REGISTRY_DATA")
    trained = command("fa-registry", "study", "makrout_mnist", timeout=3600)
    assert trained.returncode == 0, trained.stderr
    command("fa-registry", "audit", "--study", "makrout_mnist", "--exit-zero", timeout=3600)
    report = json.loads(Path(tmp_path / "reports" / "audit.json").read_text(encoding="utf-8"))
    outcomes = [row["outcome"] for row in report["reproduction"]["rows"]]
    assert len(outcomes) == 12 and not {"differs", "not comparable", "not measured"} & set(outcomes)
