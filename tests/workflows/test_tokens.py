"""A study of a language model from training to the forms; the loss per token is its main metric."""

from __future__ import annotations

import csv
import json

import pytest
from click.testing import CliRunner

from fa_registry.cli import main
from fa_registry.tracking.mlflow_tracker import MlflowTracker

STUDY = """
name = "small_text"
title = "A small language model"
edition = "{edition}"

[recipe]
epochs = 2
batch_size = 8

[controls]
frozen = true

[[grid]]
methods = ["bp", "dfa"]
architectures = ["causal_transformer"]
datasets = ["text:{text}"]
seeds = [1, 2]
architecture_options = {{ d_hidden = 8, num_blocks = 1, heads = 2 }}
"""


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder with the study, its store and its audit."""
    folder = tmp_path_factory.mktemp("tokens")
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog; " * 60, encoding="utf-8")
    (folder / "study.toml").write_text(STUDY.format(edition="2026-12:token", text=text), encoding="utf-8")
    store = f"sqlite:///{folder}/store.db"
    studied = run("study", str(folder), "--store", store, "--jobs", "1")
    assert studied.exit_code == 0, studied.output
    audited = run("audit", "--study", str(folder), "--store", store, "--out", str(folder / "out"), "--exit-zero")
    assert audited.exit_code == 0, audited.output
    return folder, audited.output


def test_every_run_is_verified_and_judged_in_nats(trained):
    folder, output = trained
    assert "test loss per token" in output and "nats" in output and "accuracy" not in output
    report = json.loads((folder / "out" / "audit.json").read_text(encoding="utf-8"))
    assert len(report["runs"]) == 6 and not report["excluded"]
    assert {one["record"]["integrity"]["state"] for one in report["runs"]} == {"verified"}
    depth = [
        finding
        for one in report["runs"]
        for finding in one["findings"]
        if finding["rule"] == "D3" and finding["seeds"] == 2
    ]
    assert len(depth) == 4 and {finding["quantity"] for finding in depth} == {"margin_nats"}
    for one in report["runs"]:
        scalars = one["record"]["measurements"]["scalars"]
        assert "accuracy" not in scalars and scalars["token_loss"] > 0


def test_the_files_have_the_loss_its_control_and_the_margin(trained):
    folder, _ = trained
    rows = list(csv.DictReader((folder / "out" / "audit.csv").read_text(encoding="utf-8").splitlines()))
    trained_rows = [row for row in rows if row["control"] == "none"]
    assert len(trained_rows) == 4
    for row in trained_rows:
        margin = float(row["frozen_token_loss"]) - float(row["token_loss"])
        assert float(row["margin_nats"]) == pytest.approx(margin, abs=1e-6) and row["accuracy"] in ("", "N/A")
    form = next((folder / "out" / "forms").glob("dfa-*.md")).read_text(encoding="utf-8")
    assert "Test loss per token" in form and "nats" in form and "perplexity" in form


def test_mlflow_and_the_list_of_runs_show_the_loss(trained):
    folder, _ = trained
    store = f"sqlite:///{folder}/store.db"
    stored = [one for one in MlflowTracker(store).search({"fa.kind": "run"}) if one.tags["fa.method"] == "dfa"]
    assert len(stored) == 2
    assert all("loss/test_per_token" in one.metrics and "margin_nats" in one.metrics for one in stored)
    assert not any("accuracy/test" in one.metrics for one in stored)
    listed = json.loads(run("list", "runs", "--store", store, "--json").stdout)
    assert {one["headline"] for one in listed} == {"token_loss"} and all(one["value"] > 0 for one in listed)
    assert "loss per token" in run("list", "runs", "--store", store).stdout


def test_an_edition_for_classes_is_refused_with_the_one_that_fits(trained):
    folder, _ = trained
    store = f"sqlite:///{folder}/store.db"
    refused = run(
        "audit", "--study", str(folder), "--store", store, "--edition", "2026-12", "--out", str(folder / "no")
    )
    assert refused.exit_code == 2 and not (folder / "no").exists()
    assert "use --edition 2026-12:token" in refused.stderr and "loss per token" in refused.stderr


def test_a_study_with_an_edition_for_classes_is_refused_before_training(trained, tmp_path):
    folder, _ = trained
    text = STUDY.format(edition="2026-12", text=folder / "text.txt")
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    refused = run("study", str(tmp_path), "--store", f"sqlite:///{tmp_path}/store.db")
    assert refused.exit_code == 2 and "edition: edition 2026-12 judges the accuracy" in refused.stderr
    assert not (tmp_path / "store.db").exists()


# the CSV has every column; the source of an analysis says what the paper compared
ALLOWED = "ablation at seed 42: accuracy and Γ compared with the full protocol"


def test_no_page_speaks_of_an_accuracy(trained):
    folder, _ = trained
    pages = [path for kind in ("html", "md", "tex", "xml") for path in (folder / "out").rglob(f"*.{kind}")]
    assert len(pages) >= 8
    for path in pages:
        text = path.read_text(encoding="utf-8").replace(ALLOWED, "")
        at = text.lower().find("accurac")
        assert at < 0, f"{path.name}: {text[max(0, at - 80) : at + 80]}"
    index = (folder / "out" / "index.html").read_text(encoding="utf-8")
    assert "loss per token rejects a run whose loss per token is at least ln V" in index
    report = json.loads((folder / "out" / "audit.json").read_text(encoding="utf-8"))
    assert "accurac" not in json.dumps(report["runs"]).lower()


def test_notes_and_descriptions_in_mlflow_speak_of_no_accuracy(trained):
    folder, _ = trained
    for one in MlflowTracker(f"sqlite:///{folder}/store.db").search({}):
        for name, text in one.tags.items():
            assert "accurac" not in text.replace(ALLOWED, "").lower(), (name, text)
