"""One training step, with one forward and one backward pass, for every method.

A local rule cuts the graph at every site. Its objective is

    J_l = mean_i <f_l(sg(h_{l-1}))_i, norm(c_l)_i> + λ mean_i ||f_l||²,
    J_0 = mean_i <h_0_i, norm(c_0)_i> + λ_0 mean_i ||h_0||²,

where sg stops the gradient. Except for the penalties, J_l is linear in f_l. Therefore the code never computes the loss J_l. It
passes the gradient of J_l at f_l, norm(c_l)/N + 2λ f_l/N, directly to autograd. The head is always trained by the exact gradient
of the task's mean loss (for classes, the cross entropy), which is e/N at the logits. tests/training/test_step.py compares the step
with autograd of J. The tests cover the penalty, the norm, and states with several positions. If a method computes states s_l
itself (methods.base.HasOwnStates), f_l in the first term of J_l is f_l(s_{l-1}).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network
from fa_registry.methods._backward_weights import backward_through
from fa_registry.methods._local_heads import LocalHeads
from fa_registry.methods._relaxation import quiet
from fa_registry.methods.base import CreditedStates, CreditInputs, Method, UsesBackwardWeights
from fa_registry.tasks import Task, task_of
from fa_registry.training.controls import learns
from fa_registry.training.devices import Run, call
from fa_registry.training.method_calls import credits_and_states_of, fill_feedback_grads
from fa_registry.training.prediction import scores_of


def chained_backward(
    network: Network,
    states: Sequence[Tensor],
    embedded: Tensor,
    branches: Sequence[Tensor],
    top_credit: Tensor,
    penalty: float,
    credit_norm: str,
    eps: float,
    by_position: bool = False,
    penalty_embedding: float = 0.0,
    clip: float = 0.0,
) -> list[Tensor]:
    """Fill the .grad of every block and of the embedding, from the last block to the embedding.

    The gradients are those of the objectives J_l in the module's docstring. The credit c_{l−1} is c_l propagated backward through
    the branch f_l. In a residual network, c_l is added to the result.

    Args:
        states: h_0..h_{L−1} (N, …), leaves that require grad.
        embedded: output of the embedding with its autograd graph, (N, …).
        branches: f_l of states[l−1], computed inside the context `backward_through`.
        top_credit, penalty, penalty_embedding: c_L (N, …), λ and λ_0.
        credit_norm, eps, by_position, clip: see credit_divisor and norm_eps.

    Returns:
        The credits c_0..c_L.
    """
    count, credit, credits = len(embedded), top_credit, [top_credit]
    for block, state, branch in zip(reversed(network.blocks), reversed(states), reversed(branches), strict=True):
        scale = (
            credit_divisor(credit, credit_norm, eps, by_position, clip) * count
        )  # (batch, 1, …): norm(c)/N = c / scale
        root = credit / scale
        # the penalty is no part of the credit; coupled rows have no separate scale
        if penalty or (by_position and credit_norm != "none") or couples_samples(block):
            below = torch.autograd.grad(branch, state, credit, retain_graph=True)[0]
            torch.autograd.backward(branch, root + branch.detach() * (2 * penalty / count))
        else:
            torch.autograd.backward(branch, root)
            below = state.grad * _rows(scale, state)
        credit = below + credit if network.residual else below
        credits.insert(0, credit)
    if embedded.requires_grad:
        root = credit / (credit_divisor(credit, credit_norm, eps, by_position, clip) * count)
        if penalty_embedding:
            root = root + embedded.detach() * (2 * penalty_embedding / count)
        torch.autograd.backward(embedded, root)
    return credits


def couples_samples(block: nn.Module) -> bool:
    """Return whether a sample's branch depends on the other samples of the batch.

    The result is True if a BatchNorm in the block uses batch statistics.
    """
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training for module in block.modules())


def _rows(scale: Tensor | float, state: Tensor) -> Tensor | float:
    """Reshape a scale of the block's output, (N, 1, …), to the dimensions of the block's input `state`."""
    return scale.reshape(-1, *[1] * (state.dim() - 1)) if isinstance(scale, Tensor) else scale


def top_credit(network: Network, matrices: Mapping[str, Tensor], top: Tensor, error: Tensor) -> Tensor:
    """Return c_L: the error e, propagated to h_L with the matrix that replaces the head's weight.

    Args:
        matrices: name of a layer → matrix that replaces the layer's weight in the backward pass.
        top: h_L (N, …).
        error: e (N, C).
    """
    leaf = top.detach().requires_grad_()
    with backward_through(network, matrices):
        logits = network.readout(leaf)
    return torch.autograd.grad(logits, leaf, error)[0]


NORM_EPS = 1e-6  # the paper's recipe: c / (rms over features + 1e-6)


def norm_eps(credit_scale: str, count: int) -> float:
    """Return the ε of the recipe, converted to the scale of the summed loss.

    A rule that was published for the credit of the mean loss divides c/N by rms(c/N) + ε. This equals c divided by rms(c) + N·ε.
    With ε instead of N·ε, the growth of fa on digits is about twice as large.
    tests/methods/test_published.py trains fa and dfa with this code and with the published loop. Both give equal results if this
    code uses the `credit_scale` of the method's card. With the other value of `credit_scale`, the results differ. The returned
    number depends only on `count`, the batch size N, so it is constant in a captured step.
    """
    return NORM_EPS * count if credit_scale == "mean" else NORM_EPS


def normalised_credits(
    credits: Sequence[Tensor],
    kind: str,
    count: int,
    eps: float = NORM_EPS,
    by_position: bool = False,
    clip: float = 0.0,
) -> Sequence[Tensor]:
    """Return norm(c_l)/count for the credit of every site.

    If the credits of all sites have the same shape, they are joined and normalised in one operation, because kernel launches
    dominate the time on a GPU. If the memory of a credit is transposed, the credits are normalised one by one, because joining
    would change the order of sums.

    Args:
        credits: c_0..c_L, each (N, …).
        kind: "rms" or "none", see credit_divisor.
        count: N, the divisor of the mean over samples in J_l.
        eps: see norm_eps.
        by_position, clip: see credit_divisor.
    """
    if len({credit.shape for credit in credits}) > 1 or not all(credit[0].is_contiguous() for credit in credits):
        return [credit / (credit_divisor(credit, kind, eps, by_position, clip) * count) for credit in credits]
    joined = torch.cat(tuple(credits))  # (sites · batch, …)
    return (joined / (credit_divisor(joined, kind, eps, by_position, clip) * count)).chunk(len(credits))


def credit_divisor(
    credit: Tensor, kind: str, eps: float = NORM_EPS, by_position: bool = False, clip: float = 0.0
) -> Tensor | float:
    """Return the divisor of norm(c) for each sample, (N, 1, …).

    For "rms", the divisor is the sum of the rms and eps. The rms of each sample is computed over all entries of this sample. An rms
    over the whole batch would let one sample change the scale of other samples (test_rms_norm_is_per_sample_and_over_features in
    tests/training/test_step.py). For "none", the divisor is 1, or with a limit τ it is max(1, ‖c_i‖/τ), so no sample's credit has
    a norm above τ.

    Args:
        credit: c (N, …).
        kind: "rms" or "none".
        eps: see norm_eps.
        by_position: whether the rms of each position is computed separately, as for a task with one target per position. The
            divisor of a credit (N, T, D) then has the shape (N, T, 1).
        clip: τ, the largest norm of a sample's credit over all of its entries, for the kind "none"; 0 for no limit.
    """
    if kind == "none" and not clip:
        return 1.0
    if kind == "none":
        norms = torch.linalg.vector_norm(credit.flatten(1), dim=1)
        return (norms / clip).clamp(min=1.0).reshape(-1, *[1] * (credit.dim() - 1))
    if by_position:
        return torch.linalg.vector_norm(credit, dim=-1, keepdim=True) / math.sqrt(credit.shape[-1]) + eps
    rows = credit.flatten(1)
    scale = torch.linalg.vector_norm(rows, dim=1) / math.sqrt(rows.shape[1]) + eps  # no tensor of squares
    return scale.reshape(-1, *[1] * (credit.dim() - 1))


@dataclass(frozen=True)
class StepSums:
    """Sums over one batch, as scalar tensors on the device.

    Attributes:
        loss: sum of the samples' losses.
        score: sum of the task's main metric over the batch, see Task.batch_score.
        penalty: Σ_l Σ_i λ||f_l||² + Σ_i λ_0||h_0||².
        seen: the inputs that a local-credit method received in this step. It is None for an end-to-end method.
        credited: whether the part below each site 0..L has a credit or a penalty in this step, (L+1,). It is None for an end-to-end
            method.
    """

    loss: Tensor
    score: Tensor
    penalty: Tensor
    seen: CreditInputs | None = None
    credited: Tensor | None = None


@dataclass(frozen=True)
class OutputError:
    """The output error of one batch. All tensors are detached.

    Attributes:
        logits: z (N, C).
        error: e = ∂ℓ/∂z (N, C), without the factor 1/N.
        targets: target rows (N, C).
        losses: losses (N,).
    """

    logits: Tensor
    error: Tensor
    targets: Tensor
    losses: Tensor
    task: Task

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, task: Task | None = None) -> OutputError:
        """Compute the output error of a batch.

        Args:
            logits: (N, C).
            labels: class numbers (N,), or target values (N, C) for a regression.
            task: the task, or None for the built-in task that fits the type of the labels.
        """
        logits = logits.detach()
        task = task or task_of(labels)
        targets = task.target_rows(logits, labels)
        error, losses = task.output_error(logits, labels, targets), task.sample_losses(logits, labels)
        return cls(logits, error, targets, losses, task)

    def sums(self, labels: Tensor, penalty: Tensor, scores: Tensor | None = None) -> StepSums:
        """Return the sums that a step reports.

        `scores` (N, C) are those of a method that predicts by itself. The main metric then belongs to them, and the loss to the
        logits.
        """
        outputs, losses = self.logits, self.losses
        if scores is not None:
            outputs, losses = scores, self.task.sample_losses(scores, labels)
        return StepSums(self.losses.sum(), self.task.batch_score(outputs, labels, losses), penalty)


def backprop_step(
    network: Network,
    images: Tensor,
    labels: Tensor,
    penalty: float,
    run: Run = call,
    task: Task | None = None,
    penalty_embedding: float = 0.0,
    heads: LocalHeads | None = None,
) -> StepSums:
    """Fill every .grad with the gradient of mean_i ℓ_i + λ Σ_l mean_i ||f_l||² + λ_0 mean_i ||h_0||².

    ℓ_i is the task's loss of one sample. The graph is not cut between the blocks. The reported sums do not contain the losses of
    local heads.

    Args:
        labels: class numbers (N,), or target values (N, C).
        penalty, penalty_embedding: λ and λ_0.
        run: see devices.runner.
        task: the task, or None for the built-in task that fits the type of the labels.
        heads: local heads, whose losses Σ_l mean_i ℓ_l are added, or None for no heads.
    """
    states, branches = [run(network.embed, images)], []
    for block in network.blocks:
        branches.append(run(block, states[-1]))
        states.append(network.step(states[-1], branches[-1]))
    logits = run(network.readout, states[-1])
    output = OutputError.of(logits, labels, task)
    count = len(labels)
    roots, root_gradients = [logits], [output.error / count]
    penalised = learning(network, branches) if penalty else []
    roots += penalised
    root_gradients += [branch.detach() * (2 * penalty / count) for branch in penalised]
    if penalty_embedding and states[0].requires_grad:
        roots.append(states[0])
        root_gradients.append(states[0].detach() * (2 * penalty_embedding / count))
    if heads is not None:
        inputs = CreditInputs(states, output.error, output.targets, output.error, labels=labels, task=output.task)
        roots.append(heads.loss(inputs))
        root_gradients.append(torch.ones_like(roots[-1]))
    if any(root.requires_grad for root in roots):
        torch.autograd.backward(roots, root_gradients)
    return output.sums(labels, penalty_sum(penalised, penalty, logits, states[0], penalty_embedding))


def local_credit_step(
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
    task: Task | None = None,
    anchor: bool = False,
    penalty_embedding: float = 0.0,
    clip: float = 0.0,
) -> StepSums:
    """Fill every .grad by the rule of a local-credit method.

    No gradient flows from one block to another. If the method trains its feedback, the .grad of the feedback is filled too. The
    arguments are as for backprop_step and credit_divisor; `generator` and `progress` are those of CreditInputs. `anchor` is true
    for an anchor step, in which c_l = g_l (see HasAnchorSteps).
    """
    matrices = method.backward_weights(feedback, network) if isinstance(method, UsesBackwardWeights) else {}
    chained = anchor or bool(matrices)
    with backward_through(network, matrices):
        embedded, states, branches = _cut_forward(network, images, run, chained)
    top = states[-1].requires_grad_()
    logits = run(network.readout, top)
    output = OutputError.of(logits, labels, task)
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
        task=output.task,
        scores=scores_of(method, feedback, network, images, output.logits.shape),
    )
    eps, by_position = norm_eps(method.card.credit_scale, count), output.task.by_position
    if chained:
        highest = top_credit(network, matrices, top, output.error)
        settings = (penalty, credit_norm, eps, by_position, penalty_embedding, clip)
        credits = chained_backward(network, states[:-1], embedded, branches, highest, *settings)
    else:
        credited = credits_and_states_of(method, feedback, inputs)
        credits, outputs = credited.credits, _outputs_at(network, credited, embedded, branches, run)
        rows = normalised_credits(credits, credit_norm, count, eps, by_position, clip)
        _backward(network, outputs, embedded, branches, rows, penalty, penalty_embedding)
    fill_feedback_grads(method, feedback, inputs)
    penalised = learning(network, branches) if penalty else []
    penalties = penalty_sum(penalised, penalty, logits, embedded, penalty_embedding)
    sums = output.sums(labels, penalties, inputs.scores)
    return dataclasses.replace(sums, seen=inputs, credited=credited_sites(credits, penalty, penalty_embedding))


def _cut_forward(
    network: Network, images: Tensor, run: Run, chained: bool
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return embed(x) with its autograd graph, the detached states h_0..h_L, and the branches f_l."""
    embedded = run(network.embed, images)
    states, branches = [embedded.detach()], []
    for block in network.blocks:
        branches.append(run(block, states[-1].requires_grad_(chained)))
        states.append(network.step(states[-1].detach(), branches[-1].detach()))
    return embedded, states, branches


