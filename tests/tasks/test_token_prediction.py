"""Token prediction: a NumPy reference of loss, error, bp, dfa and fa for (N, T, V), and what padding and order must not change.

The reference is written from the equations of docs/decisions/14, with its own network: causal averaging, then a layer with tanh.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from fa_registry import methods, tasks
from fa_registry.architectures.base import Network
from fa_registry.diagnostics import observe
from fa_registry.diagnostics.g_norm import PLUGIN as G_NORM
from fa_registry.diagnostics.gamma import PLUGIN as GAMMA
from fa_registry.diagnostics.h_norm import PLUGIN as H_NORM
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.methods.base import FixedMatrices
from fa_registry.tasks.token_prediction import IGNORED
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.step import OutputError, backprop_step, local_credit_step

TOKENS = tasks.CATALOG.get("token_prediction")
N, T, D = 6, 5, 4
SIZES = [T, 7]  # V = T, where cross entropy without a task takes positions for classes, and V ≠ T
EPS = 1e-6


class CausalBlock(nn.Module):
    """f(h) = tanh(M h Wᵀ), where M averages a position with all earlier positions."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, tokens):
        length = tokens.shape[1]
        averages = torch.ones(length, length, dtype=tokens.dtype).tril()
        return ((averages / averages.sum(dim=1, keepdim=True)) @ tokens @ self.weight.T).tanh()


