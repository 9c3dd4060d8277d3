"""Check that a method returns the same credit in training and in measuring.

In measuring, a method receives all inputs, including the exact gradients. In training, it receives fewer inputs. A dishonest
method could therefore return the gradient in training and the credit of DFA in measuring. The check compares the weights'
gradients in a training step with the gradients that the measured credits give.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fa_registry.architectures.base import Network, noisy, part_of
from fa_registry.diagnostics import eval_mode
from fa_registry.errors import PluginError
from fa_registry.methods._backward_weights import backward_through
from fa_registry.methods.base import (
    CreditedStates,
    CreditInputs,
    HasOwnStates,
    Method,
    MethodCard,
    NoFeedback,
    UsesBackwardWeights,
    check_credits,
)
from fa_registry.records import RunSpec
from fa_registry.tasks import Task
from fa_registry.training.controls import train_mode
from fa_registry.training.devices import products, runner
from fa_registry.training.method_calls import credits_and_states_of
from fa_registry.training.prediction import scores_of
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.step import OutputError, clip_gradient, couples_samples, local_credit_step

# Largest allowed error of a part's gradient, relative to the gradient's norm. Both gradients are the same float32 sums in another
# order. The error is below 3e-6 for built-in methods on every architecture, and about 1 for a different credit.
SAME_CREDIT = 1e-3
NEARLY_BP = 1 - 1e-6  # cosine with the gradient; approximations of BP are below this limit, BP under any name is above
OTHERWISE = "the credit in training differs from the measured credit"
DISGUISED = "the method's updates are those of backpropagation, although its card does not declare this"
TOO_EARLY = "the method's updates are those of backpropagation, before its feedback can have learned"

Gradients = Mapping[str, Tensor | None]


@dataclass(frozen=True)
class Trial:
    """A copy of a setup's network and feedback state, for one trial step.

    Attributes:
        noise: generator of the network's noise. Its state is the state before the step.
    """

    spec: RunSpec
    method: Method
    network: Network
    feedback: nn.Module
    noise: torch.Generator
    task: Task

    @classmethod
    def copy_of(cls, setup: RunSetup, noise: torch.Generator) -> Trial:
        """Return a copy of the setup in its present state. The copy has no gradients."""
        network, feedback = copy.deepcopy(setup.network), copy.deepcopy(setup.feedback)
        for module in (network, feedback):
            module.zero_grad(set_to_none=True)
        return cls(setup.spec, setup.method, network, feedback, copied(noise), setup.task)


class _MeasuredCredits(Method, HasOwnStates):
    """A method that returns given credits and states, which lets the usual training step train with them."""

    def __init__(self, card: MethodCard, credited: CreditedStates):
        self.card, self._credited = card, credited

    def feedback(self, shape, options, generator) -> nn.Module:
        return NoFeedback()

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        return self._credited.credits

    def credits_and_states(self, feedback: nn.Module, inputs: CreditInputs) -> CreditedStates:
        return self._credited


def copied(generator: torch.Generator) -> torch.Generator:
    """Return a new generator that produces the same random numbers as `generator`."""
    return torch.Generator(generator.device).set_state(generator.get_state())


def gradients(network: nn.Module) -> dict[str, Tensor | None]:
    """Return a mapping: name of a weight → copy of its gradient (.grad).

    The value is None if the weight has no gradient.
    """
    return {
        name: None if parameter.grad is None else parameter.grad.clone()
        for name, parameter in network.named_parameters()
    }


def changed_weights(network_before: nn.Module, network_after: nn.Module) -> str:
    """Return an error text if the method changed the network's weights.

    The text is empty if all weights are equal. Only the optimiser may change the weights.

    Args:
        network_before: the network before the call of the method.
        network_after: the network after the call.
    """
    pairs = zip(network_before.named_parameters(), network_after.parameters(), strict=True)
    # the weights of a diverged run are nan before and after, so they are unchanged
    changed = [
        name for (name, weight), new_weight in pairs if not torch.equal(weight.nan_to_num(), new_weight.nan_to_num())
    ]
    return (
        f"the method changes the network's weights while it computes credits: {', '.join(changed)}" if changed else ""
    )


def trained_gradients(
    trial: Trial, images: Tensor, labels: Tensor, generator: torch.Generator, progress: float
) -> Gradients:
    """Return the gradients of all weights after one training step by local credits.

    Args:
        generator: generator for the method's random numbers.
        progress: trained fraction of the run, as in CreditInputs.
    """
    spec = trial.spec
    with _as_in_training(trial) as run:
        local_credit_step(
            trial.network,
            trial.method,
            trial.feedback,
            images,
            labels,
            spec.penalty,
            spec.recipe.credit_norm,
            generator,
            torch.tensor(progress, device=images.device),
            run,
            trial.task,
            penalty_embedding=spec.penalty_embedding,
            clip=spec.recipe.clip_credit,
        )
    clip_gradient(trial.network, trial.feedback, spec.recipe.clip_gradient)
    return gradients(trial.network)


def objection(trial: Trial, images: Tensor, labels: Tensor, trained: Gradients, judge_bp: bool = True) -> str:
    """Describe a difference between the credits in training and in measuring.

    For an end-to-end method, the check compares the measured credit with the gradient instead.

    Args:
        trial: copy of the setup before the step.
        trained: mapping from weight name to .grad after a training step on this batch.
        judge_bp: whether to check also that the method is not backpropagation. Use False if the feedback may have learned the
            weights.

    Returns:
        The text. It is empty if the check finds no fault, or if the run diverged and its credits are not finite.
    """
    method = trial.method
    inputs, credited = measured_credits(trial, images, labels)
    credits = credited.per_sample(len(labels))
    if not all(credit.isfinite().all() for credit in credits):
        return ""  # the run diverged, as its metrics show, so nothing can be compared
    full_credits = [trial.network.spread(*pair) for pair in zip(credits, inputs.hidden, strict=True)]
    if method.end_to_end:
        worst = _worst(
            {f"site {site}": ([credit], [inputs.gradients[site]]) for site, credit in enumerate(full_credits)}
        )
        message = f"the method is trained end to end, but its credit differs from the gradient: {worst[1]}"
    else:
        worst = _worst(_parts(trained, gradients_by_credits(trial, images, labels, credited)))
        message = f"{OTHERWISE}: {worst[1]}"
    if not worst[0] <= SAME_CREDIT:
        return message
    return _disguise(method.card, full_credits, inputs.gradients) if judge_bp else ""


def measured_credits(trial: Trial, images: Tensor, labels: Tensor) -> tuple[CreditInputs, CreditedStates]:
    """Call the method with the inputs that it receives in measurements.

    The inputs contain the exact gradients, no generator, and a network in eval mode. If a BatchNorm couples the samples, the
    network stays in train mode, because eval mode would change the trained network.

    Returns:
        The inputs of the method, and its credits with the states at which the blocks learn.
    """
    with _as_in_training(trial) as run:
        with torch.enable_grad():
            states = [run(trial.network.embed, images).detach().requires_grad_()]
            for block in trial.network.blocks:
                states.append(trial.network.step(states[-1], run(block, states[-1])))
            logits = run(trial.network.readout, states[-1])
            output, count = OutputError.of(logits, labels, trial.task), len(labels)
            # Divide by N and multiply by N, as a training step does, so that both gradients are rounded equally. If a gradient is
            # small compared with the states, a method that subtracts states (dtp) amplifies a rounding error to 1e-2.
            exact_gradients = [mean * count for mean in torch.autograd.grad(logits, states, output.error / count)]
        inputs = CreditInputs(
            hidden=[state.detach() for state in states],
            error=output.error,
            onehot=output.targets,
            output_gradient=exact_gradients[-1],
            gradients=exact_gradients,
            images=images,
            labels=labels,
            losses=output.losses,
            network=trial.network,
            progress=1.0,
            task=output.task,
            scores=scores_of(trial.method, trial.feedback, trial.network, images, output.logits.shape),
        )
        with nullcontext() if couples_samples(trial.network) else eval_mode(trial.network):
            credited = credits_and_states_of(trial.method, trial.feedback, inputs)
    check_credits(trial.method.card.name, credited.per_sample(len(labels)), inputs.hidden)
    return inputs, credited


def gradients_by_credits(
    trial: Trial,
    images: Tensor,
    labels: Tensor,
    credited: CreditedStates,
    with_backward_weights: bool = True,
) -> Gradients:
    """Return the weights' gradients that a training step computes from these credits.

    Args:
        credited: the credits, and the states at which the blocks learn.
        with_backward_weights: whether the backward pass inside a block uses the method's matrices in place of weights.
    """
    network, method, spec = trial.network, trial.method, trial.spec
    measured_method = _MeasuredCredits(method.card, credited)
    network.zero_grad(set_to_none=True)
    with torch.no_grad():
        has_matrices = with_backward_weights and isinstance(method, UsesBackwardWeights)
        matrices = method.backward_weights(trial.feedback, network) if has_matrices else {}
    with _as_in_training(trial) as run, backward_through(network, matrices):
        local_credit_step(
            network,
            measured_method,
            NoFeedback(),
            images,
            labels,
            spec.penalty,
            spec.recipe.credit_norm,
            run=run,
            task=trial.task,
            penalty_embedding=spec.penalty_embedding,
            clip=spec.recipe.clip_credit,
        )
    clip_gradient(network, NoFeedback(), spec.recipe.clip_gradient)
    return gradients(network)


@contextmanager
def _as_in_training(trial: Trial) -> Iterator:
    """Context manager: set the network's mode, noise and precision as in a training step."""
    train_mode(trial.network)
    with noisy(trial.network, copied(trial.noise)), products(trial.spec.precision):
        yield runner(trial.spec.precision, trial.noise.device)


