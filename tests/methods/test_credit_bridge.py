"""credit_bridge: the reference implementation of credit and losses, warm-up, moving average, and the toy LQ task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fa_registry import architectures
from fa_registry.conformance.small_networks import Setting
from fa_registry.methods import dfa
from fa_registry.methods.base import NetworkShape
from fa_registry.methods.credit_bridge import PLUGIN
from fa_registry.seeding import generator
from fa_registry.tasks import sample_losses
from fa_registry.training.method_calls import compute_credits
from fa_registry.training.step import local_credit_step
from fa_registry.training.trainer import Trainer
from tests.helpers import numpy_checks
from tests.helpers.bridges import seen, slopes
from tests.helpers.numpy_mlp import slope, values
from tests.helpers.numpy_resmlp import Arrays, forward, head_back, local_gradients
from tests.helpers.tiny_tasks import double, tiny_task, trained

DEFAULTS = {name: option.default for name, option in PLUGIN.card.options.items()}
OTHERS = {"temperature": 0.5, "noise": 0.3, "draws": 3, "gradient_weight": 0.25, "thinning": 2, "condition_scale": 2.0}


def credit_bridge_reference(
    w: Arrays, feedback: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str
) -> Arrays:
    """c_l = ∂V(h_l, l/L, e)/∂h_l; in the first fifth of the training DFA's."""

    def credit(states, error, top_gradient):
        if feedback["progress"] < 0.2:
            return [error @ feedback[f"direct.B_{max(site, 1):02d}"].T for site in range(len(states))]
        return [slope(feedback, h, site, error) for site, h in enumerate(states)]

    return local_gradients(w, x, y, credit, penalty, kind)


@pytest.mark.parametrize("progress", [0.0, 0.19, 0.2, 1.0])
@pytest.mark.parametrize(("penalty", "credit_norm"), [(0.0, "none"), (0.05, "none"), (0.0, "rms"), (0.05, "rms")])
def test_step_equals_the_reference(progress, penalty, credit_norm):
    task, images, labels = numpy_checks.reference_task("credit_bridge", penalty, credit_norm)
    apart(task)
    task.feedback.progress.fill_(progress)
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)
    expected = credit_bridge_reference(weights, feedback, images.numpy(), labels.numpy(), penalty, credit_norm)
    local_credit_step(task.network, task.method, task.feedback, images, labels, penalty, credit_norm)
    for name, parameter in task.network.named_parameters():
        largest = np.abs(expected[name]).max()
        assert parameter.grad.numpy() == pytest.approx(expected[name], rel=1e-9, abs=1e-9 * largest), name


def residuals_reference(w: Arrays, f: Arrays, x: np.ndarray, y: np.ndarray, thinning: int, o: dict) -> list[np.ndarray]:
    """V(h_l) − softmin_k V̄(h_{l+1} + σξ_k) of the samples i ≡ l modulo `thinning`, l < L; at L V(h_L) − ℓ of all."""
    states, _, error = forward(w, x, y)
    weight, temperature = o["condition_scale"], o["temperature"]
    chosen = [np.arange(len(x)) % thinning == site % thinning for site in range(len(states) - 1)]
    count = sum(int(one.sum()) for one in chosen)
    noise = torch.randn(o["draws"], count, states[0].shape[1], generator=generator_of(0), dtype=torch.float64).numpy()
    found, start = [], 0
    for site, taken in enumerate(chosen):
        ahead = [h[taken] for h in states]
        draws = noise[:, start : start + int(taken.sum())] * o["noise"]
        start += int(taken.sum())
        near = [values(f, "average", ahead[site + 1] + xi, site + 1, error[taken], weight) for xi in draws]
        softmin = -temperature * np.log(np.mean(np.exp(-np.array(near) / temperature), axis=0))
        found.append(values(f, "value", ahead[site], site, error[taken], weight) - softmin)
    losses = -np.log((np.eye(error.shape[1])[y] + error)[np.arange(len(y)), y])
    return [*found, values(f, "value", states[-1], len(chosen), error, weight) - losses]


