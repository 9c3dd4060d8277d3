"""Method dni: decoupled neural interfaces.

At every site, a network predicts the gradient. It reads the state, and optionally the label.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._nets import perceptron
from fa_registry.methods.base import CreditInputs, LearnsFeedbackByLoss, Method, MethodCard, NetworkShape
from fa_registry.records import Option, Scalar

FIRST_GUESS = 0.01  # far below any gradient: a large first prediction would push all states in one direction
TINY = 1e-30  # keeps the loss finite if all targets of a batch are exactly zero


class SyntheticGradients(nn.Module):
    """Networks M_0..M_{L-1}; M_l predicts the gradient g_l.

    M_l reads h_l. With the option `conditioning`, it also reads onehot(y).
    """

    def __init__(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator):
        super().__init__()
        self.sees_label = options["conditioning"] == "label"
        extra, hidden = shape.classes if self.sees_label else 0, int(options["hidden"])
        inner = [hidden] if hidden else []
        self.nets = nn.ModuleList(perceptron((width + extra, *inner, width), generator) for width in shape.sites[:-1])
        with torch.no_grad():
            for net in self.nets:
                net[-1].weight.mul_(FIRST_GUESS)
                net[-1].bias.mul_(FIRST_GUESS)

    def predict(self, inputs: CreditInputs) -> list[Tensor]:
        """Compute the predicted gradients ĝ_0..ĝ_{L-1}."""
        label_inputs = [inputs.onehot] if self.sees_label else []
        states = [nn.functional.layer_norm(state, state.shape[1:]) for state in inputs.hidden[:-1]]
        return [net(torch.cat([state, *label_inputs], dim=1)) for net, state in zip(self.nets, states, strict=True)]


class DecoupledNeuralInterfaces(Method, LearnsFeedbackByLoss):
    card = MethodCard(
        name="dni",
        rule="c_l = M_l(h_l, y), where the net M_l learns to predict the gradient; c_L = g_L exactly",
        citation="Jaderberg, Czarnecki, Osindero, Vinyals, Graves, Silver & Kavukcuoglu 2017",
        bibtex="""@inproceedings{jaderberg2017decoupled,
  title={Decoupled neural interfaces using synthetic gradients},
  author={Jaderberg, Max and Czarnecki, Wojciech Marian and Osindero, Simon and Vinyals, Oriol and Graves, Alex and
    Silver, David and Kavukcuoglu, Koray},
  booktitle={Proceedings of the 34th International Conference on Machine Learning}, pages={1627--1635}, year={2017}
}""",
        equations="c_l = ĝ_l = M_l(LN(h_l), onehot(y)) for l < L, c_L = g_L; target t_l = ĝ_{l+1} J_{l+1} (constant), ĝ_L = g_L, "
        "J_{l+1} = ∂h_{l+1}/∂h_l; loss Σ_l Σ_i ‖ĝ_l − t_l‖² / Σ_i ‖t_l‖²",
        deviations=(
            "every site of the residual stream has a network, whose target comes from the prediction at the next site; the "
            "source also uses fewer networks",
            "at each site, the squared error over the batch is divided by Σ_i ‖t_l‖², because gradients and errors become a "
            "thousand times smaller during training; the source does not divide",
            "M_l is linear, the simplest form in the source, because a hidden layer of 256 learns too slowly for a hundred epochs "
            "of digits. Its input is the state after a LayerNorm without weights; the source has BatchNorm inside M_l",
            "the last layer of M_l starts at 0.01 times the default weights; in the source, it starts at zero, so there would "
            "be no credit to measure at first",
            "M_l learns at the recipe's rate, 1e-3; the source uses 3e-5 over half a million steps",
            "all blocks wait for the forward pass of the complete network: only the credit is decoupled, not the time at "
            "which a block is updated",
        ),
        architectures=("resmlp", "mlp", "linear_lq", "student_net"),
        unsupported="M_l maps a row of features to a row of features, so states must have the shape (samples, features)",
        gamma_reference="bp",
        exact_sites="last",
        feedback="M_0..M_{L-1}: initial weights and biases are U(±1/√fan_in), and 0.01 times as large in the last layer; learned",
        properties=("feedback_learns",),
        learned=True,
        options={
            "conditioning": Option(
                "label",
                "what M_l reads in addition to h_l",
                "the variant cDNI, which is the best one in the source",
                choices=("label", "none"),
            ),
            "hidden": Option(
                0,
                "width of M_l's hidden layer; 0 means that M_l is linear",
                "fa_registry chose this size; the source uses several sizes",
                least=0,
            ),
        },
        may_reach_bp=True,
        credit_scale_source="Jaderberg et al. 2017 predict the gradient of the loss and do not normalise it; this method does "
        "the same",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return SyntheticGradients(shape, options, generator)

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = M_l(LN(h_l), onehot(y)) for l < L, and c_L = g_L, each (N, D_l)."""
        return [*feedback.predict(inputs), inputs.output_gradient]

    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """Compute the sum over sites of the relative squared prediction error.

        At each site, the squared error is divided by the squared target. No gradient flows through the targets, because
        autograd.grad returns detached tensors.
        """
        predictions = feedback.predict(inputs)
        above = [*predictions[1:], inputs.output_gradient]
        total = inputs.output_gradient.new_zeros(())
        for block, state, prediction, gradient in zip(
            inputs.network.blocks, inputs.hidden[:-1], predictions, above, strict=True
        ):
            leaf = state.detach().requires_grad_()
            target = torch.autograd.grad(inputs.network.step(leaf, block(leaf)), leaf, gradient)[0]
            total = total + (prediction - target).square().sum() / (target.square().sum() + TINY)
        return total


PLUGIN = DecoupledNeuralInterfaces()
