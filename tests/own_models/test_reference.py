"""The reference gradient of models that are not built in: true by tracing, estimated by differences, and never shown unchecked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fa_registry
from fa_registry.diagnostics import CATALOG, _forward_gradient, run_forward_backward
from fa_registry.diagnostics._forward_backward import ESTIMATED, TRACED
from fa_registry.errors import InvalidFields
from fa_registry.external.alignment import MEASURED
from fa_registry.records import objection_in
from fa_registry.records.readings import NOT_ITS_GRADIENT, UNCHECKED_GRADIENT, WRONG_GRADIENT
from fa_registry.token_axes import gradient_vectors
from fa_registry.training.reference import SAMPLES
from fa_registry.training.user_model import UserCreditRule, measured
from tests.helpers.nets import hooks_of
from tests.own_models.models import CASES, CLASSES, Case, Custom, build

pytestmark = pytest.mark.long

ON_GRADIENT = ("g_norm", "gain", "fidelity", "gamma", "norm_ratio")
WIDE = 600  # more entries than are differenced


def figures(case: Case, credits: list[Tensor]) -> tuple[list[float], list[float]]:
    """‖g_l‖ (median over samples) and Γ_l (mean over samples), from the model's equations."""
    _, gradients = case.true()
    rows = [gradient_vectors(gradient) for gradient in gradients]
    norms = [float(np.median(row.norm(dim=1).numpy())) for row in rows]
    cosines = [
        float(nn.functional.cosine_similarity(row, credit.double(), dim=1, eps=0).mean())
        for row, credit in zip(rows, credits, strict=True)
    ]
    return norms, cosines


def drawn_credits(case: Case) -> list[Tensor]:
    """Directions that share a part with the gradient, so that Γ is far from 0 and from 1."""
    generator = torch.Generator().manual_seed(3)
    rows = [gradient_vectors(gradient).float() for gradient in case.true()[1]]
    return [row + row.norm(dim=1, keepdim=True) * torch.randn(row.shape, generator=generator) / 4 for row in rows]


def aligned(case: Case, credits: list[Tensor], gradient: str) -> fa_registry.Alignment:
    model = fa_registry.adapt(case.model, case.sites, gradient=gradient, state=first_of)
    return fa_registry.alignment(model, (case.x, case.y), lambda *_: credits)


def first_of(output: tuple[Tensor, ...]) -> Tensor:
    return output[0]


def values(found: fa_registry.Alignment, name: str) -> list[float | None]:
    return [reading.value for reading in found.measured.sites[name]]


SHORT = [("plain", 8, 1), ("called", 8, 2), ("custom", 32, 3), ("detached", 32, 3), ("decoder", 16, 3)]


def rest_long(cases):
    """Each style once in the short suite."""
    return [case if case in SHORT else pytest.param(*case, marks=pytest.mark.long) for case in cases]


@pytest.mark.parametrize(("style", "width", "depth"), rest_long(CASES))
def test_a_trace_gives_the_true_gradient(style, width, depth):
    case = build(style, width, depth)
    credits = drawn_credits(case)
    found = aligned(case, credits, "forward")
    norms, cosines = figures(case, credits)
    assert found.reference == TRACED
    assert values(found, "g_norm") == pytest.approx(norms, rel=1e-5)
    assert values(found, "gamma") == pytest.approx(cosines, rel=1e-5)
    assert max(values(found, "reference_check")) < 1e-5


@pytest.mark.parametrize(("style", "width", "depth"), rest_long(CASES))
def test_every_entry_of_a_traced_gradient_is_that_of_the_equations(style, width, depth):
    """In float64, states and gradients in full shape, tokens included."""
    case = build(style, width, depth)
    seen = run_forward_backward(
        fa_registry.adapt(case.model, case.sites, gradient="forward", state=first_of), case.x, case.y
    ).double
    for found, true in zip((seen.hidden, seen.gradients), case.true(), strict=True):
        for ours, theirs in zip(found, true, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("style", "width", "depth"), rest_long(CASES))
def test_a_backward_pass_is_believed_only_where_it_is_the_gradient(style, width, depth):
    case = build(style, width, depth)
    credits = drawn_credits(case)
    if style == "detached":
        with pytest.raises(InvalidFields, match="found a detached or unused state.*gradient='forward'"):
            aligned(case, credits, "backward")
        return
    found = aligned(case, credits, "backward")
    norms, cosines = figures(case, credits)
    if case.honest:
        assert values(found, "g_norm") == pytest.approx(norms, rel=1e-5)
        assert values(found, "gamma") == pytest.approx(cosines, rel=1e-5)
        assert max(values(found, "reference_check")) < 1e-5
        return
    assert values(found, "h_norm") == values(aligned(case, credits, "forward"), "h_norm")
    for name in ON_GRADIENT:
        assert set(values(found, name)) == {None}, name
        assert all(reading.kind == WRONG_GRADIENT for reading in found.measured.sites[name]), name
    assert all(reading.value is None for name, reading in found.measured.scalars.items() if "gamma" in name)
    assert values(found, "reference_check")[0] > 0.1


