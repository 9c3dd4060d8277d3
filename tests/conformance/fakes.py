"""Methods that claim to be what they are not. Each must be caught by the property that its test names."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

import torch
from torch import nn

from fa_registry.methods._backward_weights import layer_weights
from fa_registry.methods.base import CreditedStates, CreditInputs, MethodCard, NoFeedback
from fa_registry.methods.bp import Backpropagation
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.methods.drtp import DirectRandomTargetProjection
from fa_registry.methods.fa import BlockFeedbackAlignment
from fa_registry.methods.forward_forward import ForwardForward
from fa_registry.methods.pepita import ErrorDrivenInputModulation
from fa_registry.methods.weight_fa import WeightFeedbackAlignment
from fa_registry.tasks import sample_losses


def calls_autograd(card: MethodCard) -> MethodCard:
    """The card of a method that declares what a fake needs: autograd on the network it is handed."""
    return dataclasses.replace(card, needs_autograd=True)


class TrainedByBp(BlockFeedbackAlignment):
    """FA's card and credits on top of an ordinary backward pass."""

    end_to_end = True


class CallsAutograd(BlockFeedbackAlignment):
    """Claims FA, takes the network from the caller's frame and differentiates it."""

    def credits(self, feedback, inputs):
        frame = inspect.currentframe()
        while not {"network", "images", "labels"} <= frame.f_locals.keys():
            if frame.f_back is None:
                return super().credits(feedback, inputs)
            frame = frame.f_back
        network, images, labels = (frame.f_locals[name] for name in ("network", "images", "labels"))
        with torch.enable_grad():
            logits, hidden = network(images, return_hidden=True)
            return list(torch.autograd.grad(nn.functional.cross_entropy(logits, labels, reduction="sum"), hidden))


def backpropagated(inputs: CreditInputs) -> list[torch.Tensor]:
    """g_0..g_L by autograd on the network a method is handed."""
    network = inputs.network
    with torch.enable_grad():
        states = [inputs.hidden[0].detach().requires_grad_()]
        for block in network.blocks:
            states.append(network.step(states[-1], block(states[-1])))
        return list(torch.autograd.grad(sample_losses(network.readout(states[-1]), inputs.labels).sum(), states))


def altered(name: str, base: type, change: Callable[[list[torch.Tensor], CreditInputs], list[torch.Tensor]]) -> type:
    """The method `base` whose credits are what `change` makes of its own."""

    def credits(self, feedback, inputs):
        return change(base.credits(self, feedback, inputs), inputs)

    return type(name, (base,), {"credits": credits})


def dressed_as(name: str, base: type) -> type:
    """Backpropagation with the card and the feedback of `base`: its credit is autograd's on inputs.network."""
    attributes = {
        "card": calls_autograd(base.card),
        "credits": lambda self, feedback, inputs: backpropagated(inputs),
        "credits_and_states": lambda self, feedback, inputs: CreditedStates(backpropagated(inputs)),
    }
    return type(name, (base,), attributes)


def negative(credits: list[torch.Tensor], inputs: CreditInputs) -> list[torch.Tensor]:
    return [-credit for credit in credits]


def at_the_input(credits: list[torch.Tensor], inputs: CreditInputs) -> list[torch.Tensor]:
    """Block l gets the credit of site l − 1, its input; sites must be of one width."""
    return [credits[0], *credits[:-1]]


class BpDressedAsWeightFa(WeightFeedbackAlignment):
    """Draws B, saves B, and sends the error back through W."""

    def backward_weights(self, feedback, network):
        return layer_weights(network, feedback.layers)


class WeightFaMeasuredAsBp(WeightFeedbackAlignment):
    """Trains through B, as it says, and shows the gradient to the measurement."""

    def credits(self, feedback, inputs):
        return backpropagated(inputs)


