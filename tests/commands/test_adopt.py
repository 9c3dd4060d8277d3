"""An adopted run: the same figures as where the weights were trained, and judged like any other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from fa_registry import diagnostics, jsonio
from fa_registry.evidence.remeasure import remeasure_run
from fa_registry.protocol.engine import judge
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Measurements
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.measuring import NOT_GIVEN
from fa_registry.training.probe_context import NO_INITIAL
from tests.architectures.plain_models import PLAIN, PlainModel, autograd_figures, moved_off_start
from tests.commands.adoption import SPEC, artifact, measured, stored
from tests.commands.conftest import TRAIN, fields
from tests.helpers.audits import unpublished
from tests.helpers.tiny_tasks import SEED, tiny_task

pytestmark = pytest.mark.long

OF_TRAINING = ("loss_train", "accuracy_train", "penalty")
NEEDS_INITIAL = ("blocks_trained", "feature_drift")
CARDS = [diagnostics.CATALOG.get(name).card for name in diagnostics.CATALOG.names()]
NEEDS_CREDITS = {quantity for card in CARDS for quantity in card.needs_credit}


def audit(registry, *run_ids):
    chosen = [part for run_id in run_ids for part in ("--run", run_id)]
    with unpublished():
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
    assert origin["feedback file"] == "B.safetensors"
    assert "seed" not in json.loads(artifact(run_id, schema.FEEDBACK_CARD).read_text())


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


@pytest.mark.parametrize("edition", ["2026-04", "2026-12"])
def test_no_rule_of_another_edition_breaks_on_it(adopt, elsewhere, edition):
    tracker = MlflowTracker()
    record, _ = remeasure_run(tracker, tracker.get(adopt(elsewhere.weights, "--frozen-accuracy", "0.05")[0]))
    findings = judge(record, None, load_edition(edition)).findings
    assert "error" not in {finding.outcome for finding in findings}
    depth = next(finding for finding in findings if finding.rule in ("d", "D3"))
    assert depth.stated


@pytest.mark.long
def test_the_report_says_that_it_was_not_trained_here(registry, adopt, elsewhere, workplace):
    adopt(elsewhere.weights)
    assert registry("audit", "--experiment", "fa_registry").exit_code == 3
    (form,) = (workplace / "reports" / "forms").glob("*.html")
    page = form.read_text()
    assert "final.safetensors" in page and NOT_GIVEN in page
    assert "fa-registry adopt WEIGHTS" in page and "mlflow run" not in page


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
    result = registry("verify", "--run", run_id, "--json")
    assert result.exit_code == 3 and "expected SHA-256" in result.stdout


def test_a_feedback_file_slipped_into_a_run_that_has_none_is_a_mismatch(registry, adopt, elsewhere):
    run_id, _ = adopt(elsewhere.weights)
    save_tensors(artifact(run_id, schema.SPEC).parent / schema.FEEDBACK, load_tensors(Path(elsewhere.feedback)))
    assert registry("verify", "--run", run_id).exit_code == 3


def test_a_method_without_feedback_needs_no_file(adopt, elsewhere):
    run_id, printed = adopt(elsewhere.weights, "--method", "bp")
    assert printed["absent"] == "" and measured(run_id).sites["gamma"][1].value == pytest.approx(1)


def test_the_training_of_an_adopted_checkpoint_is_stated(registry, adopt, elsewhere):
    """Also with `--replay all`: no audit can train it again."""
    run_id, _ = adopt(elsewhere.weights)
    for replay in ("auto", "all"):
        report = json.loads(registry("audit", "--run", run_id, "--replay", replay, "--json").stdout)["report"]
        assert [run["verdict"]["proof"] for run in report["runs"]] == ["stated"]


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


SIZES = {
    "resmlp": {"d_hidden": 16, "num_blocks": 2},
    "vit_mini": {"d_hidden": 16, "num_blocks": 2, "heads": 4, "patch": 4},
    "small_resnet": {"width": 16, "num_blocks": 2},
}


def plain_model(name: str) -> PlainModel:
    """For digits, of SIZES, by torch's own constructors."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        plain = PLAIN[name](shape=(1, 12, 12), width=16, depth=2, classes=10)
    moved_off_start(plain)
    return plain.eval()


def norms(tensors: list[torch.Tensor], of_maps: str) -> list[float]:
    """Per site the median over samples of the L2 norm: of the class token's vector, of maps' mean or sum over positions."""
    rows = [tensor.detach().double() for tensor in tensors]
    rows = [row[:, 0] if row.dim() == 3 else getattr(row, of_maps)((2, 3)) if row.dim() == 4 else row for row in rows]
    return [float(np.median(row.norm(dim=1).numpy())) for row in rows]


