"""blocks_trained counts blocks whose weights have moved, from the weights alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry.diagnostics import Unavailable
from fa_registry.diagnostics.feature_drift import OF_BLOCKS
from fa_registry.diagnostics.feature_drift import PLUGIN as FEATURE_DRIFT
from fa_registry.diagnostics.ladder import PLUGIN as LADDER
from fa_registry.training.measuring import measure
from tests.helpers.closed_form_tasks import initial_of
from tests.helpers.probes import one_site
from tests.helpers.tiny_tasks import observation, tiny_task, trained

START = {f"blocks.{block}.{name}": torch.ones(2) for block in (0, 1, 10) for name in ("w", "b")} | {
    "embed.w": torch.ones(2)
}


def count(moved: dict[str, torch.Tensor], sites: int = 12, initial=START):
    bench = one_site([[1.0]], [[1.0]], [[1.0]], weights={**START, **moved}, initial_weights=initial).bench
    rows = [[[1.0]]] * sites
    seen = observation(hidden=rows, gradients=rows)
    return LADDER.measure(dataclasses.replace(seen, bench=bench)).scalars["blocks_trained"]


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        ((), 0),
        (("embed.w",), 0),
        (("blocks.1.w",), 1),
        (("blocks.1.w", "blocks.1.b"), 1),
        (("blocks.10.w",), 1),  # block 10, not block 1
        (("blocks.0.b", "blocks.1.w", "blocks.10.w"), 3),
    ],
)
def test_a_block_counts_once_if_anything_in_it_moved(moved, expected):
    assert count({name: torch.tensor([1.0, 1.0 + 2**-16]) for name in moved}).value == expected


def test_the_rounding_of_a_draw_is_no_movement():
    """The initial weights that an audit draws on another processor differ in their last bits: a frozen run had 4 trained blocks."""
    assert count({"blocks.1.w": torch.tensor([1.0, 1.0 + 2**-23])}).value == 0
    zeros = {**START, "blocks.1.b": torch.zeros(2)}
    assert count({"blocks.1.b": torch.tensor([0.0, 1e-30])}, initial=zeros).value == 1


def test_reasons_and_no_blocks():
    assert count({}, initial=Unavailable("not saved")).reason == "not saved"
    assert count({}, sites=1).value == 0


@pytest.mark.parametrize(
    ("method", "control", "expected"),
    [("bp", "none", 3), ("bp", "frozen", 0), ("bp", "shallow", 0), ("fa", "none", 3)]
    + [(method, f"ladder_{trained_blocks}", trained_blocks) for method in ("bp", "dfa") for trained_blocks in range(4)],
)
def test_every_control_trains_the_blocks_it_says(method, control, expected):
    options = {"d_hidden": 8, "num_blocks": 3}
    _, _, outcome = trained(method=method, control=control, epochs=1, architecture_options=options)
    assert outcome.final.scalars["blocks_trained"].value == expected


INITIAL = {
    "embed.weight": [[3.0, 4.0]],
    "blocks.0.w": [[0.0, 6.0], [8.0, 0.0]],
    "blocks.1.w": [5.0],
    "blocks.1.b": [0.0],
}
NOW = {
    "embed.weight": [[3.0, 4.5]],
    "blocks.0.w": [[3.0, 6.0], [8.0, 4.0]],
    "blocks.1.w": [-7.0],
    "blocks.1.b": [1.0],
}


def tensors(table):
    return {name: torch.tensor(rows) for name, rows in table.items()}


def drifts(weights, initial):
    seen = one_site([[1.0]], [[1.0]], [[1.0]], weights=weights, initial_weights=initial)
    return FEATURE_DRIFT.measure(seen).scalars


def test_frobenius_distance_by_the_initial_norm():
    found = drifts(tensors(NOW), tensors(INITIAL))
    assert found["feature_drift/embed.weight"].value == pytest.approx(0.1)
    assert found["feature_drift/blocks.0.w"].value == pytest.approx(0.5)
    assert found["feature_drift/blocks.1.w"].value == pytest.approx(12 / 5)
    assert "exactly zero" in found["feature_drift/blocks.1.b"].reason
    assert found[OF_BLOCKS].value == pytest.approx(((25 + 144 + 1) / (100 + 25)) ** 0.5)
    assert len(found) == 5


@pytest.mark.parametrize(("step", "precision"), [(2.0**-23, torch.float32), (2.0**-52, torch.float64)])
def test_the_last_bit_of_a_weight_is_a_drift(step, precision):
    found = drifts({"w": torch.tensor([1.0 + step], dtype=precision)}, {"w": torch.ones(1, dtype=precision)})
    assert found["feature_drift/w"].value == step


def test_a_float64_weight_that_stayed_has_not_drifted():
    third = torch.tensor([1 / 3], dtype=torch.float64)
    assert drifts({"w": third}, {"w": third.clone()})["feature_drift/w"].value == 0.0


def test_differences_are_not_rounded_to_the_weights_precision():
    now, before = torch.tensor([1.0]), torch.tensor([3e8])  # 3e8 − 1 is no float32
    assert drifts({"w": now}, {"w": before})["feature_drift/w"].value == (3e8 - 1) / 3e8


def test_only_what_is_named_blocks_is_of_the_blocks():
    weights = {"b_out.weight": torch.ones(1), "blocks.0.w": torch.ones(1)}
    found = drifts({"b_out.weight": torch.zeros(1), "blocks.0.w": torch.ones(1) * 3}, weights)
    assert found[OF_BLOCKS].value == 2.0


def test_untouched_weights_have_not_drifted():
    task = tiny_task()
    found = measure(task, moments=("final",), initial=initial_of(task)).scalars
    names = {f"feature_drift/{name}" for name, _ in task.network.named_parameters()}
    assert names <= set(found)
    assert {found[name].value for name in names} == {0.0, None}
    assert found[OF_BLOCKS].value == 0.0


def test_reasons():
    lost = drifts(tensors(NOW), Unavailable("the run's initial weights were not saved"))
    assert all("not saved" in reading.reason for reading in lost.values())
    assert set(lost) == set(drifts(tensors(NOW), tensors(INITIAL)))
    shallow = {"embed.weight": torch.ones(2)}
    assert "no block" in drifts(shallow, shallow)[OF_BLOCKS].reason
    other = drifts({"w": torch.ones(2, 3)}, {"w": torch.ones(3, 2)})["feature_drift/w"]
    assert "shape (2, 3)" in other.reason
    assert drifts({"w": torch.tensor([float("inf")])}, {"w": torch.ones(1)})["feature_drift/w"].not_finite
