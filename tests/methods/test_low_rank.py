"""The option `rank` of dfa and weight_fa: rank, variance, refused sizes, and runs of full rank as before the option."""

from __future__ import annotations

import pytest
import torch

from fa_registry.errors import UsageError
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.dfa import PLUGIN as DFA
from fa_registry.methods.weight_fa import PLUGIN as WEIGHT_FA
from fa_registry.training.trainer import Trainer
from tests.helpers.tiny_tasks import tiny_spec, tiny_task

SHAPE = NetworkShape(
    (60, 60, 60), 40, weights={"blocks.0.w1": (60, 60), "blocks.0.conv": (50, 20, 3, 3), "out_head": (40, 60)}
)


def state(method, rank: int | None, seed: int = 0) -> dict[str, torch.Tensor]:
    options = {} if rank is None else {"rank": rank}
    return method.feedback(SHAPE, options, torch.Generator().manual_seed(seed)).state_dict()


@pytest.mark.parametrize("rank", [1, 7, 40])
@pytest.mark.parametrize("method", [DFA, WEIGHT_FA])
def test_every_matrix_has_the_rank(method, rank):
    for name, matrix in state(method, rank).items():
        assert torch.linalg.matrix_rank(matrix.flatten(1).double(), rtol=1e-5) == rank, name


@pytest.mark.parametrize("method", [DFA, WEIGHT_FA])
def test_entries_have_the_variance_of_full_rank(method):
    """Mean over 40 draws, because the entries of one matrix of rank 3 are dependent."""
    draws = [state(method, 3, seed) for seed in range(40)]
    for name, full in state(method, 0).items():
        found = torch.stack([draw[name] for draw in draws])
        variance = 1 / 40 if method is DFA else 1 / (len(full) * full[0, 0].numel())
        assert found.var().item() == pytest.approx(variance, rel=0.1), name
        assert full.var().item() == pytest.approx(variance, rel=0.1), name


@pytest.mark.parametrize("method", [DFA, WEIGHT_FA])
def test_full_rank_is_what_it_was_without_the_option(method):
    missing, zero = state(method, None), state(method, 0)
    assert all(torch.equal(missing[name], zero[name]) for name in zero)


@pytest.mark.parametrize("method", ["dfa", "weight_fa"])
def test_the_default_is_no_part_of_a_specification(method):
    plain, zero, low = (tiny_spec(method=method, method_options=each) for each in ({}, {"rank": 0}, {"rank": "2"}))
    assert plain.identity == zero.identity != low.identity
    assert plain.method_options == zero.method_options == {} and low.method_options == {"rank": 2}


@pytest.mark.parametrize(("method", "layer"), [("dfa", "B_2"), ("weight_fa", "out_head")])
def test_a_rank_above_the_size_of_a_layer_is_refused_with_that_size(method, layer):
    with pytest.raises(UsageError) as caught:
        tiny_task(method=method, method_options={"rank": 11})
    assert all(text in str(caught.value) for text in ("rank", layer, "10", "11", "16"))
    tiny_task(method=method, method_options={"rank": 10})


@pytest.mark.parametrize("method", ["dfa", "weight_fa"])
def test_low_rank_trains(method):
    trainer = Trainer(tiny_task(method=method, method_options={"rank": 2}))
    first, second = (trainer.run_epoch()["loss_train"].value for _ in range(2))
    assert second < first