def test_the_protocol_is_incomplete_for_a_backward_pass_that_is_none():
    case = build("custom", 32, 3)
    for gradient, verdict in (("backward", "INCOMPLETE"), ("forward", "PASS")):
        model = fa_registry.adapt(case.model, case.sites, gradient=gradient)
        report = fa_registry.FAProtocol(model, case.x, case.y).run(
            frozen_baseline_acc=0.5,  # fa: ok FA010 stated
            test_acc=0.9,
        )
        assert report["verdict"] == verdict
        second = report["diagnostics"]["D2_ref_validity"]
        if gradient == "backward":
            assert second["fires"] is None and second["g_L"] is None and set(second["bp_grad_norms"]) == {None}
            assert any(NOT_ITS_GRADIENT.removeprefix("the model's ") in remark for remark in report["remarks"])
        else:
            norms, _ = figures(case, drawn_credits(case))
            assert second["fires"] is False
            # the lower median over 24 samples, of the mean loss: below the midpoint
            assert second["g_L"] <= norms[-1] / len(case.x) * (1 + 1e-5)


def test_a_diagnosis_judges_no_gradient_that_is_none():
    case = build("custom", 32, 3)
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(24, 8, generator=generator), case.y) for _ in range(2)]
    report = fa_registry.diagnose(fa_registry.adapt(case.model, case.sites), batches, 0.9, 0.5)
    assert set(report.bp_grad_norms) == {None} and report.cross_batch_stability is None
    assert report.bp_grad_at_floor is None and report.reference_drift_dominated is None
    assert report.verdict == "INCOMPLETE"
    report = fa_registry.diagnose(fa_registry.adapt(case.model, case.sites, gradient="forward"), batches, 0.9, 0.5)
    assert None not in report.bp_grad_norms and report.bp_grad_at_floor is False


