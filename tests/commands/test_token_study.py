"""Studies and audits of token prediction: editions that fit, and one study from training to MLflow, forms and lists."""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from fa_registry import jsonio
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport
from fa_registry.studies.study import load_study
from fa_registry.studies.study_command import other_task
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import STUDY, call, fields
from tests.helpers.stores import copy_store, made_once, working_in

pytestmark = pytest.mark.long

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
OF_TOKENS = "--method bp --architecture causal_transformer --dataset text:words.txt --seed 3 --epochs 1"
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
    [
        *(f"--study words --edition {name}" for name in ("2026-12", "2026-05")),
        *("--study words --editions 2026-12:token,2026-12", "--study words --strict"),
        "--experiment fa_registry",  # the default edition judges accuracy
    ],
)
def test_an_edition_of_another_task_is_refused_with_the_one_that_fits(token_runs, terms):
    result = token_runs("audit", *terms.split(), "--out", "pages")
    assert result.exit_code == 2 and "use --edition 2026-12:token" in result.stderr
    assert not Path("pages").exists()


@pytest.mark.parametrize("command", [("audit", "--edition", "2026-12:token"), ("study",)])
def test_the_token_edition_is_refused_for_accuracy(trained, workplace, command):
    path, before = workplace / "tiny" / "study.toml", len(MlflowTracker().search({}))
    if command == ("study",):
        path.write_text(STUDY.replace("2026-05", "2026-12:token").replace("[1]", "[2]"), encoding="utf-8")
    name, *terms = command
    result = trained(name, *(["tiny"] if name == "study" else ["--study", "tiny"]), *terms)
    assert result.exit_code == 2 and "edition" in result.stderr and len(MlflowTracker().search({})) == before


@pytest.mark.parametrize(
    ("old", "new", "more", "field"),
    [
        ("2026-12:token", "2026-12", (), "edition"),
        ("2026-12:token", "2026-12", ("--edition", "2026-12:token"), "edition"),  # its own edition is checked
        ("frozen = true", "frozen = false", (), "controls.frozen"),
    ],
)
def test_a_study_that_its_edition_cannot_judge_trains_nothing(workplace, old, new, more, field):
    write_text_file(workplace, TOKENS.replace(old, new))
    assert set(fields(call("study", "words", *more, "--jobs", "1", "--device", "cpu"))) == {field}
    assert MlflowTracker().search({}) == []


def test_the_shipped_study_has_an_edition_that_fits():
    study = load_study("tokens")
    assert study.edition == "2026-12:token" and other_task(study, load_edition(study.edition)) == []
    (problem,) = other_task(study, load_edition("2026-12"))
    assert problem.startswith("edition: ")


# From training to pages.


def losses(report, **spec) -> dict[int, float]:
    """seed → loss per token, of the runs whose specification has this value."""
    ((name, value),) = spec.items()
    records = [run.record for run in report.runs if getattr(run.record.spec, name) == value]
    return {record.spec.seed: record.measurements.scalars["token_loss"].value for record in records}


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
        own, frozen = losses(report, label=run.record.spec.label), losses(report, control="frozen")
        margins = [frozen[seed] - own[seed] for seed in (1, 2)]
        assert depth.observed.value == pytest.approx(sum(margins) / 2, abs=1e-8)
        assert depth.outcome in ("pass", "warn", "fail") and "nats" in depth.sentence and depth.seeds == 2
        assert "accuracy" not in run.record.measurements.scalars


