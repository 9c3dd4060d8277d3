"""A captured step trains as the plain one does, bit by bit: here the graph is a stand-in, in test_cuda_graph_on_gpu CUDA's."""

from __future__ import annotations

import gc
import warnings
import weakref
from functools import partial

import pytest
import torch

from fa_registry.training.cuda_graph import CAPTURED, WARM_UP, CapturedStep, rehearsed
from fa_registry.training.measuring import measure
from fa_registry.training.trainer import Trainer
from tests.helpers.covering import every_method
from tests.helpers.tiny_tasks import tiny_task, weights_equal

CPU = torch.device("cpu")


def stand_in(work):
    """What a CUDA graph does to its tensors, without CUDA: the same work on the same tensors at every replay."""
    return work


def refuse(work):
    raise RuntimeError("operation not permitted when stream is capturing\nmore")


def collect(capture):
    seen = []
    return partial(CapturedStep(CPU, capture), lambda batch: seen.append(batch.tolist())), seen


def test_every_batch_is_seen_once_and_in_order_whatever_its_size():
    step, seen = collect(stand_in)
    batches = list(torch.arange(13).split(2))
    for batch in batches:
        step(batch)
    assert seen == [batch.tolist() for batch in batches]
    assert step.func.how == CAPTURED


def test_the_first_batches_warm_up_and_only_then_it_is_captured_once():
    after = []
    step, seen = collect(lambda work: after.append(len(seen)) or work)
    for batch in torch.arange(2 * (WARM_UP + 3)).split(2):
        step(batch)
    assert after == [WARM_UP] and len(seen) == WARM_UP + 3


def test_every_size_of_batch_has_a_graph_of_its_own_and_indices_that_stay_where_they_are():
    """An epoch's last batch is shorter: step by step it would take as long as ten others."""
    places, after = [], []
    step = partial(
        CapturedStep(CPU, lambda work: after.append(len(places)) or work), lambda batch: places.append(batch.data_ptr())
    )
    for _ in range(WARM_UP + 2):
        for batch in torch.arange(5).split(3):
            step(batch)
    assert after == [2 * WARM_UP, 2 * WARM_UP + 1]
    assert set(places[::2]) == {places[0]} != {places[1]} == set(places[1::2])


def test_a_capture_that_broke_off_names_what_broke_it():
    def broken(work):
        try:
            raise RuntimeError("operation not permitted when stream is capturing")
        finally:
            raise RuntimeError(
                "operation failed due to a previous error during capture"
            )  # as torch does on the way out

    step, _ = collect(broken)
    for batch in torch.arange(12).split(2):
        step(batch)
    assert "not permitted" in step.func.how


def test_a_refusal_releases_the_graphs_of_other_sizes():
    graphs = []

    def capture(work):
        if graphs:
            raise RuntimeError("not again")

        def replay():
            """CUDA's graph does not hold the work."""

        graphs.append(weakref.ref(replay))
        return replay

    step, _ = collect(capture)
    for _ in range(WARM_UP + 1):
        for batch in torch.arange(5).split(3):
            step(batch)
    assert [graph() for graph in graphs] == [None] and step.func.refused == "not again"


@pytest.fixture
def sync_debug(monkeypatch):
    """torch's sync debug mode without a card: what it was set to, in order."""
    modes = []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)

    def set_mode(mode):
        modes.append(mode)
        if mode:  # as torch does for its first use
            warnings.warn(
                "Synchronization debug mode is a prototype feature and does not detect all waits", stacklevel=1
            )

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    return modes


def test_a_rehearsal_does_the_work_once_and_says_where_it_waits(sync_debug):
    done = []

    def waiting():
        done.append(sync_debug[-1])
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)

    assert "test_cuda_graph.py, line " in rehearsed(waiting, torch.device("cuda"))
    assert done == ["warn"] and sync_debug == ["warn", 0]
    with pytest.warns(UserWarning, match="something else"):
        assert rehearsed(lambda: warnings.warn("something else", stacklevel=1), torch.device("cuda")) == ""


def test_the_mode_comes_back_when_a_rehearsed_step_raises(sync_debug):
    with pytest.raises(ZeroDivisionError):
        rehearsed(lambda: 1 / 0, torch.device("cuda"))
    assert sync_debug == ["warn", 0]


@pytest.mark.parametrize(
    "capture", [lambda work: work() or (lambda: None), refuse]
)  # CUDA's graph does not hold the work
def test_a_trainer_is_gone_with_its_last_owner_and_so_is_the_memory_it_holds_on_a_card(capture):
    """Not when Python next looks for cycles: a study trains hundreds, each with its data and its graph on one card."""
    trainer = Trainer(tiny_task(), capture=capture)
    trainer.run_epoch()
    watched = [weakref.ref(one) for one in (trainer, trainer.setup.network, trainer.optimizer)]
    gc.disable()
    try:
        del trainer
        assert [ref() for ref in watched] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.long
@pytest.mark.parametrize("method", every_method())
def test_captured_training_is_bit_equal_to_plain_training(method):
    plain, replayed = (
        Trainer(tiny_task(method=method, batch_size=100), capture=capture) for capture in (None, stand_in)
    )
    for _ in range(2):
        assert plain.run_epoch() == replayed.run_epoch()
    assert replayed.captured.how == CAPTURED and plain.captured is None
    assert weights_equal(plain.setup.network, replayed.setup.network)
    assert weights_equal(plain.setup.feedback, replayed.setup.feedback)


@pytest.mark.parametrize("method", ["bp", "dfa", "weight_fa", "credit_bridge"])
def test_measuring_leaves_no_node_of_autograd_behind(method):
    """A weight's node remembers the stream it was made on, CUDA's default one, from which a capture may not be entered."""
    task = tiny_task(method=method)

    def node(weight):
        return weight.expand_as(weight).grad_fn.next_functions[0][0]

    def mark(module, given, output):
        for weight in module.parameters(recurse=False):
            if weight.requires_grad and torch.is_grad_enabled():
                marked.append(weight)
                node(weight).metadata["made by"] = "measuring"

    marked = []
    for module in task.network.modules():
        module.register_forward_hook(mark)
    gc.disable()
    try:
        measured = measure(task)
        assert measured.scalars
        assert not [weight for weight in marked if "made by" in node(weight).metadata]
    finally:
        gc.enable()