class Branching(nn.Module):
    """A model around one of the styles that decides by a value, which no trace records."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        return logits if bool(logits.abs().sum() > 0) else 2 * logits


def branching(style: str, width: int, depth: int) -> Case:
    case = build(style, width, depth)
    model = Branching(case.model).eval()

    def chain(weights, x):
        inner = type(weights)({name.removeprefix("model."): held for name, held in weights.items()})
        return case.chain(inner, x)

    return Case(model, case.x, [f"model.{site}" for site in case.sites], chain, case.honest)


@pytest.mark.parametrize(("style", "width", "depth"), rest_long(case for case in CASES if case[0] != "decoder"))
def test_differences_give_the_gradient_where_no_trace_can_be_made(style, width, depth):
    case = branching(style, width, depth)
    credits = drawn_credits(case)
    found = aligned(case, credits, "forward")
    norms, cosines = figures(case, credits)
    assert found.reference.startswith(ESTIMATED) and "control flow" in found.reference
    assert values(found, "g_norm") == pytest.approx(norms, rel=1e-4)  # every direction is differenced
    assert values(found, "gamma") == pytest.approx(cosines, rel=1e-4)
    assert values(found, "g_norm_uncertainty") == [0.0] * (depth + 1)


@pytest.mark.parametrize("depth", [1, 3])
def test_differences_give_the_class_tokens_gradient(depth):
    case = branching("decoder", 8, depth)
    credits = drawn_credits(case)
    found = aligned(case, credits, "forward")
    norms, cosines = figures(case, credits)
    assert found.reference.startswith(ESTIMATED)
    assert values(found, "g_norm") == pytest.approx(norms, rel=1e-4)
    assert values(found, "gamma") == pytest.approx(cosines, rel=1e-4)


@pytest.mark.parametrize(("style", "width", "depth"), [("plain", WIDE, 1), ("custom", 80, 2), ("detached", 80, 2)])
def test_a_wide_states_norm_lies_within_the_stated_interval(monkeypatch, style, width, depth):
    if width < WIDE:  # the same share of the directions, in a tenth of the time
        monkeypatch.setattr(_forward_gradient, "WIDEST", 68)
    case = branching(style, width, depth)
    credits = drawn_credits(case)
    found = aligned(case, credits, "forward")
    norms, cosines = figures(case, credits)
    widths = values(found, "g_norm_uncertainty")
    assert all(0 < half < (0.1 if width < WIDE else 0.05) for half in widths)
    for estimate, norm, gamma, cosine, half in zip(
        values(found, "g_norm"), norms, values(found, "gamma"), cosines, widths, strict=True
    ):
        assert estimate == pytest.approx(norm, rel=half)
        assert gamma == pytest.approx(cosine, rel=half)  # its numerator is exact: the credit is among the directions


@pytest.mark.parametrize("scale", [0.99, 1.01, -1.0])
def test_a_backward_pass_that_is_slightly_wrong_is_found(scale):
    torch.manual_seed(0)
    model = Custom(16, 3, scale).eval()
    x, y = torch.randn(24, 8), torch.arange(24) % CLASSES
    sites = [f"blocks.{index}" for index in range(3)]
    found = fa_registry.alignment(fa_registry.adapt(model, sites), (x, y), lambda *_: [torch.ones(24, 16)] * 4)
    assert values(found, "reference_check")[0] > 1e-3
    assert values(found, "g_norm") == [None] * 4


def test_a_backward_pass_that_is_the_gradient_by_other_code_is_believed():
    """B = W: a custom Function, and yet the gradient."""
    torch.manual_seed(0)
    model = Custom(16, 3, 1.0).eval()
    x, y = torch.randn(24, 8), torch.arange(24) % CLASSES
    sites = [f"blocks.{index}" for index in range(3)]
    found = fa_registry.alignment(fa_registry.adapt(model, sites), (x, y), lambda *_: [torch.ones(24, 16)] * 4)
    assert max(values(found, "reference_check")) < 1e-5 and None not in values(found, "g_norm")


def passes_of(case: Case, gradient: str, objection: str | None, samples: int | None = None) -> float:
    """Samples that run through the model while it is measured, in batches. samples: of the batch that are checked at first."""
    model = fa_registry.adapt(case.model, case.sites, gradient=gradient)
    credits = drawn_credits(case)
    counted = []
    hook = case.model.register_forward_pre_hook(lambda module, args: counted.append(len(args[0])))
    rule = UserCreditRule("test", case.model, lambda *_: credits, None, 20)
    measured(
        model, case.x, case.y, rule, [CATALOG.get(name) for name in MEASURED], objection=objection, samples=samples
    )
    hook.remove()
    return sum(counted) / len(case.x)


@pytest.mark.parametrize(("style", "gradient"), [("called", "backward"), ("custom", "backward"), ("custom", "forward")])
def test_the_check_takes_sixteen_passes_and_three_plain_ones(style, gradient):
    """Two plain passes find out whether the model repeats itself, the third measures the rounding.

    In the middle of a training they are of SAMPLES samples; of a model that is refuted all are repeated with the whole batch.
    """
    case = build(style, 24, 4)
    is_refuted = gradient == "backward" and not case.honest
    passes = 16 + 3 + (2 if is_refuted else 0)  # two more find out whether samples depend on each other
    plain = passes_of(case, gradient, "")
    assert passes_of(case, gradient, None) - plain == passes
    few = passes * (SAMPLES / len(case.x) + (1 if is_refuted else 0))
    assert passes_of(case, gradient, None, SAMPLES) - plain == pytest.approx(few)


def test_a_model_of_float32_alone_takes_as_many_passes():
    case = build("called", 24, 4)
    inner = case.model.forward
    case.model.forward = lambda x: inner(x.float())
    extra = 1  # which finds out that there is no float64 pass
    assert passes_of(case, "backward", None) - passes_of(case, "backward", "") <= 16 + 3 + extra


def test_no_relu_makes_the_check_object():
    """512 of them behind 256 samples."""
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 64), *[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)])
        model.append(nn.Linear(64, CLASSES))
        x, y = torch.randn(256, 8), torch.arange(256) % CLASSES
        adapted = fa_registry.adapt(model.eval(), [f"{index}" for index in range(1, 9)])
        found = fa_registry.alignment(adapted, (x, y), lambda *_: [torch.ones(256, 64)] * 9)
        assert max(values(found, "reference_check")) < 1e-3


@pytest.mark.parametrize("gradient", ["backward", "forward"])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_state_on_a_kink_is_left_out_of_the_comparison(gradient, wrong):
    """Half of a sample's state is within a step of the kink of the ReLU that follows: there a difference shows nothing."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, CLASSES)).double()
    x, y = torch.randn(8, 8, dtype=torch.float64), torch.arange(8) % CLASSES
    with torch.no_grad():
        for _ in range(2):  # the second time takes off what rounding left
            model[2].bias[:8] += 1e-12 - model[:3](x)[0, :8]
    if wrong:
        model[4].register_full_backward_hook(lambda module, into, out: (into[0] * 1.01,))
    adapted = fa_registry.adapt(model.eval(), ["2"], gradient=gradient)
    found = fa_registry.alignment(adapted, (x, y), lambda *_: [torch.ones(8, 16, dtype=torch.float64)] * 2)
    assert (max(values(found, "reference_check")) > 1e-3) is (wrong and gradient == "backward")
    assert (values(found, "g_norm")[0] is None) is (wrong and gradient == "backward")


