"""An adopted run: the same figures as where the weights were trained, and judged like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from fa_registry import diagnostics, jsonio
from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Measurements
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from fa_registry.training.bench import NO_INITIAL
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.measuring import NOT_GIVEN
from fa_registry.workflows.evidence import gather
from tests.helpers.small import SEED, tiny_task
from tests.workflows.adoption import SPEC, artifact, measured, stored

FROZEN = ("train", "--method", "bp", "--control", "frozen", *SPEC[2:])
OF_TRAINING = ("loss_train", "accuracy_train", "penalty")
NEEDS_INITIAL = ("blocks_trained", "feature_drift")
CARDS = [diagnostics.CATALOG.get(name).card for name in diagnostics.CATALOG.names()]
NEEDS_CREDITS = {quantity for card in CARDS for quantity in card.needs_credit}


def audit(registry, *run_ids):
    chosen = [part for run_id in run_ids for part in ("--run", run_id)]
    result = registry("audit", *chosen, "--edition", "2026-05", "--json")
    return result.exit_code, json.loads(result.stdout)["report"]["runs"]


def known(values, *without):
    return {name: value for name, value in values.items() if not name.startswith(without)}


@pytest.mark.parametrize("kind", ["safetensors", "pt", "nested", "list"])
def test_every_figure_is_bit_by_bit_that_of_the_run_it_comes_from(adopt, elsewhere, kind):
    weights, feedback = elsewhere.weights, elsewhere.feedback
    if kind == "pt":
        weights = elsewhere.saved("final.pt", elsewhere.state)
    if kind == "nested":
        held = {"epoch": 1, "state_dict": {f"module.{name}": value for name, value in elsewhere.state.items()}}
        weights = elsewhere.saved("nested.pth", held)
    if kind == "list":
        matrices = load_tensors(Path(elsewhere.feedback))
        feedback = elsewhere.saved("B.pt", [matrices[name] for name in sorted(matrices)])
    run_id, printed = adopt(weights, "--feedback", feedback)
    found, before = measured(run_id), elsewhere.final
    assert printed["absent"] == "" and printed["adopted"] is True and printed["status"] == "complete"
    assert found.sites == before.sites
    assert known(found.scalars, *NEEDS_INITIAL) == known(before.scalars, *NEEDS_INITIAL, *OF_TRAINING)
    compared = [name for name in found.scalars if name.startswith(NEEDS_INITIAL)]
    assert compared and {found.scalars[name].reason for name in compared} == {NO_INITIAL}
    assert found.conventions == before.conventions
    assert found.sites["gamma"][1].value is not None and 0 < found.scalars["accuracy"].value < 1


def test_the_feedback_that_was_given_counts_and_not_the_one_that_the_seed_would_draw(registry, adopt, elsewhere):
    drawn = load_tensors(Path(elsewhere.feedback))
    run_id, _ = adopt(elsewhere.weights, "--feedback", elsewhere.saved("other.pt", [-drawn["B_02"], -drawn["B_01"]]))
    assert measured(run_id).sites["gamma"][2].value == pytest.approx(_last_gamma_with(elsewhere, -drawn["B_01"]))
    assert registry("verify", "--run", run_id).exit_code == 0


def _last_gamma_with(elsewhere, matrix):
    """Γ at site 2, where dfa's credit is e Bᵀ."""
    task = tiny_task(epochs=1)
    task.network.load_state_dict(elsewhere.state)
    seen = diagnostics.observe(task.network, *task.eval_batch)
    credit, gradient = seen.error.double() @ matrix.double().T, seen.gradients[2].double()
    return ((credit * gradient).sum(1) / (credit.norm(dim=1) * gradient.norm(dim=1))).mean().item()


