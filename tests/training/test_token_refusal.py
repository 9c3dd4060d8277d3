"""The task classification refuses one target per position with a sentence, and never measures it wrongly.

With T = V cross entropy takes positions for classes without an error.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
import torch
from torch import nn

from fa_registry import datasets
from fa_registry.diagnostics import run_forward_backward
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.tasks import CATALOG, sample_losses
from fa_registry.training.run_setup import build_setup
from fa_registry.training.step import OutputError
from tests.helpers.tiny_tasks import CPU, tiny_spec

VOCABULARY = 10
LENGTHS = (VOCABULARY, 6)  # T = V, and T ≠ V
REFUSED = "one target per position"


class TokenNetwork(nn.Module):
    """Logits (N, T, V) of token numbers (N, T), one block around the stream."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.blocks = nn.Embedding(VOCABULARY, 8), nn.ModuleList([nn.Linear(8, 8)])
        self.out_head = nn.Linear(8, VOCABULARY)

    def forward(self, tokens, return_hidden=False):
        states = [self.embed(tokens)]
        for block in self.blocks:
            states.append(states[-1] + block(states[-1]))
        logits = self.out_head(states[-1])
        return (logits, states) if return_hidden else logits


def tokens(length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (12, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("length", LENGTHS)
def test_the_loss_the_error_and_the_step_refuse_one_target_per_position(length):
    labels = tokens(length)
    outputs = torch.randn(12, length, VOCABULARY)
    task = CATALOG.get("classification")
    step = partial(OutputError.of, task=task)
    for measured in (task.sample_losses, task.target_rows, task.output_error, step):
        with pytest.raises(UsageError, match=REFUSED) as refused:
            measured(outputs, labels)
        assert str(tuple(outputs.shape)) in str(refused.value) and str(tuple(labels.shape)) in str(refused.value)


@pytest.mark.parametrize(
    ("outputs", "labels"),
    [
        (torch.zeros(4, 3), torch.zeros(4, 3, dtype=torch.int64)),  # class numbers per output
        (torch.zeros(4, 3), torch.zeros(5, dtype=torch.int64)),  # another number of samples
        (torch.zeros(4, 3), torch.zeros(4)),  # values that would be broadcast over the outputs
        (torch.zeros(4, 3, 2), torch.zeros(4, 3, 2)),  # values per position
        (torch.zeros(4), torch.zeros(4, dtype=torch.int64)),
    ],
)
def test_targets_that_do_not_fit_the_outputs_are_refused(outputs, labels):
    with pytest.raises(UsageError, match=REFUSED):
        sample_losses(outputs, labels)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_forward_and_backward_pass_on_tokens_is_refused(length):
    with pytest.raises(UsageError, match=REFUSED):
        run_forward_backward(TokenNetwork(), tokens(length), tokens(length), task=CATALOG.get("classification"))


class Tokens(datasets.base.Dataset):
    """The digits with labels of another shape."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, task: str):
        self._digits, self._shape, self._dtype = datasets.get("digits"), shape, dtype
        self.card = dataclasses.replace(self._digits.card, name="tokens", task=task)

    def load(self, device, root=None, seed=0):
        splits = self._digits.load(device, root, seed)
        train, test = (
            torch.zeros(len(old), *self._shape, dtype=self._dtype) for old in (splits.train_labels, splits.test_labels)
        )
        return dataclasses.replace(splits, train_labels=train, test_labels=test)


@pytest.mark.parametrize(
    ("shape", "dtype", "task"),
    [
        ((VOCABULARY,), torch.int64, "classification"),
        ((6,), torch.int64, "classification"),
        ((), torch.float32, ""),
        ((6,), torch.float32, ""),
    ],
)
def test_a_data_set_with_targets_of_another_shape_is_refused_before_training(monkeypatch, shape, dtype, task):
    spec = tiny_spec()
    dataset = Tokens(shape, dtype, task)
    monkeypatch.setattr(datasets, "get", lambda name: dataset)
    with pytest.raises(InvalidFields, match=REFUSED) as refused:
        build_setup(dataclasses.replace(spec), CPU)  # a copy looks its plug-ins up again
    assert len(refused.value.problems) == 2
    assert refused.value.problems[0].startswith("train_labels: ") and refused.value.problems[1].startswith(
        "test_labels: "
    )
