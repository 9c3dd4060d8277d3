"""Loops that train block by block, each with its frozen control: they work, or the error says to skip frozen blocks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import fa_registry
from fa_registry.errors import UsageError
from fa_registry.external.frozen_control import SKIP
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.own_models.test_controls import CLASSES, WIDTH, Plain, changed, weights

pytestmark = pytest.mark.long

SITES = {"sites": Plain.sites, "skip": "outside", "readout": "head"}
ADVICE = "if not any(weight.requires_grad for weight in block.parameters()): continue"


class Residual(Plain):
    def forward(self, x):
        h = self.stem(x)
        for layer in self.layers:
            h = h + layer(h)
        return self.head(h)


@pytest.fixture
def batch():
    return torch.randn(16, 5, generator=torch.Generator().manual_seed(1)), torch.arange(16) % CLASSES


def blocks_of(model, x, y):
    """Yield (block, its output at a detached input, its credit); the head learns from the exact loss."""
    h = model.stem(x).detach()
    outputs = []
    for layer in model.layers:
        outputs.append(h + layer(h))
        h = outputs[-1].detach()
    z = model.head(h)
    F.cross_entropy(z, y).backward()
    error = (z.detach().softmax(1) - F.one_hot(y, CLASSES)) / len(y)
    # not ones: the error of a sample sums to 0, so its credit would be rounding noise
    feedback = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(2))
    yield from ((layer, out, error @ feedback) for layer, out in zip(model.layers, outputs, strict=True))


def by_backward(block, out, credit):
    out.backward(credit)


def by_loss(block, out, credit):
    (out * credit).sum().backward()


def by_grad(block, out, credit):
    for weight, gradient in zip(block.parameters(), torch.autograd.grad(out, block.parameters(), credit), strict=True):
        weight.grad = gradient


def by_rescaled_gradient(block, out, credit):
    out.backward(credit)
    for weight in block.parameters():
        weight.grad.mul_(0.1)


def by_step(block, out, credit):
    out.backward(credit)
    for weight in block.parameters():
        weight.data -= 0.1 * weight.grad


def by_optimizer(block, out, credit):
    torch.optim.SGD([weight for weight in block.parameters() if weight.requires_grad], lr=0.1)


def by_hand(block, out, credit):
    with torch.no_grad():
        block[0].weight -= 0.1 * credit.T @ out


def run_control(model, batch, rule, epochs=2):
    """Train the frozen control of `model`; an epoch is one step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    run = fa_registry.track(model, **SITES, eval=batch, method="mine", control=True)
    with run:
        for _ in range(epochs):
            optimizer.zero_grad()
            for block, out, credit in blocks_of(model, *batch):
                rule(block, out, credit)
            optimizer.step()
            run.epoch(test_accuracy=0.5)
    return run


@pytest.mark.parametrize("rule", [by_backward, by_loss])
def test_one_backward_per_block_at_detached_inputs_has_a_control(workplace, batch, rule):
    model = Residual()
    before = weights(model)
    run = run_control(model, batch, rule)
    assert changed(model, before) == {"head.weight", "head.bias"}
    assert MlflowTracker().get(run.run_id).tags[schema.TAG_STATUS] == "complete"


@pytest.mark.parametrize("rule", [by_grad, by_rescaled_gradient, by_step, by_optimizer])
def test_a_loop_that_needs_gradients_of_frozen_blocks_is_told_to_skip_them(workplace, batch, rule):
    with pytest.raises((RuntimeError, AttributeError, TypeError, ValueError)) as failed:
        run_control(Residual(), batch, rule)
    (note,) = failed.value.__notes__
    assert note.startswith("frozen_control:") and "layers.0.0.weight" in note and ADVICE in note

    def skipping(block, out, credit):
        if any(weight.requires_grad for weight in block.parameters()):
            rule(block, out, credit)

    assert run_control(Residual(), batch, skipping).done == 2, "the advice works"


def test_an_error_that_has_another_cause_has_no_note(batch):
    with pytest.raises(ValueError) as failed, fa_registry.frozen_control(Residual(), ["layers"]):
        raise ValueError("mine")
    assert not hasattr(failed.value, "__notes__")


def test_a_loop_that_writes_frozen_weights_fails_after_its_first_epoch(workplace, batch):
    with pytest.raises(UsageError, match="changed although frozen") as failed:
        run_control(Residual(), batch, by_hand, epochs=100)
    assert SKIP in str(failed.value)
    (stored,) = MlflowTracker().search({schema.TAG_KIND: "run"})
    assert stored.tags[schema.TAG_STATUS] == "failed" and stored.tags[schema.TAG_EPOCH].startswith("1 of")


def test_the_end_prints_the_run_and_its_address(workplace, batch, capsys):
    run = run_control(Residual(), batch, by_backward)
    frozen, first, second, third = capsys.readouterr().out.splitlines()
    assert frozen.startswith("frozen: 4 parameters: ")
    assert third == "to judge the runs: fa-registry audit --experiment fa_registry"
    assert run.run_id in first and "complete after epoch 2" in first
    assert second.startswith("run page: http://127.0.0.1:5000/#/experiments/")
    assert second.endswith(f"/runs/{run.run_id}?workflowType=machine_learning (after `fa-registry ui`)")


def test_the_command_that_serves_a_page_names_the_store_only_if_it_is_not_the_default(workplace):
    from fa_registry.tracking.stores import page_lines, served

    assert served("http://host:5000/", "http://host:5000/#/experiments") == "http://host:5000/#/experiments"
    assert "--store" not in "".join(page_lines("p", MlflowTracker().uri))
    assert "--store 'sqlite:////a b/c.db'" in "".join(page_lines("p", "sqlite:////a b/c.db"))
    assert list(page_lines("", "sqlite:///c.db")) == []