@pytest.mark.parametrize("name", PLAIN)
def test_its_figures_are_the_plain_modules(registry, tmp_path, name):
    plain, file = plain_model(name), tmp_path / "published.pt"
    torch.save(plain.state_dict(), file)
    options = ",".join(f"architecture.{option}={value}" for option, value in SIZES[name].items())
    setting = f"--method bp --architecture {name} --seed 3 --epochs 1 --set {options} --device cpu".split()
    result = registry("adopt", str(file), *setting, "--json")
    assert result.exit_code == 0, result.stdout
    found = measured(json.loads(result.stdout)["run_id"])

    task = tiny_task(method="bp", architecture=name, architecture_options=SIZES[name])
    images, labels = task.eval_batch
    _, states, gradients = autograd_figures(plain, images, labels)
    right = (plain(task.splits.test_images).argmax(dim=1) == task.splits.test_labels).double().mean().item()
    for quantity, expected in (("h_norm", norms(states, "mean")), ("g_norm", norms(gradients, "sum"))):
        assert [reading.value for reading in found.sites[quantity]] == pytest.approx(expected, rel=1e-4), quantity
    assert found.scalars["accuracy"].value == pytest.approx(right, abs=1e-9)


def test_the_same_file_is_adopted_once_and_again_only_by_force(registry, adopt, elsewhere):
    first, _ = adopt(elsewhere.weights, "--frozen-accuracy", "0.5")
    for typed in ("0.5", "0.50"):
        printed = adopt(elsewhere.weights, "--frozen-accuracy", typed)[1]
        assert (printed["run_id"], printed["adopted"], len(stored())) == (first, False, 1)
    assert adopt(elsewhere.weights, "--frozen-accuracy", "0.5", "--force")[0] != first
    assert adopt(elsewhere.weights, "--epochs", "2")[0] != first  # another specification of the same file


def test_already_adopted_does_not_drop_evidence_that_is_given_now(registry, adopt, elsewhere):
    first, _ = adopt(elsewhere.weights, "--frozen-accuracy", "0.5")
    for more in ((), ("--frozen-accuracy", "0.6"), ("--frozen-accuracy", "0.5", "--feedback", elsewhere.feedback)):
        refused = registry("adopt", elsewhere.weights, *SPEC, *more)
        assert refused.exit_code == 2 and first in refused.stderr
    assert len(stored()) == 1


def test_all_that_is_wrong_is_named_at_once_and_nothing_is_written(registry):
    wrong = "nowhere.pt --method dfaa --epochs many --feedback B.bin --frozen-accuracy 64 --set colour=red --device cpu"
    named = ["method", "epochs", "seed", "colour", "weights", "feedback", "frozen_accuracy"]
    assert sorted(fields(registry("adopt", *wrong.split()))) == sorted(named)
    assert stored() == []


@pytest.mark.parametrize("text", ["nan", "-0.1", "1.01", "64%", "inf"])
def test_a_frozen_accuracy_that_is_no_fraction_is_refused(registry, elsewhere, text):
    assert fields(registry("adopt", elsewhere.weights, *SPEC, "--frozen-accuracy", text)) == ["frozen_accuracy"]


def test_weights_of_another_architecture_are_named_tensor_by_tensor(registry, elsewhere):
    other = ("--set", "architecture.num_blocks=3,architecture.d_hidden=8")
    refused = registry("adopt", elsewhere.weights, *SPEC, *other)
    assert set(fields(refused)) == {"weights"}
    for name in ("blocks.2.ln.weight", "blocks.2.ln.bias", "embed.weight", "out_head.weight"):
        assert name in refused.stderr
    assert stored() == []


def test_a_registry_feedback_file_must_be_the_one_its_card_tells_of(registry, elsewhere):
    run_id = json.loads(registry(*TRAIN, "--json").stdout)["run_id"]
    path = artifact(run_id, schema.FEEDBACK)

    def code(*more):
        return registry(
            "adopt", str(artifact(run_id, schema.FINAL)), *TRAIN[1:], "--feedback", str(path), *more
        ).exit_code

    assert [code("--method", "fa"), code("--seed", "77"), code()] == [2, 2, 0]
    save_tensors(path, {name: value * 2 for name, value in load_tensors(path).items()})
    assert code("--force") == 3
    for card, expected in (("{", 3), ('{"title": "of another author"}', 0)):
        (path.parent / "card.json").write_text(card)
        assert code("--force") == expected


def test_controls_and_endless_epochs_are_refused(registry, elsewhere):
    for more, field in (
        (("--method", "bp", "--set", "control=frozen"), "control"),
        (("--epochs", "1000000"), "epochs"),
    ):
        assert fields(registry("adopt", elsewhere.weights, *SPEC, *more)) == [field]


def test_adopting_that_breaks_leaves_no_run_that_says_running(registry, elsewhere, monkeypatch):
    monkeypatch.setattr("fa_registry.tracking.writer.RunWriter.complete", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        registry("adopt", elsewhere.weights, *SPEC)
    assert [(run.state, run.tags[schema.TAG_STATUS]) for run in stored()] == [("FAILED", "failed")]


def test_only_a_frozen_accuracy_that_is_given_is_refused_for_a_loss(registry):
    spec = ("--method", "bp", "--epochs", "1", "--seed", "1", "--architecture", "causal_transformer")
    spec += ("--dataset", "markov_text")
    assert fields(registry("adopt", "missing.safetensors", *spec)) == ["weights"]
    assert fields(registry("adopt", "missing.safetensors", *spec, "--frozen-accuracy", "0.5")) == [
        "weights",
        "frozen_accuracy",
    ]
