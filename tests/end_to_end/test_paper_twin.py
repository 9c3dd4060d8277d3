"""The paper's whole pipeline on embedded data: every setting of the study `paper` trains, is audited and reported."""

from __future__ import annotations

import json

import pytest

SMALL = ("--data", "digits", "--scale", "0.01", "--seeds", "42")  # one epoch a run
ARCHITECTURES = {"resmlp", "vit_mini", "small_resnet"}


@pytest.mark.long
def test_every_setting_of_the_paper_trains_is_audited_and_reported(command, tmp_path):
    trained = command("fa-registry", "study", "paper", *SMALL, "--jobs", "2", "--json", timeout=600)
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    assert len(result["trained"]) == 18 and not result["failed"]
    judged = command(
        "fa-registry", "audit", "--study", "paper", *SMALL, "--jobs", "2", "--exit-zero", "--json", timeout=600
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