def _parts(trained: Gradients, by_credits: Gradients) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
    """Return a mapping: part of the network → (gradients in training, gradients by the credits).

    The mapping contains every trained part except the head.
    """
    parts: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
    for name, gradient in trained.items():
        part = ".".join(name.split(".")[: 2 if name.startswith("blocks.") else 1])
        if part.startswith("out_") or (gradient is None and by_credits[name] is None):
            continue
        if gradient is None or by_credits[name] is None:
            raise PluginError(
                f"{name}: expected a gradient both in training and from the measured credits, found only one of the two"
            )
        pair = parts.setdefault(part, ([], []))
        pair[0].append(gradient)
        pair[1].append(by_credits[name])
    return parts


def _worst(parts: Mapping[str, tuple[Sequence[Tensor], Sequence[Tensor]]]) -> tuple[float, str]:
    """Return the largest ‖found − expected‖/‖expected‖ of all parts, and a text that names the part."""
    errors = {name: _distance(*pair) for name, pair in parts.items()}
    if not errors:
        return 0.0, ""
    name = max(errors, key=lambda part: errors[part])
    return errors[
        name
    ], f"at {name} the relative difference of the gradients is {errors[name]:.2g}, expected at most {SAME_CREDIT:g}"


def _distance(tensors: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    values, expected_values = (
        torch.cat([tensor.flatten().double() for tensor in side]) for side in (tensors, expected)
    )
    if torch.equal(values, expected_values):
        return 0.0
    error = ((values - expected_values).norm() / expected_values.norm()).item()
    return error if error == error else float("inf")


def _disguise(card: MethodCard, credits: Sequence[Tensor], exact: Sequence[Tensor]) -> str:
    """Return DISGUISED or TOO_EARLY if credit and gradient are equal at every site not declared exact.

    The text is empty otherwise. The text is also empty if the card declares that the credit is exact at all sites or approaches
    backpropagation. TOO_EARLY is returned if the card declares `may_reach_bp`.
    """
    if card.exact_sites == "all" or "approaches_bp" in card.properties:
        return ""
    blocks = len(credits) - 1
    sites = [site for site in range(blocks + 1) if not card.is_exact(site, blocks)]
    cosines = [cosine(credits[site], exact[site]) for site in sites]
    text = TOO_EARLY if card.may_reach_bp else DISGUISED
    return text if cosines and min(cosines) > NEARLY_BP else ""


def names_in_readout(network: nn.Module) -> set[str]:
    """Return the names of the weights that are also part of the readout.

    An example is the token embedding of a tied head. Such a weight receives the exact gradient of the head under every method.
    """
    every_name = network.named_parameters(remove_duplicate=False)
    in_readout = {id(weight) for name, weight in every_name if part_of(name) == "readout"}
    return {name for name, weight in network.named_parameters() if id(weight) in in_readout}


def cosine(credit: Tensor, gradient: Tensor) -> float:
    """Return the cosine of two tensors, each flattened to one vector.

    The result is nan if one of the tensors is zero.
    """
    credit_vector, gradient_vector = credit.flatten().double(), gradient.flatten().double()
    return (credit_vector @ gradient_vector / (credit_vector.norm() * gradient_vector.norm())).item()
