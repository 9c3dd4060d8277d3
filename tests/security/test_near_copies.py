"""Final weights that are another run's but for some numbers: found by distance, and no honest run is accused."""

from __future__ import annotations

import itertools

import pytest
import torch
from safetensors.torch import load_file, save_file

from fa_registry.records import RunRecord
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import content_digest
from fa_registry.workflows import near_copies
from fa_registry.workflows.near_copies import LIMIT, NEAREST_HONEST, distance, initial_weights, may_be_near
from tests.builders import record, spec
from tests.security.test_replay_from_seed import decoded, measure_again_and_seal
from tests.security.test_settings_beside import train
from tests.security.test_tables import caught

NEAR = "final weights: the same weights as run "


def file_weights(store, source, target, change):
    """Put the source's final weights into the target, changed, with all metrics recomputed, and record all digests."""
    tensors = change(load_file(store.artifacts(source) / schema.FINAL))
    save_file(tensors, store.artifacts(target) / schema.FINAL)
    digest = content_digest(tensors)
    store.change_json(target, schema.PROVENANCE, lambda held: held.update(final_weights=digest))
    store.set_tag(target, schema.TAG_WEIGHTS, digest)
    measure_again_and_seal(store, target)


def one_number(tensors):
    tensors["blocks.0.w1.weight"][0, 0] += 10.0
    return tensors


def some_numbers(tensors):
    """A third of the numbers of every tensor by as much as they are."""
    for tensor in tensors.values():
        tensor.view(-1)[::3] *= 2.0
    return tensors


def every_number(tensors):
    draw = torch.Generator().manual_seed(0)
    return {name: tensor * (1 + 1e-6 * torch.randn(tensor.shape, generator=draw)) for name, tensor in tensors.items()}


def weights_of(store):
    """Of every run of the store: its specification and its final weights."""
    ids = store.run_ids()
    return [(decoded(store, run_id), load_file(store.artifacts(run_id) / schema.FINAL)) for run_id in ids]


@pytest.mark.parametrize("seeds", [(3, 2, 1), (1, 3, 2)], ids=["one seed", "another seed"])
def test_weights_of_bp_filed_as_dfa_are_a_finding_on_both(store, audit, seeds):
    pairs = []
    for change, seed, other in zip((one_number, some_numbers, every_number), (3, 2, 1), seeds, strict=True):
        source, target = store.run_id(method="bp", seed=other, control="none"), store.run_id(method="dfa", seed=seed)
        file_weights(store, source, target, change)
        pairs += [(source, target), (target, source)]
    code, report = audit("--trust-logged")
    assert code == 3 and {one.run_id for one in report.excluded} == {one for one, _ in pairs}
    for one, other in pairs:
        caught(report, one, f"{NEAR}{other}")


def test_a_changed_small_tensor_hides_no_copy(store, audit):
    """Every number changed a little, and one tensor by more than training changed it."""

    def change(tensors):
        return {**every_number(tensors), "out_head.bias": tensors["out_head.bias"] * 3.0 + 1.0}

    source, target = store.run_id(method="bp", seed=3, control="none"), store.run_id(method="dfa", seed=2)
    file_weights(store, source, target, change)
    code, report = audit("--trust-logged")
    assert code == 3 and {one.run_id for one in report.excluded} == {source, target}
    caught(report, source, f"{NEAR}{target}")
    caught(report, target, f"{NEAR}{source}")


def test_one_block_of_another_run_is_a_finding_on_both(store, audit):
    source, target = store.run_id(method="bp", seed=2, control="none"), store.run_id(method="dfa", seed=1)
    own = load_file(store.artifacts(target) / schema.FINAL)
    file_weights(store, source, target, lambda held: {**own, "blocks.1.w1.weight": held["blocks.1.w1.weight"]})
    _, report = audit("--trust-logged")
    for one, other in ((source, target), (target, source)):
        text = "in 1 trained tensor, bit by bit, e.g. blocks.1.w1.weight"
        caught(report, one, f"{NEAR}{other}")
        assert any(text in " ".join(excluded.integrity.details) for excluded in report.excluded)


def test_the_honest_store_raises_no_alarm_and_keeps_its_distance(store, audit):
    _, report = audit("--trust-logged")
    assert not report.excluded and len(report.runs) == 12
    found = []
    for (one, held), (other, its) in itertools.combinations(weights_of(store), 2):
        if held.keys() == its.keys() and not may_be_near(one, other):
            found.append(distance(held, its, initial_weights(one)))
    assert len(found) == 66 and min(found) > NEAREST_HONEST > 4 * LIMIT


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
    ({"control": "ladder_1", "method": "fa"}, {"control": "ladder_1", "method": "bp"}),
    ({**MLP, "method": "fa"}, {**MLP, "method": "bp"}),
    ({**MLP, "method": "bp"}, {**MLP, "method": "bp", "seed": 43}),
    ({"weights": "a"}, {"method": "bp"}),
]


@pytest.mark.parametrize(("one", "other"), MAY)
def test_what_is_near_by_construction_is_not_compared(one, other):
    assert may_be_near(spec(**one), spec(**other)) and may_be_near(spec(**other), spec(**one))


@pytest.mark.parametrize(("one", "other"), MAY_NOT)
def test_what_has_no_reason_to_be_near_is_compared(one, other):
    assert not may_be_near(spec(**one), spec(**other)) and not may_be_near(spec(**other), spec(**one))


def test_many_runs_cost_no_comparison_of_every_pair(monkeypatch):
    """Of 2,000 runs of which two are alike, few pairs are compared entry by entry."""
    draw = torch.Generator().manual_seed(0)
    held = {f"{number:032x}": {"w": torch.randn(500, generator=draw)} for number in range(2000)}
    held[f"{1999:032x}"] = {"w": held[f"{0:032x}"]["w"] * (1 + 1e-5)}
    initial, asked = {"w": torch.randn(500, generator=draw)}, []

    def read(tracker, run_id):
        asked.append(run_id)
        return held[run_id]

    monkeypatch.setattr(near_copies, "_held", read)
    monkeypatch.setattr(near_copies, "initial_weights", lambda spec: initial)
    records = [_record(run_id, seed) for seed, run_id in enumerate(held)]
    found = near_copies.near_copies(None, records)
    assert {run_id: list(others) for run_id, others in found.items()} == {
        f"{0:032x}": [f"{1999:032x}"],
        f"{1999:032x}": [f"{0:032x}"],
    }
    assert len(asked) == 2000 + 2


def _record(run_id: str, seed: int) -> RunRecord:
    return record(run_id, seed=seed)
