"""Models that draw numbers, lose precision, mix samples or have unusual states: measured right, or refused with advice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fa_registry
from fa_registry.diagnostics import _forward_backward, _forward_gradient, run_forward_backward
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.records import Reading, objection_in, wrong_gradient
from fa_registry.tracking.integrity_checks import FILES, checks
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import NEEDED, read_record, read_recorded
from fa_registry.training.reference import SAMPLES as QUICK
from tests.own_models.nets import (
    BOTH,
    NOT_ITS_GRADIENT,
    WIDTH,
    Net,
    Tied,
    assert_true,
    assert_withdrawn,
    batch,
    measure,
    plain,
    reasons,
    true_norms,
    values,
)
from tests.own_models.test_wrapped import Parallel


class Noisy(Net):
    """It draws in eval mode too: noise on a state, and dropout that is always on."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.b(functional.relu(self.a(x)))
        h = functional.relu(h * (1 + torch.randn(WIDTH, dtype=x.dtype)))
        return self.head(functional.relu(functional.dropout(self.c(h), 0.5, training=True)))


@BOTH
@pytest.mark.filterwarnings("ignore:.*two forward passes:fa_registry.errors.EvidenceWarning")
def test_random_numbers_are_drawn_from_fixed_seeds(gradient):
    """Twice the same; checked; no float64 pass, since the numbers would be others there; and the generator is as before."""
    adapted = fa_registry.adapt(Noisy(), Net.sites, gradient=gradient)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    seen = run_forward_backward(adapted, *batch())
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again = run_forward_backward(adapted, *batch())
    assert all(map(torch.equal, seen.single.gradients, again.single.gradients)) and seen.double is None
    found = measure(Noisy(), gradient)
    assert max(values(found, "reference_check")) < 0.05 and None not in values(found, "g_norm")
    assert values(found, "fidelity") == [None] * 3


class OwnGenerator(Net):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(WIDTH, dtype=x.dtype, generator=self.generator)
        return self.head(functional.relu(self.c(functional.relu(self.b(functional.relu(self.a(x))) * (1 + noise)))))


@pytest.mark.filterwarnings("ignore:.*two forward passes:fa_registry.errors.EvidenceWarning")
def test_a_generator_of_the_models_own_is_refused_with_advice():
    for gradient in ("backward", "forward"):
        assert_withdrawn(
            measure(OwnGenerator(), gradient), "two forward passes of the same batch give different results: draw"
        )


