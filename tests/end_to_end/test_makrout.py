"""The independent check outside the paper, where the MNIST files are at hand: published accuracies within one percentage point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fa_registry.studies.data_files import overview


@pytest.mark.long
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


SMALL = ("--replace-dataset", "digits", "--scale", "0.01", "--seeds", "42")  # one epoch a run
ARCHITECTURES = {"resmlp", "vit_mini", "small_resnet"}


@pytest.mark.long
def test_every_setting_of_the_paper_trains_is_audited_and_reported(command, tmp_path):
    trained = command("fa-registry", "study", "paper", *SMALL, "--jobs", "2", "--json", timeout=1800)
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    assert len(result["trained"]) == 26 and not result["failed"]
    judged = command(
        "fa-registry", "audit", "--study", "paper", *SMALL, "--jobs", "2", "--exit-zero", "--json", timeout=1800
    )
    assert judged.returncode == 0, judged.stderr
    report = json.loads((tmp_path / "reports" / "audit.json").read_text())
    runs = [run["record"] for run in report["runs"]]
    assert {run["spec"]["architecture"] for run in runs} == ARCHITECTURES
    assert {run["integrity"]["state"] for run in runs} == {"verified"}
    settings = {run["setting"] for run in runs}
    assert settings == {run["setting"] for run in runs if run["spec"]["control"] == "frozen"} and len(settings) == 4
    rows = report["reproduction"]["rows"]
    assert len(rows) > 80 and {row["outcome"] for row in rows} == {"not comparable", "not measured"}
    page = (tmp_path / "reports" / "index.html").read_text()
    assert all(setting.split(" · ")[0] in page for setting in settings)