BpDressedAsFa = dressed_as("BpDressedAsFa", BlockFeedbackAlignment)
BpDressedAsDrtp = dressed_as("BpDressedAsDrtp", DirectRandomTargetProjection)
BpDressedAsForwardForward = dressed_as("BpDressedAsForwardForward", ForwardForward)
# DFA with B_{l+1}: block l learns from the credit of the block after it.
OneSiteTooEarly = altered("OneSiteTooEarly", DirectFeedbackAlignment, lambda own, inputs: [*own[1:], own[-1]])
# What the published code reports: the credit of block l against the gradient one site below.
FaAtTheInput = altered("FaAtTheInput", BlockFeedbackAlignment, at_the_input)
DfaAtTheInput = altered("DfaAtTheInput", DirectFeedbackAlignment, at_the_input)
WeightFaAtTheInput = altered("WeightFaAtTheInput", WeightFeedbackAlignment, at_the_input)
DrtpAtTheInput = altered("DrtpAtTheInput", DirectRandomTargetProjection, at_the_input)
PepitaAtTheInput = altered("PepitaAtTheInput", ErrorDrivenInputModulation, at_the_input)
# DFA with −e: by the symmetry of B it trains as well as DFA, so only its own equation can convict it.
WrongSign = altered("WrongSign", DirectFeedbackAlignment, negative)
# FA whose exact top site is right and whose chain flips the sign.
WrongSignBelow = altered(
    "WrongSignBelow", BlockFeedbackAlignment, lambda own, inputs: [*negative(own[:-1], inputs), own[-1]]
)
WeightFaWrongSign = altered("WeightFaWrongSign", WeightFeedbackAlignment, negative)
DrtpWrongSign = altered("DrtpWrongSign", DirectRandomTargetProjection, negative)
PepitaWrongSign = altered("PepitaWrongSign", ErrorDrivenInputModulation, negative)  # h_l(x + Fe) − h_l(x)
# The credit of the mean loss instead of the summed one.
DividesByTheBatch = altered(
    "DividesByTheBatch", DirectFeedbackAlignment, lambda own, inputs: [credit / len(inputs.error) for credit in own]
)
CentresOverTheBatch = altered(
    "CentresOverTheBatch", DirectFeedbackAlignment, lambda own, inputs: [credit - credit.mean(dim=0) for credit in own]
)
WrongShape = altered("WrongShape", DirectFeedbackAlignment, lambda own, inputs: [credit[:, :-1] for credit in own])
NotFinite = altered("NotFinite", DirectFeedbackAlignment, lambda own, inputs: [own[0] / 0, *own[1:]])
DrawsAFreshCredit = altered(
    "DrawsAFreshCredit",
    DirectFeedbackAlignment,
    lambda own, inputs: [torch.randn_like(state) for state in inputs.hidden],
)


class ReadsTheReference(BlockFeedbackAlignment):
    """FA in training; while measuring, what it is compared with: Γ = 1.0 without one wrong training step."""

    def credits(self, feedback, inputs):
        return list(inputs.gradients) if inputs.gradients is not None else super().credits(feedback, inputs)


class ExactOneSiteTooEarly(Backpropagation):
    """An oracle that hands each block the gradient at its input."""

    def credits(self, feedback, inputs):
        return [inputs.gradients[0], *inputs.gradients[:-1]]


class WrongSignOnTop(BlockFeedbackAlignment):
    def credits(self, feedback, inputs):
        return super().credits(feedback, dataclasses.replace(inputs, output_gradient=-inputs.output_gradient))


class WeightFaWrongSignOfB(WeightFeedbackAlignment):
    """−B in every layer, which trains as well as B."""

    def backward_weights(self, feedback, network):
        return {name: -matrix for name, matrix in super().backward_weights(feedback, network).items()}


class DrtpSeesTheError(DirectRandomTargetProjection):
    """DFA under the name of drtp."""

    def credits(self, feedback, inputs):
        return super().credits(feedback, dataclasses.replace(inputs, onehot=inputs.error))


class PepitaSubtractsTheError(ErrorDrivenInputModulation):
    """The second pass is of x − F e."""

    def credits(self, feedback, inputs):
        return super().credits(feedback, dataclasses.replace(inputs, error=-inputs.error))


class Untransposed(BlockFeedbackAlignment):
    """c_{l-1} = c_l B_lᵀ."""

    def credits(self, feedback, inputs):
        credits = [inputs.output_gradient]
        for block in range(len(inputs.hidden) - 1, 0, -1):
            credits.insert(0, credits[0] @ feedback.matrix(block).T)
        return credits


class KeepsItsMatricesElsewhere(DirectFeedbackAlignment):
    """B is a plain attribute: it is trained with, and lost with the process."""

    def feedback(self, shape, options, generator):
        drawn, module = super().feedback(shape, options, generator), NoFeedback()
        module.matrix = lambda block: drawn.matrix(block).double()
        return module


class RedrawsWhileTraining(DirectFeedbackAlignment):
    def credits(self, feedback, inputs):
        for matrix in feedback.buffers():
            matrix.mul_(0.9)
        return super().credits(feedback, inputs)


class UsesTheGlobalGenerator(DirectFeedbackAlignment):
    def feedback(self, shape, options, generator):
        torch.rand(1)
        return super().feedback(shape, options, generator)


class IgnoresItsSeed(DirectFeedbackAlignment):
    def feedback(self, shape, options, generator):
        return super().feedback(shape, options, torch.Generator().manual_seed(0))


class DeclaresTheUnheardOf(DirectFeedbackAlignment):
    card = dataclasses.replace(DirectFeedbackAlignment.card, properties=("feedback_fixd",))