def test_the_run_holds_what_a_run_holds_but_no_initial_weights(adopt, elsewhere):
    run_id, _ = adopt(
        elsewhere.weights, "--feedback", elsewhere.feedback, "--frozen-accuracy", "0.25", "--name", "mine"
    )
    run = MlflowTracker().get(run_id)
    folder = artifact(run_id, schema.SPEC).parent
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        schema.SPEC,
        schema.MEASUREMENTS,
        schema.PROVENANCE,
        schema.SERIES,
        schema.FINAL,
        schema.FEEDBACK,
        schema.FEEDBACK_CARD,
    }
    assert (run.name, run.state, run.tags[schema.TAG_STATUS]) == ("mine", "FINISHED", "complete")
    assert run.tags[schema.TAG_ADOPTED] == "true" and run.tags["fa.method"] == "dfa adopted"
    assert measured(run_id).scalars["frozen_accuracy"].value == 0.25
    assert set(pq.read_table(artifact(run_id, schema.SERIES))["epoch"].to_pylist()) == {1}
    spec = json.loads(artifact(run_id, schema.SPEC).read_text())
    assert spec["weights"] == jsonio.file_digest(Path(elsewhere.weights))
    origin = json.loads(artifact(run_id, schema.PROVENANCE).read_text())["origin"]
    assert origin["file"] == "final.safetensors" and origin["sha256"] == spec["weights"]
    assert origin["trained"].startswith("not trained here") and origin["feedback file"] == "B.safetensors"
    card = json.loads(artifact(run_id, schema.FEEDBACK_CARD).read_text())
    assert card["distribution"] == "given in B.safetensors, not drawn here" and "seed" not in card


def test_without_feedback_no_figure_that_needs_it_is_a_number_now_or_when_recomputed(registry, adopt, elsewhere):
    run_id, printed = adopt(elsewhere.weights)
    assert printed["absent"] == NOT_GIVEN
    assert artifact(run_id, schema.FEEDBACK) is None and artifact(run_id, schema.FEEDBACK_CARD) is None
    _, (run,) = audit(registry, run_id)
    again = jsonio.decode(Measurements, run["record"]["measurements"])
    assert run["record"]["integrity"]["state"] == "verified"
    for found in (measured(run_id), again):
        rows = {**found.sites, **{name: (reading,) for name, reading in found.scalars.items()}}
        assert [name for name in NEEDS_CREDITS & rows.keys() for one in rows[name] if one.value is not None] == []
        for name in ("gamma", "gamma_deep_mean", "norm_ratio", "rho", "nudge", "gamma_null_mean"):
            assert name in NEEDS_CREDITS and {one.reason for one in rows[name]} == {NOT_GIVEN}
        for name in ("h_norm", "growth", "g_norm", "gain", "fidelity"):
            assert found.sites[name] == elsewhere.final.sites[name]
    assert "no Γ: the feedback matrices were not given" in registry("adopt", elsewhere.weights, *SPEC, "--force").stdout


def test_the_audit_judges_it_by_the_frozen_accuracy_it_came_with(registry, adopt, elsewhere):
    accuracy = elsewhere.final.scalars["accuracy"].value
    outcomes = {}
    for frozen in ("", "0.0", str(accuracy)):
        run_id, _ = adopt(elsewhere.weights, "--force", "--frozen-accuracy", frozen)
        code, (run,) = audit(registry, run_id)
        third = next(finding for finding in run["findings"] if finding["rule"] == "D3")
        outcomes[frozen] = (third["outcome"], code)
        assert run["record"]["integrity"]["state"] == "verified"
        assert run["record"]["measurements"]["scalars"].get("frozen_accuracy") == (float(frozen) if frozen else None)
    assert outcomes == {"": ("not_applicable", 3), "0.0": ("warn", 0), str(accuracy): ("fail", 1)}


@pytest.mark.parametrize("edition", ["2026-04", "2026-11"])
def test_no_rule_of_another_edition_breaks_on_it(adopt, elsewhere, edition):
    tracker = MlflowTracker()
    record = gather(tracker, tracker.get(adopt(elsewhere.weights, "--frozen-accuracy", "0.05")[0]))
    findings = judge(record, None, load_edition(edition)).findings
    assert "error" not in {finding.outcome for finding in findings}
    depth = next(finding for finding in findings if finding.rule in ("d", "D3"))
    assert "stated by the author when the run was adopted" in depth.sentence and depth.stated