def loss_reference(w: Arrays, f: Arrays, x: np.ndarray, y: np.ndarray, o: dict) -> float:
    states, _, error = forward(w, x, y)
    *below, top = residuals_reference(w, f, x, y, min(o["thinning"], len(states) - 1), o)
    found = slope(f, states[-1], len(states) - 1, error, o["condition_scale"])
    mismatch = (((found - head_back(w, {}, states[-1], error)) * f["value.scales"][-1]) ** 2).sum(axis=1)
    return float(np.mean(np.concatenate(below) ** 2) + np.mean(top**2) + o["gradient_weight"] * np.mean(mismatch))


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def bridged(options: dict):
    """The references' task under other options of the method."""
    task, images, labels = numpy_checks.reference_task("credit_bridge", 0.0, "none")
    shape = NetworkShape((16,) * 4, 10)
    return (
        replace(task, feedback=PLUGIN.feedback(shape, {**DEFAULTS, **options}, generator_of(7)).double()),
        images,
        labels,
    )


def apart(task) -> None:
    """Move V̄ away from V and every scale from 1: one taken for the other would not show at the first draw."""
    with torch.no_grad():
        for net in (task.feedback.value, task.feedback.average):
            net.scales.copy_(torch.tensor([0.5, 1.5, 0.8, 2.0]))
        for parameter in task.feedback.average.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator_of(3), dtype=parameter.dtype) * 0.02)


@pytest.mark.parametrize("options", [{}, OTHERS])
def test_the_loss_and_its_gradient_equal_the_reference(options):
    task, images, labels = bridged(options)
    apart(task)
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)

    def reference(moved: Arrays) -> float:
        return loss_reference(weights, moved, images.numpy(), labels.numpy(), {**DEFAULTS, **options})

    loss = PLUGIN.feedback_loss(task.feedback, seen(task, images, labels))
    assert loss.item() == pytest.approx(reference(feedback), rel=1e-12)
    loss.backward()
    found, expected = slopes(reference, feedback, task.feedback)  # the differences hold V̄, and so the softmin, as it is
    assert found == pytest.approx(expected, rel=1e-6)
    assert all(parameter.grad is None for parameter in task.feedback.average.parameters())
    assert all(parameter.grad is None for parameter in task.network.parameters())


