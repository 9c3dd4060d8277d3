"""A captured step trains as the plain one does: bit by bit where the graph is a stand-in, and on a GPU where it is CUDA's."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from fa_registry import methods
from fa_registry.training.captured import CAPTURED, PLAIN, WARM_UP, CapturedStep
from fa_registry.training.task import prepare
from fa_registry.training.trainer import Trainer
from tests.helpers.small import supported, tiny_spec, tiny_task, weights_equal

CPU = torch.device("cpu")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def stand_in(work):
    """What a CUDA graph does to its tensors, without CUDA: the same work on the same tensors at every replay."""
    return work


def refuse(work):
    raise RuntimeError("operation not permitted when stream is capturing\nmore")


def collect(size, capture):
    seen = []
    return CapturedStep(lambda batch: seen.append(batch.tolist()), size, CPU, capture), seen


def test_every_batch_is_seen_once_and_in_order_whatever_its_size():
    step, seen = collect(2, stand_in)
    batches = list(torch.arange(13).split(2))
    for batch in batches:
        step(batch)
    assert seen == [batch.tolist() for batch in batches]
    assert step.how == CAPTURED


def test_the_first_batches_warm_up_and_only_then_it_is_captured_once():
    captured = []
    step, seen = collect(2, lambda work: captured.append(len(seen)) or work)
    for batch in torch.arange(2 * (WARM_UP + 3)).split(2):
        step(batch)
    assert captured == [WARM_UP] and len(seen) == WARM_UP + 3


def test_a_step_that_cannot_be_captured_goes_on_as_it_is_and_says_why():
    step, seen = collect(2, refuse)
    for batch in torch.arange(12).split(2):
        step(batch)
    assert [row[0] for row in seen] == [0, 2, 4, 6, 8, 10]
    assert step.how == f"{PLAIN}: the step cannot be captured: operation not permitted when stream is capturing"


@pytest.mark.parametrize("method", methods.CATALOG.names())
def test_captured_training_is_bit_equal_to_plain_training(method):
    plain, replayed = (
        Trainer(tiny_task(method=method, batch_size=100), capture=capture) for capture in (None, stand_in)
    )
    for _ in range(2):
        assert plain.run_epoch() == replayed.run_epoch()
    assert replayed.captured.how == CAPTURED and plain.captured is None
    assert weights_equal(plain.task.network, replayed.task.network)
    assert weights_equal(plain.task.feedback, replayed.task.feedback)


def test_the_order_of_an_epoch_is_made_on_the_stream_that_reads_it(monkeypatch):
    """Elsewhere its memory is free for others as soon as the epoch has been handed to the card, and not yet been read."""
    inside, made = [], []

    @contextmanager
    def own_stream(self):
        inside.append(True)
        yield
        inside.pop()

    trainer, genuine = Trainer(tiny_task()), torch.randperm
    monkeypatch.setattr(Trainer, "_on_own_stream", own_stream)
    monkeypatch.setattr(
        torch, "randperm", lambda *given, **named: made.append(bool(inside)) or genuine(*given, **named)
    )
    trainer.run_epoch()
    assert made == [True]


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("dataset", ["digits", "cifar_shaped:1000"])
@pytest.mark.parametrize("method", methods.CATALOG.names())
def test_a_cuda_graph_gives_the_numbers_of_the_plain_step(method, dataset):
    spec = tiny_spec(**{**supported(method), "method": method, "dataset": dataset, "device": "cuda", "epochs": 3})
    graph, plain = (Trainer(prepare(spec, torch.device("cuda"))) for _ in range(2))
    plain.captured = None
    for _ in range(3):
        left, right = graph.run_epoch(), plain.run_epoch()
        assert left["loss_train"].value == pytest.approx(right["loss_train"].value, rel=1e-5)
    assert graph.captured.how == CAPTURED
    for one, other in zip(graph.parameters, plain.parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
