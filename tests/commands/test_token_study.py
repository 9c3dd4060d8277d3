"""Studies and audits of token prediction: editions that fit, and one study from training to MLflow, forms and lists."""

from __future__ import annotations

import csv
import json
import random
import re
import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from fa_registry import jsonio
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport
from fa_registry.reporting.claims import claims
from fa_registry.studies.study import load_study
from fa_registry.studies.study_command import other_task
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import STUDY, call, long
from tests.helpers.stores import copy_store, made_once, working_in

TOKENS = """
name = "words"
title = "Words"
edition = "2026-12:token"
cost = "seconds"

[recipe]
epochs = 3
batch_size = 32
learning_rate = 1e-2

[controls]
frozen = true

[[grid]]
methods = ["bp", "dfa"]
architectures = ["causal_transformer"]
datasets = ["text:words.txt"]
seeds = [1, 2]
architecture_options = { d_hidden = 8, num_blocks = 1, heads = 2 }
"""
VOCABULARY = ("forward", "backward", "credit", "error", "site", "token", "loss", "seed")


def write_text_file(folder: Path, text: str = TOKENS) -> None:
    draw = random.Random(0)
    (folder / "words.txt").write_text(" ".join(draw.choices(VOCABULARY, k=2_000)), encoding="utf-8")
    (folder / "words").mkdir()
    (folder / "words" / "study.toml").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def token_store(tmp_path_factory, empty_store) -> Path:
    """The folder of a store with the words trained, for copies."""

    def train(folder: Path) -> None:
        shutil.copy(empty_store, folder)
        write_text_file(folder)
        with working_in(folder):
            result = call("study", "words", "--jobs", "1", "--device", "cpu")
        assert result.exit_code == 0, result.output

    return made_once(tmp_path_factory, "words", train)


@pytest.fixture
def token_runs(token_store, workplace):
    """The command line in a copy of that store."""
    copy_store(token_store, workplace)
    return call


@pytest.fixture(scope="session")
def audited_tokens(tmp_path_factory, token_store) -> Path:
    """A copy of that store with its audit, pictures included; printed.txt is what was printed."""

    def audit(folder: Path) -> None:
        copy_store(token_store, folder)
        with working_in(folder):
            result = call("audit", "--study", "words", "--device", "cpu", "--out", "pages")
        (folder / "printed.txt").write_text(result.output, encoding="utf-8")

    return made_once(tmp_path_factory, "audited-words", audit)


@pytest.fixture
def token_audit(audited_tokens, monkeypatch) -> AuditReport:
    """The report of that audit; the working folder is its folder, which tests only read."""
    monkeypatch.chdir(audited_tokens)
    return written()


def written() -> AuditReport:
    return jsonio.decode(AuditReport, json.loads(Path("pages/audit.json").read_text(encoding="utf-8")))


# Which editions fit.


@pytest.mark.parametrize(
    "terms",
    [("--edition", "2026-12"), ("--edition", "2026-05"), ("--editions", "2026-12:token,2026-12"), ("--strict",)],
)
def test_an_edition_of_another_task_is_refused_with_the_one_that_fits(token_runs, terms):
    result = token_runs("audit", "--study", "words", *terms, "--out", "pages")
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert "judges the accuracy, but the main metric of these runs is the loss per token" in result.stderr
    assert "use --edition 2026-12:token" in result.stderr
    assert not Path("pages").exists()


def test_runs_without_a_study_need_the_edition_by_name(token_runs):
    """The default edition judges accuracy."""
    result = token_runs("audit", "--experiment", "fa_registry", "--out", "pages")
    assert result.exit_code == 2 and "use --edition 2026-12:token" in result.stderr


def test_the_token_edition_is_refused_for_accuracy(trained):
    result = trained("audit", "--study", "tiny", "--edition", "2026-12:token", "--out", "pages")
    assert result.exit_code == 2
    assert "judges the loss per token, but the main metric of these runs is the accuracy" in result.stderr
    assert "use --edition 2026-12\n" in result.stderr


@pytest.mark.parametrize("edition", ["2026-12", long("2026-05"), long("2026-12")])
def test_a_study_with_the_edition_of_another_task_trains_nothing(workplace, edition):
    write_text_file(workplace, TOKENS.replace("2026-12:token", edition))
    result = call("study", "words", "--jobs", "1", "--device", "cpu")
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert f"edition: edition {edition} judges the accuracy" in result.stderr
    assert "use --edition 2026-12:token" in result.stderr
    assert MlflowTracker().search({}) == []