def _outputs_at(
    network: Network, credited: CreditedStates, embedded: Tensor, branches: Sequence[Tensor], run: Run
) -> list[Tensor]:
    """Return h_0 and f_1(s_0)..f_L(s_{L-1}), which the credits train.

    They are those of the forward pass, `embedded` and `branches`, unless the method has its own images or states. Those have no
    process noise, and each is on a separate graph.
    """
    with quiet(network):
        if credited.images is not None:
            embedded = run(network.embed, credited.images)
        if credited.states is not None:
            pairs = zip(network.blocks, credited.states[:-1], strict=True)
            branches = [run(block, state.detach()) for block, state in pairs]
    return [embedded, *branches]


def _backward(
    network: Network,
    outputs: Sequence[Tensor],
    embedded: Tensor,
    branches: Sequence[Tensor],
    rows: Sequence[Tensor],
    penalty: float,
    penalty_embedding: float,
) -> None:
    """Backpropagate the gradient of J through the outputs of `_outputs_at`, and that of the penalties.

    `rows` are norm(c_l)/N. The penalties apply to the forward pass: to `embedded` and `branches`, (N, …) each.
    """
    count = len(embedded)
    with torch.no_grad():
        roots = [(output, network.spread(row, output)) for row, output in zip(rows, outputs, strict=True)]
        pulls = [(embedded, penalty_embedding)] if penalty_embedding else []
        pulls += [(branch, penalty) for branch in branches] if penalty else []
        for output, strength in pulls:
            pull = output * (2 * strength / count)
            site = next((site for site, (other, _) in enumerate(roots) if other is output), None)
            if site is None:
                roots.append((output, pull))
            else:
                roots[site] = output, roots[site][1] + pull
    # a frozen block's branch is on no graph: its credit is computed with the others but not used
    trained_pairs = [pair for pair in roots if pair[0].requires_grad]
    if trained_pairs:
        torch.autograd.backward(*zip(*trained_pairs, strict=True))