def test_bridge_residuals_equal_the_reference_at_every_site_and_sample():
    task, images, labels = numpy_checks.reference_task("credit_bridge", 0.0, "none")
    apart(task)
    inputs = seen(task, images, labels)
    found = PLUGIN.bridge_residuals(task.feedback, inputs)
    weights, feedback = numpy_checks.arrays(task.network), numpy_checks.arrays(task.feedback)
    expected = residuals_reference(weights, feedback, images.numpy(), labels.numpy(), 1, DEFAULTS)
    assert len(found) == len(expected) == 4
    for residual, reference in zip(found, expected, strict=True):
        assert residual.detach().numpy() == pytest.approx(reference, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize(("warmup", "progress", "warming"), [(0.2, 0.19, True), (0.2, 0.2, False), (0.5, 0.4, True)])
def test_warm_up_is_dfa_with_its_own_matrices(warmup, progress, warming):
    task, images, labels = bridged({"warmup": warmup})
    inputs = seen(task, images, labels)
    task.feedback.progress.fill_(progress)
    found, direct = compute_credits(PLUGIN, task.feedback, inputs), dfa.PLUGIN.credits(task.feedback.direct, inputs)
    assert [torch.equal(*pair) for pair in zip(found, direct, strict=True)] == [warming] * 4


@pytest.mark.parametrize("ema", [0.995, 0.9])
def test_a_step_moves_the_average_and_notes_the_progress(ema):
    trainer = Trainer(double(tiny_task(method="credit_bridge", epochs=10, method_options={"ema": ema})))
    trainer.epoch = 3
    task = trainer.setup
    before = {name: one.clone() for name, one in task.feedback.average.named_parameters()}
    matrices = {name: one.clone() for name, one in task.feedback.direct.named_buffers()}
    trainer.train_batch([torch.arange(16)])
    for name, moved in task.feedback.value.named_parameters():
        assert not torch.equal(moved, before[name])
        expected = ema * before[name] + (1 - ema) * moved
        assert torch.allclose(task.feedback.average.get_parameter(name), expected, rtol=0, atol=1e-15)
    assert task.feedback.progress.item() == pytest.approx(0.3)
    assert all(torch.equal(one, matrices[name]) for name, one in task.feedback.direct.named_buffers())


@pytest.mark.parametrize("thinning", [1, 2, 3, 4])
def test_thinning_keeps_the_mean(thinning):
    """Over as many shifts of the batch as `thinning`, every sample teaches at every site once."""
    task, images, labels = numpy_checks.reference_task("credit_bridge", 0.0, "none")
    task.feedback.options = {**DEFAULTS, "thinning": thinning, "noise": 0.0, "gradient_weight": 0.0}
    samples = 12  # a multiple of 1, 2, 3
    losses = []
    for shift in range(min(thinning, 3)):
        shifted = [one[:samples].roll(shift, dims=0) for one in (images, labels)]
        losses.append(PLUGIN.feedback_loss(task.feedback, seen(task, *shifted)).item())
    task.feedback.options = {**task.feedback.options, "thinning": 1}
    whole = PLUGIN.feedback_loss(task.feedback, seen(task, images[:samples], labels[:samples])).item()
    assert np.mean(losses) == pytest.approx(whole, rel=1e-10)


def test_a_batch_smaller_than_the_thinning_still_teaches():
    task, images, labels = numpy_checks.reference_task("credit_bridge", 0.0, "none")
    assert PLUGIN.feedback_loss(task.feedback, seen(task, images[:1], labels[:1])).isfinite()


def test_three_hidden_layers_of_256_and_an_average_that_starts_equal():
    state = PLUGIN.feedback(NetworkShape((7, 7, 7), 10), DEFAULTS, generator(0, "feedback")).state_dict()
    weights = {name: one for name, one in state.items() if name.startswith("value.") and name.endswith("weight")}
    assert [tuple(one.shape) for one in weights.values()] == [(256, 7 + 4 + 10), (256, 256), (256, 256), (1, 256)]
    for name, weight in weights.items():
        assert weight.abs().max().item() <= weight.shape[1] ** -0.5
        assert torch.equal(weight, state[name.replace("value.", "average.")])
    assert tuple(state["direct.B_01"].shape) == (7, 10)
    assert state["progress"].item() == 0.0


class LossToCome(torch.nn.Module):
    """A perfect value: chunk l of the rows goes through blocks l+1..L and the head, down to its loss."""

    def __init__(self, network, labels):
        super().__init__()
        self.network, self.labels = network, labels

    def conditioning_signal(self, inputs):
        return inputs.onehot

    def forward(self, states, times, conditioning):
        sites = len(self.network.blocks) + 1
        logits = [self.network.logits_from(site, state) for site, state in enumerate(states.chunk(sites))]
        return torch.cat([sample_losses(one, self.labels) for one in logits])


@pytest.mark.parametrize("architecture", ["resmlp", "linear_lq", "student_net"])
def test_the_slope_of_a_perfect_value_is_backpropagation(architecture):
    case = Setting(PLUGIN, architectures.CATALOG.get(architecture), {"num_blocks": 3, "learn": True}, 0).case()
    case.feedback.value = LossToCome(case.network, case.labels)
    case.feedback.progress.fill_(1.0)
    inputs = case.inputs()
    for credit, gradient in zip(case.credits(inputs), inputs.gradients, strict=True):
        assert torch.allclose(credit, gradient, rtol=1e-10, atol=1e-12)


def test_states_that_grow_keep_their_value_and_shrink_its_slope():
    task, images, labels = bridged({})
    task.feedback.progress.fill_(1.0)
    inputs = seen(task, images, labels)
    found = []
    for factor in (1.0, 1000.0):
        grown = replace(inputs, hidden=[state * factor for state in inputs.hidden])
        PLUGIN.update_feedback(task.feedback, replace(grown, progress=1.0))
        found.append([credit * factor for credit in compute_credits(PLUGIN, task.feedback, grown)])
        assert task.feedback.value.scales.tolist() == pytest.approx(
            [h.square().mean().sqrt().item() for h in grown.hidden]
        )
        assert torch.equal(task.feedback.value.scales, task.feedback.average.scales)
    assert all(torch.allclose(*pair, rtol=1e-9) for pair in zip(*found, strict=True))


@pytest.mark.long
def test_it_approaches_the_costate_of_the_toy_task():
    """Published: .944 after 8,000 steps of 12 blocks; here 200 of 4 blocks, so that the test takes seconds."""
    raw = {"architecture": "linear_lq", "dataset": "lq", "batch_size": 256, "architecture_options": {"num_blocks": 4}}
    _, recorder, outcome = trained(**raw, method="credit_bridge", epochs=2, method_options={"warmup": 0})
    start = [
        reading.value for reading in recorder.rows[0].measurements.sites["gamma"][1:]
    ]  # no parameter learns from c_0
    end = [reading.value for reading in outcome.final.sites["costate_cosine"]]
    assert abs(np.mean(start)) < 0.1
    assert np.mean(end) > 0.7
    assert end[-1] > 0.85  # the gradient is matched here, and travels down from here
    assert outcome.final.sites["bridge_residual"][0].value is not None
