"""One training step: one forward, one backward, for every method.

A local rule cuts the graph at every site. Its objective is

    J_l = mean_i <f_l(sg(h_{l-1}))_i, norm(c_l)_i> + λ mean_i ||f_l||²,    J_0 = mean_i <h_0_i, norm(c_0)_i>,

which is linear in f_l up to the penalty. So no loss is ever formed: the gradient of J_l at f_l, norm(c_l)/N + 2λ f_l/N, is
handed to autograd as it is. The head is always trained by the exact cross entropy, whose gradient at the logits is e/N.
Checked against autograd of J as it is written, penalty, norm and positions included: tests/training/test_step.py.
Of a method that moves states, the first f_l stands for f_l(s_{l-1}) (methods.base.MovesStates).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network
from fa_registry.methods._relaxation import quiet
from fa_registry.methods._replaced import backward_through
from fa_registry.methods.base import CreditInputs, Method, ReplacesWeights
from fa_registry.terminal_loss import is_regression, output_error, sample_losses, target_rows
from fa_registry.training.asking import credits_and_states_of, teach
from fa_registry.training.chained import chained_backward, top_credit
from fa_registry.training.controls import learns
from fa_registry.training.norms import norm_eps, normalised
from fa_registry.training.precision import Run, call


@dataclass(frozen=True)
class StepSums:
    """Sums over the batch, left on the device: loss, correct predictions (0 where there are no classes), Σ_l λ||f_l||².

    seen: what a local-credit method was told.
    """

    loss: Tensor
    correct: Tensor
    penalty: Tensor
    seen: CreditInputs | None = None


@dataclass(frozen=True)
class OutputError:
    """One batch's logits z, error e = ∂ℓ/∂z and target rows, all (N, C), and its losses (N,). Detached."""

    logits: Tensor
    error: Tensor
    targets: Tensor
    losses: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> OutputError:
        """From logits (N, C) and labels, (N,) of classes or (N, C) of values; each row is the sample's own, with no 1/N."""
        logits = logits.detach()
        targets = target_rows(logits, labels)
        return cls(logits, output_error(logits, labels, targets), targets, sample_losses(logits, labels))

    def sums(self, labels: Tensor, penalty: Tensor) -> StepSums:
        """What a step reports, () each; `penalty` is handed through."""
        if is_regression(labels):
            return StepSums(self.losses.sum(), self.losses.new_zeros(()), penalty)
        # argmax of nan is class 0; nan < ∞ is false
        right = (self.logits.argmax(dim=1) == labels) & (self.losses < math.inf)
        return StepSums(self.losses.sum(), right.sum(dtype=self.losses.dtype), penalty)


def exact_step(network: Network, images: Tensor, labels: Tensor, penalty: float, run: Run = call) -> StepSums:
    """Backpropagation: fill every .grad with that of mean CE + λ Σ_l mean_i ||f_l||² through the uncut graph.

    run: see training.precision.runner.
    """
    states, branches = [run(network.embed, images)], []
    for block in network.blocks:
        branches.append(run(block, states[-1]))
        states.append(network.step(states[-1], branches[-1]))
    logits = run(network.readout, states[-1])
    output = OutputError.of(logits, labels)
    count = len(labels)
    roots, root_gradients = [logits], [output.error / count]
    penalised = learning(network, branches) if penalty else []
    roots += penalised
    root_gradients += [branch.detach() * (2 * penalty / count) for branch in penalised]
    if any(root.requires_grad for root in roots):
        torch.autograd.backward(roots, root_gradients)
    return output.sums(labels, penalty_sum(penalised, penalty, logits))