class Pooled(nn.Module):
    """Convolution, ReLU and pooling: where a whole window is zero, its largest entry is any of them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.relu, self.relu2, self.head = nn.ReLU(), nn.ReLU(), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.max_pool2d(self.relu(self.first(x)), 2)
        return self.head(nn.functional.max_pool2d(self.relu2(self.second(h)), 4).flatten(1))


@pytest.mark.parametrize("gradient", ["backward", "forward"])
@pytest.mark.parametrize("wrong", [False, True])
def test_ties_of_a_pooling_behind_relus_do_not_make_the_check_object(gradient, wrong):
    torch.manual_seed(0)
    model = Pooled().eval()
    with torch.no_grad():
        model.first.bias -= 0.5  # many windows are zero
    if wrong:
        model.second.register_full_backward_hook(lambda module, into, out: (into[0] * 1.01,))
    x, y = torch.randn(12, 2, 8, 8), torch.arange(12) % CLASSES
    windows = nn.functional.max_pool2d(model.relu(model.first(x)), 2)
    assert 0.1 < (windows == 0).double().mean() < 0.9
    adapted = fa_registry.adapt(model, ["relu", "relu2"], gradient=gradient)
    found = fa_registry.alignment(adapted, (x, y), lambda *_: [torch.ones(12, 6)] * 3)
    assert (max(values(found, "reference_check")) > 1e-3) is (wrong and gradient == "backward")
    assert (values(found, "g_norm")[1] is None) is (wrong and gradient == "backward")
    report = fa_registry.FAProtocol(adapted, x, y).run(
        0.5, 0.9
    )  # without a credit, whose direction moves a window as one
    assert (report["verdict"] == "INCOMPLETE") is (wrong and gradient == "backward")


def test_what_has_a_kink_everywhere_is_not_checked_and_not_shown():
    """The states of the last site are exactly zero, and a ReLU follows."""

    class Zero(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.zero, self.head = nn.Linear(8, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES)
            nn.init.zeros_(self.zero.weight), nn.init.zeros_(self.zero.bias)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.zero(self.layer(x)).clamp(min=0))

    torch.manual_seed(0)
    x, y = torch.randn(12, 8), torch.arange(12) % CLASSES
    adapted = fa_registry.adapt(Zero().eval(), ["layer", "zero"])
    found = fa_registry.alignment(adapted, (x, y), lambda *_: [torch.ones(12, 8), *[torch.ones(12, 4)] * 2])
    assert values(found, "g_norm") == [None] * 3
    assert found.measured.sites["g_norm"][2].kind == UNCHECKED_GRADIENT
    assert objection_in(found.measured)  # which withdraws the epochs that are not checked


def test_the_trace_leaves_weights_buffers_and_generators_alone():
    case = build("custom", 32, 3)
    before = {name: held.clone() for name, held in case.model.state_dict().items()}
    state = torch.get_rng_state()
    aligned(case, drawn_credits(case), "forward")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(held, before[name]) for name, held in case.model.state_dict().items())
    assert not any(hooks_of(case.model))
    assert all(weight.grad is None for weight in case.model.parameters())


def test_credits_by_hand_are_measured_against_the_true_gradient():
    """A detached network that is taught the true gradients by hand has Γ = 1, and its own weights learn from them."""
    case = build("detached", 32, 3)
    _, gradients = case.true()
    found = aligned(case, [gradient.float() for gradient in gradients], "forward")
    assert values(found, "gamma") == pytest.approx([1.0] * 4, abs=1e-6)
    case.model.learn(case.x, [torch.ones_like(gradient).float() for gradient in gradients[1:]])
    assert all(layer.weight.grad is not None for layer in case.model.layers)


def test_a_step_of_a_difference_is_never_zero():
    states = torch.zeros(2, 3)
    assert (_forward_gradient.steps_of(states) > 0).all()