def test_a_study_of_classes_with_the_token_edition_trains_nothing(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(STUDY.replace("2026-05", "2026-12:token"), encoding="utf-8")
    result = registry("study", "tiny", "--jobs", "1", "--device", "cpu")
    assert result.exit_code == 2 and "the main metric of these runs is the accuracy" in result.stderr
    assert MlflowTracker().search({}) == []


def test_the_study_s_own_edition_is_checked_whatever_edition_watches_the_training(workplace):
    write_text_file(workplace, TOKENS.replace("2026-12:token", "2026-12"))
    result = call("study", "words", "--edition", "2026-12:token", "--jobs", "1", "--device", "cpu")
    assert result.exit_code == 2 and "edition 2026-12 judges the accuracy" in result.stderr


def test_the_shipped_study_has_an_edition_that_fits():
    study = load_study("tokens")
    assert study.edition == "2026-12:token" and other_task(study, load_edition(study.edition)) == []
    (problem,) = other_task(study, load_edition("2026-12"))
    assert problem.startswith("edition: ")


def test_a_study_without_frozen_controls_is_refused(workplace):
    write_text_file(workplace, TOKENS.replace("frozen = true", "frozen = false"))
    result = call("study", "words", "--jobs", "1", "--device", "cpu")
    assert result.exit_code == 2
    assert "D3 of edition 2026-12:token cannot be judged without this control" in result.stderr


# From training to pages.


def test_every_run_is_verified_and_judged_in_nats(token_audit):
    report = token_audit
    assert len(report.runs) == 6 and report.excluded == ()
    assert {run.record.integrity.state for run in report.runs} == {"verified"}
    assert report.edition.name == "2026-12:token"
    for run in report.runs:
        (depth,) = (finding for finding in run.findings if finding.rule == "D3")
        assert depth.quantity == "margin_nats"
        if run.record.spec.control == "frozen":
            assert depth.outcome == "skipped"
            continue
        losses = [
            {
                one.record.spec.seed: one.record.measurements.scalars["token_loss"].value
                for one in report.runs
                if kind(one)
            }
            for kind in (
                lambda one, run=run: one.record.spec.label == run.record.spec.label,
                lambda one: one.record.spec.control == "frozen",
            )
        ]
        margins = [losses[1][seed] - losses[0][seed] for seed in (1, 2)]
        assert depth.observed.value == pytest.approx(sum(margins) / 2, abs=1e-8)
        assert depth.outcome in ("pass", "warn", "fail") and "nats" in depth.sentence and depth.seeds == 2
        assert "accuracy" not in run.record.measurements.scalars


def test_the_tables_of_an_audit_have_the_loss_and_its_margin(token_audit):
    report = token_audit
    rows = list(csv.DictReader(Path("pages/audit.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 6
    assert {"token_loss", "frozen_token_loss", "margin_nats"} <= rows[0].keys()
    assert {row[name] for row in rows for name in ("accuracy", "frozen_accuracy", "margin_pp")} == {""}
    frozen = {
        run.record.spec.seed: run.record.measurements.scalars["token_loss"].value
        for run in report.runs
        if run.record.spec.control == "frozen"
    }
    by_id = {run.record.run_id: run.record for run in report.runs}
    for row in rows:
        record = by_id[row["run_id"]]
        assert float(row["token_loss"]) == record.measurements.scalars["token_loss"].value
        if record.spec.control == "none":
            assert float(row["frozen_token_loss"]) == frozen[record.spec.seed]
            margin = float(row["frozen_token_loss"]) - float(row["token_loss"])
            assert float(row["margin_nats"]) == pytest.approx(margin, abs=1e-8)


def test_forms_and_index_speak_of_nats(token_audit):
    forms = [path.read_text(encoding="utf-8").replace("\\", "") for path in Path("pages/forms").glob("*.md")]
    assert len(forms) >= 2
    for form in forms:
        assert all(text in form for text in ("nats", "loss per token", "Test loss per token", "perplexity"))
        assert not re.search(r"[0-9] pp\b|percentage point", form)
    assert "nats" in Path("pages/index.html").read_text(encoding="utf-8")


def test_no_claim_is_about_an_accuracy_or_images(token_audit):
    texts = [claim.text for run in token_audit.runs for claim in claims([run])]
    assert texts and not any("accuracy" in text or "image" in text or " pp" in text for text in texts)


def test_mlflow_has_the_loss_and_after_the_audit_the_margin(token_audit):
    report = token_audit
    client = MlflowClient()
    for run in report.runs:
        metrics = client.get_run(run.record.run_id).data.metrics
        scalars = run.record.measurements.scalars
        assert metrics["loss/test_per_token"] == float(f"{scalars['token_loss'].value:.4g}")
        assert not any("accuracy" in name for name in metrics)
        if run.record.spec.control == "none":
            frozen = next(
                one.record.measurements.scalars["token_loss"].value
                for one in report.runs
                if one.record.spec.control == "frozen" and one.record.spec.seed == run.record.spec.seed
            )
            (margin,) = (value for name, value in metrics.items() if name.rpartition("/")[2] == "margin_nats")
            assert margin == pytest.approx(frozen - scalars["token_loss"].value, rel=1e-3)


# the CSV has every column; the source of an analysis says what the paper compared
ALLOWED = "ablation at seed 42: accuracy and Γ compared with the full protocol"


def test_no_page_and_no_note_in_mlflow_speaks_of_an_accuracy(token_audit):
    pages = [path for kind in ("html", "md", "tex", "xml") for path in Path("pages").rglob(f"*.{kind}")]
    texts = {path.name: path.read_text(encoding="utf-8") for path in pages}
    assert len(texts) >= 7
    texts["printed"] = Path("printed.txt").read_text(encoding="utf-8")
    texts["report"] = json.dumps(json.loads(Path("pages/audit.json").read_text(encoding="utf-8"))["runs"])
    for run in MlflowTracker().search({}):
        texts |= {f"{run.name} {name}": text for name, text in run.tags.items()}
    for name, text in texts.items():
        text = text.replace(ALLOWED, "")
        at = text.lower().find("accurac")
        assert at < 0, f"{name}: {text[max(0, at - 80) : at + 80]}"
    assert "loss per token rejects a run whose loss per token does not " in texts["index.html"]
    assert "test loss per token" in texts["printed"] and "nats" in texts["printed"]


def test_the_list_of_runs_shows_the_loss(token_runs):
    listed = json.loads(token_runs("list", "runs", "--json").stdout)
    assert {one["headline"] for one in listed} == {"token_loss"} and all(one["value"] > 0 for one in listed)
    result = token_runs("list", "runs", "--study", "words")
    assert result.exit_code == 0, result.output
    losses = [run.metrics["loss/test_per_token"] for run in MlflowTracker().search({schema.TAG_KIND: "run"})]
    assert len(losses) == 6
    for loss in losses:
        assert f"{loss:.3f}" in result.stdout


def test_the_excess_over_the_source_is_recorded_where_it_is_known(token_runs):
    """A text has no known entropy; markov_text has."""
    for run in MlflowTracker().search({schema.TAG_KIND: "run"}):
        assert not any("excess" in name for name in run.metrics)


GONE = "data set text:words.txt: expected text:PATH with the path of a UTF-8 text file, found no file"


@pytest.mark.parametrize("chosen", [("--study", "words"), ("--experiment", "fa_registry")])
def test_runs_whose_file_is_gone_cannot_be_recomputed(unpublished, token_runs, measured_each_time, chosen):
    Path("words.txt").unlink()
    edition = ("--edition", "2026-12:token")
    result = token_runs("audit", *chosen, *edition, "--device", "cpu", "--out", "pages")
    assert result.exit_code == 3 and "Traceback" not in result.output
    assert result.output.count(f"cannot be recomputed: UsageError: {GONE}") >= 6
    assert written().runs == () and len(written().excluded) == 6


def test_the_other_runs_of_a_study_are_judged_if_one_file_is_gone(unpublished, token_runs, measured_each_time):
    Path("other.txt").write_text(Path("words.txt").read_text(encoding="utf-8").upper(), encoding="utf-8")
    both = TOKENS.replace('["text:words.txt"]', '["text:words.txt", "text:other.txt"]').replace("[1, 2]", "[1]")
    Path("words/study.toml").write_text(both, encoding="utf-8")
    result = token_runs("study", "words", "--jobs", "1", "--device", "cpu")
    assert result.exit_code == 0, result.output
    Path("words.txt").unlink()
    result = token_runs("audit", "--study", "words", "--device", "cpu", "--out", "pages")
    assert result.exit_code == 3 and result.output.count(GONE) >= 3
    report = written()
    assert {run.record.spec.dataset for run in report.runs} == {"text:other.txt"} and len(report.runs) == 3
    assert {run.record.integrity.state for run in report.runs} == {"verified"} and len(report.excluded) == 3


@pytest.mark.parametrize(
    "command",
    [
        ("study", "words", "--epochs", "4"),
        (
            "train",
            "--method",
            "bp",
            "--architecture",
            "causal_transformer",
            "--dataset",
            "text:words.txt",
            "--seed",
            "3",
        ),
        (
            "adopt",
            "weights.pt",
            "--method",
            "bp",
            "--architecture",
            "causal_transformer",
            "--dataset",
            "text:words.txt",
        ),
    ],
    ids=lambda command: command[0],
)
def test_without_its_file_nothing_is_trained(token_runs, command):
    Path("words.txt").unlink()
    before = len(MlflowTracker().search({}))
    more = () if command[0] == "study" else ("--epochs", "1", "--seed", "3")
    result = token_runs(*command, *more)
    assert result.exit_code == 2 and GONE in result.stderr and "Traceback" not in result.output
    assert len(MlflowTracker().search({})) == before


def test_a_frozen_accuracy_is_refused_for_tokens(token_runs):
    spec = ("--method", "bp", "--architecture", "causal_transformer", "--dataset", "text:words.txt", "--seed", "3")
    result = token_runs("adopt", "weights.pt", *spec, "--epochs", "1", "--frozen-accuracy", "0.4")
    assert result.exit_code == 2 and "the main metric of text:words.txt is the loss per token" in result.stderr


def test_with_another_file_under_the_same_name_no_run_is_verified(unpublished, token_runs, measured_each_time):
    text = Path("words.txt").read_text(encoding="utf-8")
    Path("words.txt").write_text(text[::-1], encoding="utf-8")
    result = token_runs("audit", "--study", "words", "--device", "cpu", "--out", "pages")
    assert result.exit_code == 3 and "Traceback" not in result.output
    report = written()
    assert report.runs == () and len(report.excluded) == 6
    assert {run.integrity.state for run in report.excluded} == {"mismatch"}
