"""alignment: Γ of a user-supplied rule is the registry's Γ, and asking for it changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.diagnostics import run_forward_backward
from fa_registry.errors import InvalidFields
from fa_registry.seeding import derive
from fa_registry.training.probe_context import credits_under
from fa_registry.training.user_model import NO_FRESH, NOT_GIVEN
from tests.external.models import CLASSES, DEPTH, WIDTH, batch, build, indifferent
from tests.helpers.nets import hooks_of
from tests.helpers.tiny_tasks import trained

SITES = DEPTH + 1


def gradients(model, x, y):
    """What backpropagation gives each sample of the published model."""
    states = model.states(x)
    loss = nn.functional.cross_entropy(model.read(states[-1]), y, reduction="sum")
    return list(torch.autograd.grad(loss, states))


def dfa(matrices):
    def credit(model, x, y):
        error = model(x).softmax(1) - nn.functional.one_hot(y, CLASSES)
        return [error @ matrix.T for matrix in matrices]

    return credit


def drawn(generator=None):
    return [torch.randn(WIDTH, CLASSES, generator=generator) for _ in range(SITES)]


def test_the_gradient_itself_is_aligned_everywhere():
    found = fa_registry.alignment(build(), batch(), gradients)
    assert [reading.value for reading in found.gamma] == pytest.approx([1.0] * SITES, abs=1e-12)
    assert {reading.reason for reading in found.null_p} == {NO_FRESH}
    assert found.sites == ("h_0", "blocks.0", "blocks.1", "blocks.2")


@pytest.mark.parametrize("scale", [1e-6, 1.0, -3.0])
def test_gamma_is_the_mean_cosine_whatever_the_credits_scale(scale):
    model, (x, y) = build(), batch()
    matrices = drawn(torch.Generator().manual_seed(5))
    found = fa_registry.alignment(model, (x, y), lambda *given: [scale * row for row in dfa(matrices)(*given)])
    for reading, gradient, credit in zip(found.gamma, gradients(model, x, y), dfa(matrices)(model, x, y), strict=True):
        pair = [rows.detach().double().numpy() for rows in (gradient, credit)]
        cosines = (pair[0] * pair[1]).sum(1) / np.prod([np.linalg.norm(rows, axis=1) for rows in pair], axis=0)
        assert reading.value == pytest.approx(np.sign(scale) * cosines.mean(), rel=1e-5)


def test_it_is_the_gamma_of_a_run_of_the_registry_bit_by_bit():
    trainer, _, outcome = trained(method="dfa", epochs=2)
    task = trainer.setup

    def credit(model, x, y):
        return credits_under(task, task.feedback, run_forward_backward(model, x, y))

    found = fa_registry.alignment(task.network, task.eval_batch, credit).measured
    for name in ("gamma", "gamma_median", "gamma_batch", "h_norm", "g_norm", "fidelity"):
        assert found.sites[name] == outcome.final.sites[name], name
    assert found.scalars["gamma_deep_mean"] == outcome.final.scalars["gamma_deep_mean"]


def test_the_null_is_that_of_fresh_feedback_and_the_same_each_time():
    def fresh(model, x, y, generator):
        return dfa(drawn(generator))(model, x, y)

    matrices = drawn(torch.Generator().manual_seed(5))
    first, again = (fa_registry.alignment(build(), batch(), dfa(matrices), fresh=fresh, draws=9) for _ in range(2))
    assert first == again and first.draws == 9
    model, (x, y) = build(), batch()
    seeds = [derive(0, f"evaluation/gamma_null/{index}") for index in range(9)]
    draws = [
        fa_registry.alignment(model, (x, y), dfa(drawn(torch.Generator().manual_seed(seed)))).gamma for seed in seeds
    ]
    for site in range(SITES):
        null = [gammas[site].value for gammas in draws]
        assert first.measured.sites["gamma_null_mean"][site].value == pytest.approx(np.mean(null), abs=1e-6)
        reached = sum(value >= first.gamma[site].value for value in null)
        assert first.null_p[site].value == pytest.approx((1 + reached) / 10)


def test_a_site_without_a_credit_says_so_and_keeps_its_norms():
    found = fa_registry.alignment(build(), batch(), lambda *given: [None, *gradients(*given)[1:]])
    assert found.gamma[0].reason == NOT_GIVEN and found.gamma[1].value == pytest.approx(1)
    assert found.measured.sites["h_norm"][0].value > 0
    assert found.measured.scalars["gamma_deep_mean"].value == pytest.approx(1)
    assert found.measured.scalars["gamma_all_mean_mean"].value is None
    assert NOT_GIVEN in str(found) and "blocks.2" in str(found)


def test_where_the_reference_is_zero_there_is_no_gamma():
    found = fa_registry.alignment(indifferent(), batch(), dfa(drawn()))
    assert {reading.value for reading in found.gamma} == {None} and all(reading.reason for reading in found.gamma)
    found = fa_registry.alignment(build(), batch(), lambda *given: [row * torch.nan for row in gradients(*given)])
    assert {reading.value for reading in found.gamma} == {None}  # nor for a credit that is not finite


@pytest.mark.parametrize(
    ("credit", "named"),
    [
        (lambda *given: gradients(*given)[1:], "found 3"),
        (lambda *given: torch.zeros(4, 16, WIDTH), "Tensor"),
        (lambda *given: [torch.zeros(16, 2), *gradients(*given)[1:]], "c_0: "),
        (lambda *given: ["x", None, None, None], "c_0: "),
    ],
)
def test_what_is_no_credit_is_named(credit, named):
    with pytest.raises(InvalidFields, match=named):
        fa_registry.alignment(build(), batch(), credit)


@pytest.mark.parametrize("fresh", [lambda model, x, y: [], lambda model, x, y, generator: [None]])
def test_a_fresh_rule_that_fails_is_named(fresh):
    with pytest.raises(InvalidFields, match="fresh: "):
        fa_registry.alignment(build(), batch(), dfa(drawn()), fresh=fresh)


def test_everything_that_is_wrong_is_named_at_once():
    with pytest.raises(InvalidFields) as raised:
        fa_registry.alignment(build(), (batch()[0], None), 3, draws=0, fresh="x")
    named = {problem.partition(":")[0].split()[0] for problem in raised.value.problems}
    assert {"batch[1]", "credit", "fresh", "draws"} <= named
    for call, field in (
        (lambda: fa_registry.alignment(build(), batch()[0], gradients), "batch"),
        (lambda: fa_registry.adapt(build(), [nn.Linear(2, 2)]), "sites"),
    ):
        with pytest.raises(InvalidFields, match=f"{field}: "):
            call()


def test_sites_of_ones_own_and_names_that_are_none():
    model = nn.Sequential(
        nn.Linear(5, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
    )
    found = fa_registry.alignment(
        model, batch(), lambda *given: [None] * 3, sites=["1", "2"], skip="inside", readout="3"
    )
    assert found.sites == ("h_0", "1", "2") and found.measured.sites["g_norm"][2].value > 0
    with pytest.raises(InvalidFields, match="found nope"):
        fa_registry.alignment(model, batch(), gradients, sites=["nope"])


class Noisy(nn.Module):
    """Dropout and batch statistics: what asking could change."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Linear(5, WIDTH), nn.BatchNorm1d(WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Dropout(), nn.Linear(WIDTH, WIDTH)) for _ in range(2))
        self.out_head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = self.norm(self.embed(x))
        for block in self.blocks:
            h = h + block(h)
        return self.out_head(h)


@pytest.mark.parametrize("fails", [False, True])
def test_asking_changes_nothing_whatever_the_rule_does(fails):
    model, (x, y) = Noisy(), batch()
    model.blocks[0].eval()
    nn.functional.cross_entropy(model(x), y).backward()
    before = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes, rng = [module.training for module in model.modules()], torch.get_rng_state()

    def rule(model, x, y):
        model.train()
        nn.functional.cross_entropy(model(x), y).backward()
        torch.manual_seed(1)
        if fails:
            raise ZeroDivisionError
        return [None] * 3

    if fails:
        with pytest.raises(ZeroDivisionError):
            fa_registry.alignment(model, (x, y), rule)
    else:
        fa_registry.alignment(model, (x, y), rule)
    assert all(torch.equal(weight.grad, before[name]) for name, weight in model.named_parameters())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes and torch.equal(torch.get_rng_state(), rng)
    assert not any(hooks_of(model))
