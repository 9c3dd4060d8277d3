"""The training objective of credit.md §2, formed as a loss and left to autograd: the long way round that the engine skips."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fa_registry.methods._replaced import backward_through
from fa_registry.methods.base import CreditInputs, ReplacesWeights
from fa_registry.testing.cases import Case, Gradients, Setting
from fa_registry.testing.outcomes import Outcome
from fa_registry.testing.universal import compare
from fa_registry.training.asking import credits_and_states_of

PENALTIES = (0.0, 0.01)
CREDIT_NORMS = ("none", "rms")


def objective_gradient(setting: Setting) -> Outcome:
    """One step's gradients are autograd's of the objective as it is written, with and without penalty, for both norms."""
    case = setting.case()
    outcome = Outcome("pass", "")
    for penalty in PENALTIES:
        for credit_norm in CREDIT_NORMS:
            outcome = compare(case.step(penalty, credit_norm), literal_gradients(case, penalty, credit_norm))
            if outcome.outcome != "pass":
                return Outcome(outcome.outcome, f"penalty {penalty:g}, credit_norm {credit_norm}: {outcome.detail}")
    return outcome


def literal_gradients(case: Case, penalty: float, credit_norm: str) -> Gradients:
    """Parameter name → gradient of the case's whole objective."""
    loss = _exact_objective(case, penalty) if case.method.end_to_end else _local_objective(case, penalty, credit_norm)
    parameters = dict(case.network.named_parameters())
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


def _exact_objective(case: Case, penalty: float) -> Tensor:
    """mean CE + λ Σ_l mean_i ||f_l||² on the uncut graph."""
    state, total = case.network.embed(case.images), torch.zeros((), dtype=torch.float64)
    for block in case.network.blocks:
        branch = block(state)
        total = total + penalty * _mean_square(branch)
        state = case.network.step(state, branch)
    return total + nn.functional.cross_entropy(case.network.readout(state), case.labels)


def _local_objective(case: Case, penalty: float, credit_norm: str) -> Tensor:
    """Σ_l J_l + mean CE(head(sg h_L)), cut at every site; the credits are those the method gives in this pass."""
    replaces = isinstance(case.method, ReplacesWeights)
    matrices = case.method.backward_weights(case.feedback, case.network) if replaces else {}
    states, branches = [case.network.embed(case.images)], []
    with backward_through(case.network, matrices):
        for block in case.network.blocks:
            branches.append(block(states[-1].detach()))
            states.append(case.network.step(states[-1].detach(), branches[-1]))
    top = states[-1].detach().requires_grad_()
    logits = case.network.readout(top)
    loss_sum = nn.functional.cross_entropy(logits, case.labels, reduction="sum")
    onehot = nn.functional.one_hot(case.labels, logits.shape[1]).double()
    inputs = CreditInputs(
        hidden=[state.detach() for state in states],
        error=logits.detach().softmax(dim=1) - onehot,
        onehot=onehot,
        output_gradient=torch.autograd.grad(loss_sum, top, retain_graph=True)[0],
        images=case.images,
        labels=case.labels,
        losses=nn.functional.cross_entropy(logits.detach(), case.labels, reduction="none"),
        network=case.network,
    )
    held = (
        len(case.labels) if case.method.card.credit_scale == "mean" else 1
    )  # the source has c/held where c is handed over here
    credits, places = credits_and_states_of(case.method, case.feedback, inputs)
    driven = branches  # by the credits; the penalty is of the forward pass's
    if places is not inputs.hidden:
        driven = [block(place.detach()) for block, place in zip(case.network.blocks, places[:-1], strict=True)]
    pairs = zip([states[0], *driven], (_norm(credit, credit_norm, held) for credit in credits), strict=True)
    local = sum(_mean_inner(value, case.network.spread(credit, value)) for value, credit in pairs)
    return local + penalty * sum(map(_mean_square, branches)) + loss_sum / len(case.labels)


def _norm(credit: Tensor, kind: str, held: int) -> Tensor:
    """norm(c/held), as the source has it; c itself for "none"."""
    if kind == "none":
        return credit
    published, features = credit / held, tuple(range(1, credit.dim()))
    return published / (published.pow(2).mean(dim=features, keepdim=True).sqrt() + 1e-6)


def _mean_inner(value: Tensor, credit: Tensor) -> Tensor:
    """mean_i <value_i, credit_i> over features and positions."""
    return (value * credit).flatten(1).sum(dim=1).mean()


def _mean_square(branch: Tensor) -> Tensor:
    """mean_i ||f_i||²."""
    return branch.pow(2).flatten(1).sum(dim=1).mean()