@BOTH
def test_a_site_that_is_never_called_is_named(gradient):
    class Skipping(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(functional.relu(self.b(functional.relu(self.a(x)))))

    with pytest.raises(
        UsageError, match="c: expected one call in a forward pass, found 0; remove this name from the sites"
    ):
        measure(Skipping(), gradient)


class Unused(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.b(functional.relu(self.a(x)))
        self.c(h)
        return self.head(h)


def test_a_loss_that_does_not_depend_on_a_site():
    """Backward it looks the same as a detached state, and is refused; forward its gradient is zero, and there is no Γ."""

    def equations(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.b(state(model.a(x).clamp(min=0))))
        state(model.c(h))
        return model.head(h)

    with pytest.raises(InvalidFields, match="found a detached or unused state"):
        measure(Unused())
    found = measure(Unused(), "forward")
    assert values(found, "g_norm") == pytest.approx(true_norms(equations, Net(), *batch()), rel=1e-5)
    assert values(found, "g_norm")[2] == 0 and values(found, "gamma")[2] is None
    assert values(found, "reference_check")[2] == 0


@BOTH
def test_integer_states_are_refused_with_advice(gradient):
    class Rounded(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return h.long()

    class Counted(Net):
        def __init__(self):
            super().__init__()
            self.b = Rounded()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(functional.relu(self.c(self.b(functional.relu(self.a(x))).to(x.dtype))))

    with pytest.raises(
        UsageError, match="b: expected a floating-point tensor as output, found torch.int64; select another site"
    ):
        measure(Counted(), gradient)
    model, (_, y) = Tied(), batch()
    with pytest.raises(
        UsageError, match="tokens: expected a floating-point tensor among the inputs.*after the embedding"
    ):
        run_forward_backward(fa_registry.adapt(model, ["tokens", "b"], gradient=gradient), y, y)


class Float32(Net):
    """The type is written into the code: no float64 copy runs."""

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.a(x))
        return self.head(functional.relu(self.c(functional.relu(self.b(h.float())))))


@BOTH
def test_a_model_of_float32_alone_is_measured_and_checked_in_float32(gradient):
    found = measure(Float32(), gradient)
    assert values(found, "g_norm") == pytest.approx(true_norms(plain, Net(), *batch()), rel=1e-5)
    assert max(values(found, "reference_check")) < 0.05
    assert all("float64" in reason for reason in reasons(found, "fidelity"))


def test_a_wrong_backward_pass_of_float32_is_found():
    model = Float32()
    model.c.register_full_backward_hook(lambda module, into, out: (into[0] * 1.2,))
    found = measure(model)
    assert values(found, "g_norm") == values(found, "gamma") == [None] * 3
    assert all(NOT_ITS_GRADIENT in reason for reason in reasons(found))


class NormInFloat32(Net):
    """As decoders do: the norm computes in float32, regardless of the weights."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.b(functional.relu(self.a(x)))
        h = functional.relu(h * torch.rsqrt(h.float().square().mean(-1, keepdim=True) + 1e-6).to(h.dtype))
        return self.head(functional.relu(self.c(h)))


@BOTH
def test_a_part_in_float32_does_not_make_the_check_object(gradient):
    def equations(model: Net, x: Tensor, state: Callable) -> Tensor:
        h = state(model.b(state(model.a(x).clamp(min=0))))
        h = (h / (h.square().mean(-1, keepdim=True) + 1e-6).sqrt()).clamp(min=0)
        return model.head(state(model.c(h)).clamp(min=0))

    assert_true(measure(NormInFloat32(), gradient), equations, Net(), check=0.01)


class HalfInside(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.b(functional.relu(self.a(x))).bfloat16().to(x.dtype)
        return self.head(functional.relu(self.c(functional.relu(h))))


def test_a_part_in_bfloat16_is_too_coarse_to_be_checked():
    assert_withdrawn(
        measure(HalfInside()), "uses torch.bfloat16, which is too coarse for finite differences of the loss"
    )
    assert_withdrawn(measure(HalfInside(), "forward"), "the forward pass rounds to torch.bfloat16")


class Mixing(Net):
    """The statistics of the batch, by hand and in eval mode: samples depend on each other."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.b(functional.relu(self.a(x)))
        h = (h - h.mean(0)) / (h.std(0) + 1e-3)
        return self.head(torch.tanh(self.c(h)))


def mixing(model: Net, x: Tensor, state: Callable) -> Tensor:
    h = state(model.b(state(model.a(x).clamp(min=0))))
    return model.head(state(model.c((h - h.mean(0)) / (h.std(0) + 1e-3))).tanh())


@BOTH
def test_samples_that_depend_on_each_other_are_checked_as_a_batch(gradient):
    assert_true(measure(Mixing(), gradient), mixing, Net())


def test_a_wrong_backward_pass_among_such_samples_is_found():
    model = Mixing()
    model.c.register_full_backward_hook(lambda module, into, out: (into[0] * 1.1,))
    assert_withdrawn(measure(model))


def test_differences_of_such_samples_are_refused():
    class Branching(Mixing):
        def forward(self, x: Tensor) -> Tensor:
            logits = super().forward(x)
            return logits if bool(logits.sum() < 1e9) else 2 * logits

    with pytest.raises(UsageError, match="the trace failed.*the loss of a sample depends on other samples"):
        measure(Branching(), "forward")


@BOTH
def test_a_batch_of_one_sample_is_checked(gradient):
    found = measure(Net(), gradient, samples=1)
    assert values(found, "g_norm") == pytest.approx(true_norms(plain, Net(), *batch(1)), rel=1e-5)
    assert max(values(found, "reference_check")) < 1e-5


def test_a_wrong_backward_pass_of_one_sample_is_found():
    model = Net()
    model.c.register_full_backward_hook(lambda module, into, out: (into[0] * 1.1,))
    assert_withdrawn(measure(model, samples=1))


class FirstRowsHonest(torch.autograd.Function):
    """The identity, whose backward pass is right for the samples that a quick check takes."""

    @staticmethod
    def forward(ctx, h: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return torch.cat([grad[:QUICK], 2 * grad[QUICK:]])


class HonestAtZero(torch.autograd.Function):
    """The identity, whose backward pass exists only where the state is exactly zero, as a ReLU leaves it."""

    @staticmethod
    def forward(ctx, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        return h.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad + (ctx.saved_tensors[0] == 0) * 3


class Lying(Net):
    def __init__(self, function: type[torch.autograd.Function]):
        super().__init__()
        self.function, self.relu = function, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.b(functional.relu(self.a(x))))
        return self.head(functional.relu(self.c(self.function.apply(h))))


@pytest.mark.parametrize("function", [FirstRowsHonest, HonestAtZero])
def test_a_lie_to_some_samples_or_entries_is_found(function):
    assert_withdrawn(measure(Lying(function), sites=("relu", "c")))


@pytest.mark.parametrize(
    ("final", "outcome"),
    [
        (Reading(12.5), "differs"),
        (Reading(None, "left out"), "differs"),
        (Reading(None, wrong_gradient("at site 1")), "agrees"),
        (Reading(None, f"the model's {NOT_ITS_GRADIENT} at site 1"), "differs"),
    ],
)
def test_only_a_refuted_reference_may_withdraw_what_the_last_epoch_shows(workplace, final, outcome):
    with fa_registry.track(Net(), Net.sites, eval=batch(), method="mine") as run:
        run.epoch(test_accuracy=0.5)
    tracker = MlflowTracker()
    stored = tracker.get(run.run_id)
    kept = read_recorded({name: tracker.artifact(run.run_id, name) for name in NEEDED})
    sites = {**kept.measurements.sites, "g_norm": (final, *kept.measurements.sites["g_norm"][1:])}
    kept = dataclasses.replace(kept, measurements=dataclasses.replace(kept.measurements, sites=sites))
    assert next(check for check in checks(kept, stored) if check.subject == FILES).outcome == outcome


def test_what_is_final_is_checked_on_the_whole_batch(workplace):
    """Epochs are checked on a few samples, which this model's author knows."""
    model, (x, y) = Lying(FirstRowsHonest), batch()
    with fa_registry.track(model, ["relu", "c"], eval=(x, y), method="mine") as run:
        epoch = run.epoch(test_accuracy=0.5)
    assert epoch.sites["g_norm"][1].value is not None
    tracker = MlflowTracker()
    stored = tracker.get(run.run_id)
    kept = read_recorded({name: tracker.artifact(run.run_id, name) for name in NEEDED})
    assert {check.outcome for check in checks(kept, stored)} == {"agrees"}
    final = read_record(tracker, stored).measurements
    assert [reading.value for reading in final.sites["g_norm"]] == [None] * 3
    assert NOT_ITS_GRADIENT in objection_in(final)


class WrongGradient(Net):
    def __init__(self):
        super().__init__()
        self.c.register_full_backward_hook(lambda module, into, out: (into[0] * 1.1,))


@pytest.mark.parametrize(
    ("model", "sites"),
    [(WrongGradient, "bc"), (OwnGenerator, "bc"), (HalfInside, "bc"), (Parallel, "b")],
)
@pytest.mark.filterwarnings("ignore:.*two forward passes:fa_registry.errors.EvidenceWarning")
def test_a_reason_to_withdraw_a_gradient_is_recognised_later(model, sites):
    """Epochs that are not checked are withdrawn for what `objection_in` finds in the last that was."""
    assert objection_in(measure(model(), sites=list(sites)).measured)


@BOTH
def test_a_model_too_large_for_a_float64_copy_is_checked_as_it_is(gradient, monkeypatch):
    within = _forward_gradient.cast

    def cast(network: nn.Module, precision: torch.dtype) -> dict[str, Tensor]:
        if precision == torch.float64:
            raise torch.OutOfMemoryError("no memory is left for a copy")
        return within(network, precision)

    for module in (_forward_gradient, _forward_backward):
        monkeypatch.setattr(module, "cast", cast)
    found = measure(Net(), gradient)
    assert values(found, "g_norm") == pytest.approx(true_norms(plain, Net(), *batch()), rel=1e-5)
    assert max(values(found, "reference_check")) < 0.05
    assert all("float64" in reason for reason in reasons(found, "fidelity"))