class Case:
    """A network with two blocks and one batch in float64, as tensors and as NumPy arrays."""

    def __init__(self, vocabulary: int, ignored: bool = True, seed: int = 0):
        self.draw = np.random.default_rng(seed)
        self.embedding, self.head = self.normal(vocabulary, D), self.normal(vocabulary, D)
        self.weights = [self.normal(D, D), self.normal(D, D)]
        self.inputs = self.draw.integers(0, vocabulary, (N, T))
        self.targets = self.draw.integers(0, vocabulary, (N, T))
        if ignored:
            self.targets[0, 3:] = self.targets[2, 4] = IGNORED
        embed = nn.Embedding.from_pretrained(torch.tensor(self.embedding), freeze=False)
        head = nn.Linear(D, vocabulary, bias=False, dtype=torch.float64)
        head.weight = nn.Parameter(torch.tensor(self.head))
        self.network = Network(embed, [CausalBlock(torch.tensor(each)) for each in self.weights], None, head)
        self.batch = torch.tensor(self.inputs), torch.tensor(self.targets)

    def normal(self, *shape: int) -> np.ndarray:
        return self.draw.normal(size=shape)

    def forward(self) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        """Return the states, the branches and the logits."""
        states, branches = [self.embedding[self.inputs]], []
        for weight in self.weights:
            branches.append(np.tanh(mixing() @ states[-1] @ weight.T))
            states.append(states[-1] + branches[-1])
        return states, branches, states[-1] @ self.head.T

    def losses_and_error(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ℓ_i = Σ_t −log p(y_it), (N,), and e = ∂ℓ_i/∂z_i, (N, T, V)."""
        losses, error = np.zeros(N), np.zeros_like(logits)
        for sample in range(N):
            for position in range(T):
                target = self.targets[sample, position]
                if target == IGNORED:
                    continue
                shares = np.exp(logits[sample, position])
                shares /= shares.sum()
                losses[sample] -= math.log(shares[target])
                error[sample, position] = shares
                error[sample, position, target] -= 1
        return losses, error

    def gradients(self) -> list[np.ndarray]:
        """Return g_0..g_L by the chain rule, from the top down."""
        _, branches, logits = self.forward()
        found = [self.losses_and_error(logits)[1] @ self.head]
        for weight, branch in zip(self.weights[::-1], branches[::-1], strict=True):
            found.append(found[-1] + mixing().T @ (found[-1] * (1 - branch**2) @ weight))
        return found[::-1]


def mixing() -> np.ndarray:
    lower = np.tril(np.ones((T, T)))
    return lower / lower.sum(axis=1, keepdims=True)


def by_rms(credit: np.ndarray) -> np.ndarray:
    """Divide the credit of every position by its rms over features."""
    return credit / (np.sqrt((credit**2).mean(axis=-1, keepdims=True)) + EPS)


@pytest.mark.parametrize("vocabulary", SIZES)
def test_loss_and_error_are_those_of_the_reference(vocabulary):
    case = Case(vocabulary)
    logits = case.forward()[2]
    losses, error = case.losses_and_error(logits)
    output = OutputError.of(torch.tensor(logits), case.batch[1])
    assert output.task is TOKENS
    np.testing.assert_allclose(output.losses, losses, rtol=1e-10)
    np.testing.assert_allclose(output.error, error, rtol=1e-10, atol=1e-14)
    evaluated = TOKENS.evaluate(case.network, *case.batch)
    counted = (case.targets != IGNORED).sum()
    assert TOKENS.counted(case.batch[1]) == counted == N * T - 3
    per_token = losses.sum() / counted
    assert evaluated["token_loss"].value == pytest.approx(per_token, rel=1e-10)
    assert evaluated["perplexity"].value == pytest.approx(math.exp(per_token), rel=1e-10)
    assert evaluated["bits_per_token"].value == pytest.approx(per_token / math.log(2), rel=1e-10)


@pytest.mark.parametrize("vocabulary", SIZES)
def test_a_step_of_backpropagation_is_that_of_the_reference(vocabulary):
    case = Case(vocabulary)
    backprop_step(case.network, *case.batch, penalty=0.0)
    states, branches, logits = case.forward()
    gradients, error = case.gradients(), case.losses_and_error(logits)[1]
    for block, (weight, branch) in enumerate(zip(case.weights, branches, strict=True)):
        inside = gradients[block + 1] * (1 - branch**2)
        expected = np.einsum("nto,nti->oi", inside, mixing() @ states[block]) / N
        np.testing.assert_allclose(case.network.blocks[block].weight.grad, expected, rtol=1e-10, atol=1e-13)
        assert weight.shape == expected.shape
    head = np.einsum("ntv,ntd->vd", error, states[-1]) / N
    np.testing.assert_allclose(case.network.out_head.weight.grad, head, rtol=1e-10, atol=1e-13)
    embedding = np.zeros_like(case.embedding)
    np.add.at(embedding, case.inputs, gradients[0] / N)
    np.testing.assert_allclose(case.network.embed.weight.grad, embedding, rtol=1e-10, atol=1e-13)


def reference_credits(case: Case, method: str, matrices: list[np.ndarray]) -> list[np.ndarray]:
    """Return c_0..c_L: position by position e B_lᵀ for dfa, and c_{l−1} = c_l B_l from c_L = g_L for fa."""
    error = case.losses_and_error(case.forward()[2])[1]
    if method == "dfa":
        return [error @ matrices[max(site, 1) - 1].T for site in range(3)]
    credits = [error @ case.head]
    for matrix in matrices[::-1]:
        credits.append(credits[-1] @ matrix)
    return credits[::-1]


@pytest.mark.parametrize("vocabulary", SIZES)
@pytest.mark.parametrize("norm", ["none", "rms"])
@pytest.mark.parametrize("method", ["dfa", "fa"])
def test_a_step_of_local_credit_is_that_of_the_reference(method, norm, vocabulary):
    case = Case(vocabulary)
    shape = (D, vocabulary) if method == "dfa" else (D, D)
    matrices = [case.normal(*shape), case.normal(*shape)]
    member, feedback = methods.CATALOG.get(method), FixedMatrices([torch.tensor(each) for each in matrices])
    sums = local_credit_step(case.network, member, feedback, *case.batch, 0.0, norm)
    assert sums.loss.item() == pytest.approx(case.losses_and_error(case.forward()[2])[0].sum(), rel=1e-10)
    states, branches, _ = case.forward()
    credits = reference_credits(case, method, matrices)
    for found, expected in zip(member.credits(feedback, sums.seen), credits, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)
    scale = N if method == "fa" else 1  # fa was published for the credit of the mean loss: rms(c/N) + ε
    used = [scale * by_rms(credit / scale) / scale if norm == "rms" else credit for credit in credits]
    for block, branch in enumerate(branches):
        inside = used[block + 1] * (1 - branch**2)
        expected = np.einsum("nto,nti->oi", inside, mixing() @ states[block]) / N
        np.testing.assert_allclose(case.network.blocks[block].weight.grad, expected, rtol=1e-10, atol=1e-12)
    embedding = np.zeros_like(case.embedding)
    np.add.at(embedding, case.inputs, used[0] / N)
    np.testing.assert_allclose(case.network.embed.weight.grad, embedding, rtol=1e-10, atol=1e-12)


def measured(case: Case, inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, list[float]]:
    """Return norms and Γ of dfa per site."""
    stream = np.random.default_rng(9)
    feedback = [torch.tensor(stream.normal(size=(D, len(case.embedding)))) for _ in range(3)]

    def rule(hidden, gradients, error, onehot):
        return [error @ matrix.T for matrix in feedback]

    observation = observe(case.network, inputs, targets, rule)
    assert observation.samples == TOKENS.counted(targets)
    sites = {}
    for diagnostic in (H_NORM, G_NORM, GAMMA):
        sites |= {
            name: [reading.value for reading in row] for name, row in diagnostic.measure(observation).sites.items()
        }
    return {name: sites[name] for name in ("h_norm", "g_norm", "gamma", "gamma_batch")}


def test_rows_are_the_counted_positions():
    case = Case(7)
    states, gradients = case.forward()[0], case.gradients()
    counted = case.targets != IGNORED
    found = measured(case, *case.batch)
    for site in range(3):
        norms = np.linalg.norm(states[site][counted], axis=1)
        assert found["h_norm"][site] == pytest.approx(np.median(norms), rel=1e-10)
        assert found["g_norm"][site] == pytest.approx(
            np.median(np.linalg.norm(gradients[site][counted], axis=1)), rel=1e-10
        )


def test_the_order_of_samples_and_padding_change_no_metric():
    case = Case(7)
    inputs, targets = case.batch
    expected = measured(case, inputs, targets)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    shuffled = measured(case, inputs[order], targets[order])
    padding = torch.zeros(N, 2, dtype=torch.int64)
    padded = measured(case, torch.cat([inputs, padding], dim=1), torch.cat([targets, padding + IGNORED], dim=1))
    for name, row in expected.items():
        assert shuffled[name] == pytest.approx(row, rel=1e-12, abs=1e-12)
        assert padded[name] == pytest.approx(row, rel=1e-12, abs=1e-12)


def test_padding_and_splitting_a_batch_change_no_gradient():
    whole, padded, parts = Case(7), Case(7), Case(7)
    inputs, targets = whole.batch
    padding = torch.ones(N, 2, dtype=torch.int64)
    backprop_step(whole.network, inputs, targets, 0.0)
    longer = torch.cat([inputs, padding], dim=1), torch.cat([targets, padding * IGNORED], dim=1)
    backprop_step(padded.network, *longer, 0.0)
    for part in range(2):
        backprop_step(parts.network, inputs[part::2], targets[part::2], 0.0)  # adds to .grad
    for name, parameter in whole.network.named_parameters():
        torch.testing.assert_close(padded.network.get_parameter(name).grad, parameter.grad, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(parts.network.get_parameter(name).grad / 2, parameter.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("targets", "problem"),
    [
        (torch.full((4, 3), IGNORED), "at least one position that counts"),
        (torch.tensor([[0, 9]]), "expected tokens 0 to 6, because the vocabulary has 7, found 0 to 9"),
        (torch.tensor([[-1, 2]]), "found -1 to 2"),
        (torch.zeros(4, dtype=torch.int64), "expected tokens (samples, positions)"),
        (torch.zeros(4, 3), "expected tokens (samples, positions)"),
    ],
)
def test_targets_that_are_no_tokens_are_refused(targets, problem):
    problems = TOKENS.problems(targets, targets, 7, 128)
    assert problems and all(problem in sentence for sentence in problems[:2])


@pytest.mark.parametrize("length", [T - 1, T + 1])
def test_targets_of_another_length_are_refused(length):
    with pytest.raises(UsageError, match="one target per position"):
        TOKENS.sample_losses(torch.zeros(2, T, 7), torch.zeros(2, length, dtype=torch.int64))


def test_states_with_another_number_of_positions_are_refused():
    with pytest.raises(UsageError, match="one position per target"):
        TOKENS.state_rows(torch.zeros(2, T + 1, D), torch.zeros(2, T, dtype=torch.int64))


TAKING = [name for name in methods.CATALOG.names() if "token_prediction" in methods.CATALOG.get(name).card.tasks]
FIELDS = {"architecture": "causal_transformer", "dataset": "markov_text", "seed": 1, "epochs": 1}


@pytest.mark.parametrize("method", ["dni", "state_bridge", "credit_bridge", "pepita", "forward_forward"])
def test_a_method_that_takes_no_tokens_is_refused_with_its_card(method):
    with pytest.raises(
        InvalidFields, match=f"method: according to its card, {method} trains the tasks classification, regression"
    ):
        parse_spec({**FIELDS, "method": method})


@pytest.mark.parametrize(
    ("architecture", "dataset"),
    [("resmlp", "markov_text"), ("causal_transformer", "digits"), ("vit_mini", "markov_text")],
)
def test_an_architecture_that_does_not_fit_the_task_is_refused(architecture, dataset):
    with pytest.raises(InvalidFields, match=f"architecture: {architecture} needs"):
        parse_spec({**FIELDS, "method": "bp", "architecture": architecture, "dataset": dataset})


def test_a_run_records_that_its_rows_are_positions():
    from fa_registry.training.measuring import measure, with_conventions

    small = {"d_hidden": 8, "num_blocks": 1, "heads": 2}
    setup = build_setup(parse_spec({**FIELDS, "method": "dfa", "architecture_options": small}), torch.device("cpu"))
    measured_run = with_conventions(measure(setup), setup)
    assert "positions" in measured_run.conventions["rows"]
    assert measured_run.conventions["classes"] == 32
    loss, excess = (measured_run.scalars[name].value for name in ("token_loss", "excess_nats"))
    assert excess == pytest.approx(loss - setup.splits.entropy_rate) and 0 < excess < loss
    assert "accuracy" not in measured_run.scalars
