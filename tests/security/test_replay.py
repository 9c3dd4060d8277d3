"""The first steps are replayed, and a method's credits in training are compared with its credits under measurement."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest

from fa_registry import methods
from fa_registry.conformance.credit_check import DISGUISED, OTHERWISE
from fa_registry.plugin_registry import Location
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import load_tensors, save_tensors
from tests.helpers.plugins import put_plugin
from tests.security import forgeries
from tests.security.conftest import call, integrity_of
from tests.security.test_replay_from_seed import STEP, checks, detail, measure_again_and_record, nonce, only_mismatch

pytestmark = pytest.mark.long

SIZES = ("--set", "architecture.d_hidden=16,architecture.num_blocks=2", "--device", "cpu")
ALL_STEPS = "48"  # four epochs of twelve


@pytest.fixture
def bp_as_dfa(store) -> str:
    """A dfa run with the final weights of the bp run of its seed, recomputed and with a manifest: init and feedback are honest."""
    run_id, source = store.run_id(method="dfa", seed=2), store.run_id(method="bp", seed=2, control="none")
    shutil.copy(store.artifacts(source) / schema.FINAL, store.artifacts(run_id) / schema.FINAL)
    measure_again_and_record(store, run_id)
    return run_id


def mismatches(report) -> set[str]:
    """The ids of the runs whose integrity is a mismatch; nothing else is left out."""
    assert {found.integrity.state for found in report.excluded} == {"mismatch"}
    return {found.run_id for found in report.excluded}


def both_of_the_pair(store, bp_as_dfa: str) -> set[str]:
    """The forged run and the one whose weights it has: that two runs share weights is a finding on both."""
    return {bp_as_dfa, store.run_id(method="bp", seed=2, control="none")}


def test_bp_weights_under_dfas_name_with_bps_first_steps_do_not_come_again(store, audit, bp_as_dfa):
    source = load_tensors(store.artifacts(store.run_id(method="bp", seed=2, control="none")) / STEP)
    held = store.artifacts(bp_as_dfa) / STEP
    own = {name: tensor for name, tensor in load_tensors(held).items() if name.startswith("feedback.")}
    save_tensors(held, {**source, **own})
    store.write_manifest(bp_as_dfa)
    code, report = audit(*nonce(store, bp_as_dfa, chosen=False))
    found = checks(report, bp_as_dfa)
    assert code == 3 and mismatches(report) == both_of_the_pair(store, bp_as_dfa)
    assert found["initial weights"] == found["feedback"] == "agrees" and found["first steps"] == "differs"
    assert "8 of 48" in detail(report, bp_as_dfa, "first steps")


@pytest.mark.long
def test_bp_weights_under_dfas_name_with_honest_first_steps_are_found_by_taking_all_steps_again(
    store, audit, bp_as_dfa
):
    code, report = audit("--replay", ALL_STEPS)
    assert code == 3 and mismatches(report) == both_of_the_pair(store, bp_as_dfa)
    assert "after epoch 4, " in detail(report, bp_as_dfa, "first steps")
    honest = store.run_id(method="fa", seed=1)
    assert checks(report, honest)["first steps"] == "agrees"
    _, report = audit("--run", honest, "--replay", "3")  # the recorded state is that of step 8
    assert checks(report, honest)["first steps"] == "not possible"


@pytest.mark.parametrize("value", ["0", "-1", "some"])
def test_only_a_number_of_steps_auto_or_off_is_asked_for(store, value):
    for command in ("audit", "verify"):
        result = call(command, "--study", "tiny", "--replay", value)
        assert result.exit_code == 2 and "replay: " in result.stderr


@pytest.fixture
def dressed(store, monkeypatch):
    """dressed("ALWAYS_BP"): trains two epochs of that method under the name dfa2; returns the run's id."""

    def train(attribute: str) -> str:
        put_plugin(monkeypatch, methods.CATALOG, "dfa2", Location(forgeries.__name__, attribute, forgeries.__file__))
        result = call("train", "--method", "dfa2", "--seed", "5", "--epochs", "2", *SIZES, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["run_id"]

    return train


variant = partial(pytest.param, marks=pytest.mark.long)  # seen at the same moment, with the same words, as another


@pytest.mark.parametrize(
    ("attribute", "when", "text"),
    [
        ("ALWAYS_BP", "at step 1", DISGUISED),
        variant("NOTICES_GRAD_MODE", "at step 1", DISGUISED),
        variant("KNOWS_THE_TEST_IMAGES", "at step 1", DISGUISED),
        variant("NOTICES_THE_GRADIENTS", "at step 1", OTHERWISE),
        ("NOTICES_THE_MODE", "at step 1", OTHERWISE),
        variant("NOTICES_THE_GENERATOR", "at step 1", OTHERWISE),
        ("WAITS_UNTIL_UNOBSERVED", "at the final weights", OTHERWISE),
        ("TRAINED_BY_BP", "at step 1", "the method is trained end to end"),
        variant("BP_DRESSED_AS_WEIGHT_FA", "at step 1", DISGUISED),
        variant("WEIGHT_FA_MEASURED_AS_BP", "at step 1", OTHERWISE),
    ],
)
def test_backpropagation_behind_another_name_is_caught_by_the_audit_itself(dressed, audit, attribute, when, text):
    run_id = dressed(attribute)
    code, report = audit("--run", run_id)
    assert code == 3 and not report.runs and only_mismatch(report) == run_id
    found = [check for check in integrity_of(report, run_id).checks if check.subject == "training credit"]
    assert found[0].outcome == "differs" and found[0].detail.startswith(f"{when}: {text}")
    assert checks(report, run_id)["first steps"] == "agrees"  # it is what was trained, only not what it is called


def test_a_third_partys_honest_method_raises_no_alarm(dressed, audit, monkeypatch):
    monkeypatch.setattr(forgeries, "HONEST", forgeries.DirectFeedbackAlignment(), raising=False)
    run_id = dressed("HONEST")
    _, report = audit("--run", run_id)
    assert set(checks(report, run_id).values()) == {"agrees"}
    assert report.runs[0].record.integrity.state == "verified"