def local_step(
    network: Network,
    method: Method,
    feedback: nn.Module,
    images: Tensor,
    labels: Tensor,
    penalty: float,
    credit_norm: str,
    generator: torch.Generator | None = None,
    progress: Tensor | float = 0.0,
    run: Run = call,
) -> StepSums:
    """A local-credit method: fill every .grad by the rule above. Nothing flows from one block to another.

    A learning feedback's .grad is filled too. generator, progress: see CreditInputs; run: training.precision.runner.
    """
    matrices = method.backward_weights(feedback, network) if isinstance(method, ReplacesWeights) else {}
    with backward_through(network, matrices):
        embedded, states, branches = _cut_forward(network, images, run, chained=bool(matrices))
    top = states[-1].requires_grad_()
    logits = run(network.readout, top)
    output = OutputError.of(logits, labels)
    count = len(labels)
    torch.autograd.backward(logits, output.error / count)  # trains the head; leaves g_L / N in top.grad
    inputs = CreditInputs(
        hidden=[state.detach() for state in states],
        error=output.error,
        onehot=output.targets,
        output_gradient=top.grad * count,  # undo the 1/N: credits have the scale of the summed loss
        generator=generator,
        images=images,
        labels=labels,
        losses=output.losses,
        network=network,
        progress=progress,
    )
    eps = norm_eps(method.card.credit_scale, count)
    if matrices:
        highest = top_credit(network, matrices, top, output.error)
        chained_backward(network, states[:-1], embedded, branches, highest, penalty, credit_norm, eps)
    else:
        credits, places = credits_and_states_of(method, feedback, inputs)
        moved = branches if places is inputs.hidden else _branches_at(network, places, run)
        _backward(network, embedded, branches, moved, credits, penalty, credit_norm, eps)
    teach(method, feedback, inputs)
    sums = output.sums(labels, penalty_sum(learning(network, branches) if penalty else [], penalty, logits))
    return dataclasses.replace(sums, seen=inputs)


def _cut_forward(
    network: Network, images: Tensor, run: Run, chained: bool
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """embed(x) on its graph, the states h_0..h_L cut from it, and the branches f_l of the cut states.

    chained: the states below the top are leaves that require grad, so that a backward pass leaves there what it carries down.
    """
    embedded = run(network.embed, images)
    states, branches = [embedded.detach()], []
    for block in network.blocks:
        branches.append(run(block, states[-1].requires_grad_(chained)))
        states.append(network.step(states[-1].detach(), branches[-1].detach()))
    return embedded, states, branches


def _branches_at(network: Network, states: Sequence[Tensor], run: Run) -> list[Tensor]:
    """f_l(s_{l-1}) on their graphs, one apart from the other. Process noise shifts f_l and no gradient of it: none is drawn."""
    with quiet(network):
        return [run(block, state.detach()) for block, state in zip(network.blocks, states[:-1], strict=True)]


def _backward(
    network: Network,
    embedded: Tensor,
    branches: Sequence[Tensor],
    moved: Sequence[Tensor],
    credits: Sequence[Tensor],
    penalty: float,
    credit_norm: str,
    eps: float,
) -> None:
    """Hand every branch, and the embedding, the gradient of its J.

    moved: the f_l that the credits drive; `branches` themselves unless the method moves states.
    """
    count, outputs = len(embedded), [embedded, *moved]
    with torch.no_grad():
        rows = normalised(credits, credit_norm, count, eps)
        roots = [network.spread(row, output) for row, output in zip(rows, outputs, strict=True)]
        shrinking = [branch * (2 * penalty / count) for branch in branches] if penalty else []
        if shrinking and moved is branches:
            roots[1:] = [root + pull for root, pull in zip(roots[1:], shrinking, strict=True)]
        elif shrinking:
            outputs, roots = [*outputs, *branches], [*roots, *shrinking]
    # a frozen block's branch is on no graph: its credit is computed with the others and has nowhere to go
    heard = [pair for pair in zip(outputs, roots, strict=True) if pair[0].requires_grad]
    if heard:
        torch.autograd.backward(*zip(*heard, strict=True))


def learning(network: Network, branches: Sequence[Tensor]) -> list[Tensor]:
    """The branches of the blocks that train: a control's frozen block has no f_l to keep small."""
    return [branch for block, branch in zip(network.blocks, branches, strict=True) if learns(block)]


def penalty_sum(branches: Sequence[Tensor], penalty: float, like: Tensor) -> Tensor:
    """Σ_l Σ_i λ||f_l||², what is added to the loss (a reported figure, not on the graph)."""
    total = like.new_zeros(())
    return penalty * sum((branch.detach().square().sum() for branch in branches), start=total) if branches else total