def learning(network: Network, branches: Sequence[Tensor]) -> list[Tensor]:
    """Return the branches of the trained blocks. The penalty applies to no branch of a frozen block."""
    return [branch for block, branch in zip(network.blocks, branches, strict=True) if learns(block)]


def credited_sites(credits: Sequence[Tensor], penalty: float, penalty_embedding: float) -> Tensor:
    """Return whether any entry of c_l differs from zero, for each site, (L+1,).

    The entry of every block is True if there is a penalty, and that of the embedding if there is a penalty on its output.
    """
    has_credit = torch.stack([credit.any() for credit in credits])
    if penalty:
        has_credit[1:] = True
    if penalty_embedding:
        has_credit[0] = True
    return has_credit


def clip_gradient(network: Network, feedback: nn.Module, limit: float) -> None:
    """Scale all gradients by one number, so that the norm of the network's gradient is at most `limit`.

    The feedback's gradient is scaled by the same number, because kolen_pollack needs equal steps of weights and feedback. With the
    limit 0, nothing is scaled.
    """
    if limit:
        norm = torch.nn.utils.get_total_norm([one.grad for one in network.parameters() if one.grad is not None])
        torch.nn.utils.clip_grads_with_norm_([*network.parameters(), *feedback.parameters()], limit, norm)


def penalty_sum(
    branches: Sequence[Tensor], penalty: float, like: Tensor, embedded: Tensor, penalty_embedding: float
) -> Tensor:
    """Return Σ_l Σ_i λ||f_l||² + Σ_i λ_0||h_0||², detached from the graph.

    A step reports this sum in addition to the loss. The result has the type of the tensor `like`.
    """
    total = like.new_zeros(())
    if branches:
        total = penalty * sum((branch.detach().square().sum() for branch in branches), start=total)
    return total + penalty_embedding * embedded.detach().square().sum() if penalty_embedding else total
