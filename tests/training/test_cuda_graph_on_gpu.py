"""On a GPU: CUDA's own graph trains as the plain step does and waits for nothing.

No capture is broken here on purpose: it would spoil all later ones of the process (see fa_registry.training.cuda_graph).
"""

from __future__ import annotations

import gc

import pytest
import torch

from fa_registry import methods
from fa_registry.training.cuda_graph import CAPTURED
from fa_registry.training.run_setup import build_setup
from fa_registry.training.trainer import Trainer
from tests.helpers.nets import TINY
from tests.helpers.tiny_tasks import supported, tiny_spec

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def on_card(method, **changes):
    fields = {**supported(method), "method": method, "device": "cuda", "epochs": 5, **changes}
    return Trainer(build_setup(tiny_spec(**fields), torch.device("cuda")))


CONV = {"architecture": "small_resnet", "architecture_options": TINY["small_resnet"], "dataset": "cifar_shaped:1000"}


@pytest.mark.parametrize("dataset", ["digits", "cifar_shaped:1000"])
@pytest.mark.parametrize("method", methods.CATALOG.names())
def test_a_cuda_graph_gives_the_numbers_of_the_plain_step(method, dataset):
    graph = on_card(method, dataset=dataset)
    agree(graph, on_card(method, dataset=dataset))
    assert graph.stepping == CAPTURED


@pytest.mark.parametrize(
    "changes", [CONV, {"precision": "bf16"}, {"precision": "tf32"}, {"optimizer": "sgd"}, {"penalty": 0.01}]
)
def test_so_it_does_for_kernels_rounded_products_and_another_optimiser(changes):
    graph = on_card("dfa", **changes)
    agree(graph, on_card("dfa", **changes))
    assert graph.stepping == CAPTURED


def agree(graph, plain):
    """Five epochs: after three the shorter last batch has its graph too."""
    plain.captured = None
    for _ in range(5):
        left, right = graph.run_epoch(), plain.run_epoch()
        assert left["loss_train"].value == pytest.approx(right["loss_train"].value, rel=1e-5)
    for one, other in zip(graph.parameters, plain.parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    for name, draw in graph.generators.items():
        assert torch.equal(draw.get_state(), plain.generators[name].get_state()), name


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("method", methods.CATALOG.names())
def test_the_steps_of_an_epoch_never_wait_for_the_card(method):
    trainer = on_card(method)
    order = torch.arange(6 * 128, device="cuda").split(128)
    trainer.train_batch(order)
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.train_batch(order)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert trainer.stepping == CAPTURED


def test_a_method_that_looks_at_its_numbers_trains_on_step_by_step(monkeypatch):
    trainer, plain = on_card("weight_mirror"), on_card("weight_mirror")
    genuine = type(trainer.setup.method).update_feedback

    def looking(self, feedback, inputs):
        assert inputs.losses.sum().item() > 0
        genuine(self, feedback, inputs)

    plain.run_epoch()
    monkeypatch.setattr(type(trainer.setup.method), "update_feedback", looking)
    trainer.run_epoch()
    assert "test_cuda_graph_on_gpu.py" in trainer.stepping
    for one, other in zip(trainer.parameters, plain.parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_trainer_that_is_gone_has_given_its_memory_back():
    def used():
        trainer = on_card("dfa")
        trainer.run_epoch()
        assert trainer.stepping == CAPTURED

    def held():
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()  # one a stream, for good
        return torch.cuda.memory_allocated()

    used()
    gc.collect()
    before = held()
    gc.disable()
    try:
        used()
        assert held() <= before
    finally:
        gc.enable()
