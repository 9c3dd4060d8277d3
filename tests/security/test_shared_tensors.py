"""Final weights of which a trained tensor is another run's, bit by bit: found on both, and no honest run is accused."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file, save_file

from fa_registry.evidence.duplicate_weights import may_share_tensors
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import content_digest
from tests.builders import spec
from tests.security.test_replay_from_seed import measure_again_and_record
from tests.security.test_settings_beside import train
from tests.security.test_tables import caught

pytestmark = pytest.mark.long


def file_weights(store, source, target, change):
    """Put the source's final weights into the target, changed, with all metrics recomputed, and record all digests."""
    tensors = change(*(load_file(store.artifacts(run_id) / schema.FINAL) for run_id in (source, target)))
    save_file(tensors, store.artifacts(target) / schema.FINAL)
    digest = content_digest(tensors)
    store.change_json(target, schema.PROVENANCE, lambda held: held.update(final_weights=digest))
    store.set_tag(target, schema.TAG_WEIGHTS, digest)
    measure_again_and_record(store, target)


def one_number(tensors, own):
    tensors["blocks.0.w1.weight"][0, 0] += 10.0
    return tensors


def one_block(tensors, own):
    return {**own, "blocks.1.w1.weight": tensors["blocks.1.w1.weight"]}


@pytest.mark.parametrize(
    ("seeds", "change"),
    [((3, 3), one_number), ((2, 3), one_number), ((2, 1), one_block)],
    ids=["one seed", "another seed", "one block of another run"],
)
def test_weights_of_bp_filed_as_dfa_are_a_finding_on_both(store, audit, seeds, change):
    source, target = store.run_id(method="bp", seed=seeds[0], control="none"), store.run_id(method="dfa", seed=seeds[1])
    file_weights(store, source, target, change)
    code, report = audit("--trust-logged")
    assert code == 3 and {one.run_id for one in report.excluded} == {source, target}
    for one, other in ((source, target), (target, source)):
        caught(report, one, "final weights: ", other)
    texts = [" ".join(excluded.integrity.details) for excluded in report.excluded]
    assert change is one_number or all("1 trained tensor" in text and "blocks.1.w1.weight" in text for text in texts)


def test_settings_that_hardly_differ_raise_no_alarm(store, audit):
    """A learning rate of 1e-3 and of 1.0000001e-3, a tiny penalty, a run that was trained twice, and a ladder's controls."""
    train("--method", "bp", "--seed", "1", recipe="learning_rate=1.0000001e-3")
    train("--method", "dfa", "--seed", "1", "--penalty", "1e-7")
    train("--method", "dfa", "--seed", "1", "--control", "ladder_1")
    train("--method", "dfa", "--seed", "1", "--control", "ladder_2")
    train("--method", "dfa", "--seed", "1", "--force")
    _, report = audit("--experiment", "fa_registry", "--trust-logged")
    assert not report.excluded and len(report.runs) == 17


def test_runs_of_one_epoch_and_a_sweep_of_penalties_raise_no_alarm(store, audit):
    for method in ("bp", "fa", "dfa"):
        for penalty in ("0", "0.01"):
            train("--method", method, "--seed", "1", "--epochs", "1", "--penalty", penalty)
    train("--method", "bp", "--control", "frozen", "--seed", "1", "--epochs", "1")
    _, report = audit("--experiment", "fa_registry", "--trust-logged")
    assert not report.excluded and len(report.runs) == 12 + 7


def test_runs_of_one_step_raise_no_alarm(store, audit):
    """The readout has the exact gradient under every method, so its first step is the same."""
    for method in ("bp", "dfa"):
        train("--method", method, "--seed", "1", "--epochs", "1", recipe="batch_size=1437")
    _, report = audit("--experiment", "fa_registry", "--trust-logged")
    assert not report.excluded and len(report.runs) == 12 + 2


MLP = {"architecture": "mlp", "architecture_options": {"d_hidden": 16, "num_blocks": 2}}
MAY = [
    ({}, {"penalty": 0.1}),
    ({"control": "ladder_2"}, {"penalty": 1e-7}),
    ({"weights": "a"}, {"weights": "b", "method": "fa"}),
    ({**MLP, "method": "fa", "control": "ladder_1"}, {**MLP, "method": "bp", "control": "ladder_1"}),
    ({**MLP, "method": "dfa", "control": "ladder_0"}, {**MLP, "method": "bp", "control": "frozen"}),
]
MAY_NOT = [
    ({}, {"method": "bp"}),
    ({}, {"seed": 43}),
    ({"control": "frozen", "method": "bp"}, {"method": "bp"}),
    *(
        ({"control": "deep_supervision", "method": "bp"}, {"control": one, "method": "bp"})
        for one in ("none", "frozen")
    ),
    ({"control": "ladder_1", "method": "fa"}, {"control": "ladder_1", "method": "bp"}),
    ({**MLP, "method": "fa"}, {**MLP, "method": "bp"}),
    ({**MLP, "method": "bp"}, {**MLP, "method": "bp", "seed": 43}),
    ({"weights": "a"}, {"method": "bp"}),
]


@pytest.mark.parametrize(("one", "other"), MAY)
def test_runs_that_may_share_a_tensor_are_not_compared(one, other):
    assert may_share_tensors(spec(**one), spec(**other)) and may_share_tensors(spec(**other), spec(**one))


@pytest.mark.parametrize(("one", "other"), MAY_NOT)
def test_runs_that_have_no_reason_to_share_a_tensor_are_compared(one, other):
    assert not may_share_tensors(spec(**one), spec(**other)) and not may_share_tensors(spec(**other), spec(**one))