def test_the_tables_of_an_audit_have_the_loss_and_its_margin(token_audit):
    report = token_audit
    rows = list(csv.DictReader(Path("pages/audit.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 6
    assert {"token_loss", "frozen_token_loss", "margin_nats"} <= rows[0].keys()
    assert {row[name] for row in rows for name in ("accuracy", "frozen_accuracy", "margin_pp")} == {""}
    frozen = losses(report, control="frozen")
    by_id = {run.record.run_id: run.record for run in report.runs}
    for row in rows:
        record = by_id[row["run_id"]]
        assert float(row["token_loss"]) == record.measurements.scalars["token_loss"].value
        if record.spec.control == "none":
            assert float(row["frozen_token_loss"]) == frozen[record.spec.seed]
            margin = float(row["frozen_token_loss"]) - float(row["token_loss"])
            assert float(row["margin_nats"]) == pytest.approx(margin, abs=1e-8)


def test_mlflow_has_the_loss_and_after_the_audit_the_margin(token_audit):
    report = token_audit
    client = MlflowClient()
    for run in report.runs:
        metrics = client.get_run(run.record.run_id).data.metrics
        scalars = run.record.measurements.scalars
        assert metrics["loss/test_per_token"] == float(f"{scalars['token_loss'].value:.4g}")
        assert not any("accuracy" in name for name in metrics)
        if run.record.spec.control == "none":
            frozen = losses(report, control="frozen")[run.record.spec.seed]
            (margin,) = (value for name, value in metrics.items() if name.rpartition("/")[2] == "margin_nats")
            assert margin == pytest.approx(frozen - scalars["token_loss"].value, rel=1e-3)


# the CSV has every column; the source of an analysis says what the paper compared
ALLOWED = " ".join(("ablation at seed 42: accuracy", "and Γ compared with the full protocol"))


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
    for name, text in texts.items():
        if name in ("index.html", "printed") or name.startswith(("bp-", "dfa-")):
            assert "loss per token" in text and "nats" in text, name


def test_the_list_of_runs_shows_the_loss(token_runs):
    listed = json.loads(token_runs("list", "runs", "--json").stdout)
    assert {one["headline"] for one in listed} == {"token_loss"} and all(one["value"] > 0 for one in listed)
    result = token_runs("list", "runs", "--study", "words")
    assert result.exit_code == 0, result.output
    losses = [run.metrics["loss/test_per_token"] for run in MlflowTracker().search({schema.TAG_KIND: "run"})]
    assert len(losses) == 6
    for loss in losses:
        assert f"{loss:.3f}" in result.stdout


@pytest.mark.parametrize("chosen", [("--study", "words"), ("--experiment", "fa_registry")])
def test_runs_whose_file_is_gone_cannot_be_recomputed(unpublished, token_runs, measured_each_time, chosen):
    Path("words.txt").unlink()
    edition = ("--edition", "2026-12:token")
    result = token_runs("audit", *chosen, *edition, "--device", "cpu", "--out", "pages")
    assert result.exit_code == 3 and written().runs == ()
    assert [(one.kind, "text:words.txt" in one.reason) for one in written().excluded] == [("broken", True)] * 6


@pytest.mark.parametrize(
    "command",
    ["study words --epochs 4", f"train {OF_TOKENS}", f"adopt weights.pt {OF_TOKENS}"],
    ids=lambda text: text[:5],
)
def test_without_its_file_nothing_is_trained(token_runs, command):
    Path("words.txt").unlink()
    before = len(MlflowTracker().search({}))
    result = token_runs(*command.split())
    assert result.exit_code == 2 and "text:words.txt" in result.stderr and "Traceback" not in result.output
    assert len(MlflowTracker().search({})) == before


def test_a_frozen_accuracy_is_refused_for_tokens(token_runs):
    result = token_runs("adopt", "weights.pt", *OF_TOKENS.split(), "--frozen-accuracy", "0.4")
    assert "frozen_accuracy" in fields(result)


def test_with_another_file_under_the_same_name_no_run_is_verified(unpublished, token_runs, measured_each_time):
    text = Path("words.txt").read_text(encoding="utf-8")
    Path("words.txt").write_text(text[::-1], encoding="utf-8")
    result = token_runs("audit", "--study", "words", "--device", "cpu", "--out", "pages")
    assert result.exit_code == 3 and "Traceback" not in result.output
    report = written()
    assert report.runs == () and len(report.excluded) == 6
    assert {run.integrity.state for run in report.excluded} == {"mismatch"}