def test_it_stands_beside_the_frozen_control_of_its_setting(registry, adopt, elsewhere):
    control = json.loads(registry(*FROZEN, "--json").stdout)["run_id"]
    run_id, _ = adopt(elsewhere.weights)
    _, runs = audit(registry, run_id, control)
    run = next(run for run in runs if run["record"]["run_id"] == run_id)
    third = next(finding for finding in run["findings"] if finding["rule"] == "D3")
    assert run["frozen_run_id"] == third["reference_run_id"] == control


def test_the_report_says_that_it_was_not_trained_here(registry, adopt, elsewhere, workplace):
    adopt(elsewhere.weights)
    assert registry("audit", "--experiment", "fa_registry").exit_code == 3
    (form,) = (workplace / "reports" / "forms").glob("*.html")
    page = form.read_text()
    assert "not trained here" in page and "final.safetensors" in page and NOT_GIVEN in page
    assert "fa-registry adopt WEIGHTS" in page and "mlflow run . -e train" not in page


def test_it_is_neither_the_trained_run_of_its_specification_nor_one_of_its_seeds(registry, adopt, elsewhere, workplace):
    adopt(elsewhere.weights)
    printed = json.loads(registry("train", *SPEC, "--json").stdout)
    assert printed["trained"] is True
    registry("audit", "--experiment", "fa_registry")
    runs = {run.tags["fa.method"]: run for run in stored()}
    file = read_record(MlflowTracker(), runs["dfa adopted"]).spec.weights
    names = {"dfa": "dfa", "dfa adopted": f"dfa adopted {file[:6]}"}
    assert {method: run.name for method, run in runs.items()} == {
        method: f"{name} · resmlp-16x2 · w2_std=0.5 · digits · 1 epochs · s{SEED}" for method, name in names.items()
    }
    assert len(list((workplace / "reports" / "forms").glob("*.html"))) == 2


def test_verify_recomputes_it_and_sees_a_changed_file(registry, adopt, elsewhere):
    run_id, _ = adopt(elsewhere.weights, "--feedback", elsewhere.feedback)
    assert registry("verify", "--run", run_id).exit_code == 0
    save_tensors(artifact(run_id, schema.FINAL), {name: value + 1 for name, value in elsewhere.state.items()})
    result = registry("verify", "--run", run_id)
    assert result.exit_code == 3 and "expected SHA-256" in result.stdout


def test_a_feedback_file_slipped_into_a_run_that_has_none_is_a_mismatch(registry, adopt, elsewhere):
    run_id, _ = adopt(elsewhere.weights)
    save_tensors(artifact(run_id, schema.SPEC).parent / schema.FEEDBACK, load_tensors(Path(elsewhere.feedback)))
    assert registry("verify", "--run", run_id).exit_code == 3


def test_a_method_without_feedback_needs_no_file(adopt, elsewhere):
    run_id, printed = adopt(elsewhere.weights, "--method", "bp")
    assert printed["absent"] == "" and measured(run_id).sites["gamma"][1].value == pytest.approx(1)


def test_weights_that_hold_no_numbers_are_a_diverged_run(registry, adopt, elsewhere):
    broken = {**elsewhere.state, "embed.bias": torch.full((16,), torch.nan)}
    run_id, printed = adopt(elsewhere.saved("broken.pt", broken))
    assert printed["status"] == "diverged"
    _, (run,) = audit(registry, run_id)
    assert run["verdict"]["label"].startswith("DIVERGED") and run["record"]["integrity"]["state"] == "verified"


def test_an_adopted_run_that_fails_does_not_claim_to_know_since_when(registry, adopt, elsewhere):
    exploded = {**elsewhere.state, "blocks.1.w2.weight": elsewhere.state["blocks.1.w2.weight"] * 1e4}
    _, (run,) = audit(registry, adopt(elsewhere.saved("exploded.pt", exploded))[0])
    first = next(finding for finding in run["findings"] if finding["rule"] == "D1")
    assert (first["outcome"], first["first_fire"]) == ("fail", None)
