"""Method dtp: difference target propagation.

Learned inverses of the blocks propagate targets from the output to the input.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods._nets import noise_like, perceptron
from fa_registry.methods.base import ALL_TASKS, CreditInputs, LearnsFeedbackByLoss, Method, MethodCard, NetworkShape
from fa_registry.records import Option, Scalar


class Inverses(nn.Module):
    """Learned inverses inv_1..inv_L of the blocks, one perceptron per block.

    With `hidden = 0`, an inverse is one layer with a tanh, as in the source. With `skip`, each inverse whose input and output
    have the same width has a skip.
    """

    def __init__(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator):
        super().__init__()
        self.skip = bool(options["skip"])
        self.sigma, self.target_step = float(options["sigma"]), float(options["target_step"])
        sizes = zip(shape.sites[1:], shape.sites[:-1], strict=True)
        hidden = int(options["hidden"])
        self.nets = nn.ModuleList(
            perceptron((above, hidden, below), generator)
            if hidden
            else perceptron((above, below), generator).append(nn.Tanh())
            for above, below in sizes
        )

    def invert(self, block: int, state: Tensor) -> Tensor:
        """Compute inv_block(state) for block 1..L: (N, D_block) → (N, D_{block−1})."""
        guess = self.nets[block - 1](state)
        return state + guess if self.skip and state.shape == guess.shape else guess


class DifferenceTargetPropagation(Method, LearnsFeedbackByLoss):
    card = MethodCard(
        name="dtp",
        rule="t_{l-1} = h_{l-1} + inv_l(t_l) − inv_l(h_l); c_l = (h_l − t_l)/η̂",
        citation="Lee, Zhang, Fischer & Bengio 2015",
        bibtex="""@inproceedings{lee2015difference,
  title={Difference target propagation},
  author={Lee, Dong-Hyun and Zhang, Saizheng and Fischer, Asja and Bengio, Yoshua},
  booktitle={Machine Learning and Knowledge Discovery in Databases (ECML PKDD)}, pages={498--515}, year={2015}
}""",
        equations="t_L = h_L − η̂ g_L; t_{l-1} = h_{l-1} + inv_l(t_l) − inv_l(h_l); c_l = (h_l − t_l)/η̂, so c_L = g_L and "
        "c_{l-1} = (inv_l(h_l) − inv_l(h_l − η̂ c_l))/η̂; inverse loss Σ_l mean_i ‖inv_l(F_l(h̃_{l-1})) − h̃_{l-1}‖², "
        "h̃_{l-1} = h_{l-1} + σξ, F_l block l's map, skip included. An exact inverse gives c_{l-1} = c_l (∂F_l/∂h)⁻ᵀ: "
        "Gauss–Newton, "
        "not the gradient",
        deviations=(
            "the credit is h_l − t_l divided by η̂, so it has the scale of g_l; the division does not change the direction",
            "η̂ = 1, which multiplies one sample's gradient of the summed loss; the source tunes η̂. With η̂ = 0.1, rounding "
            "would cost one more decimal digit",
            "inv_l is Linear → GELU → Linear with a hidden layer of 256, without a skip; the source has one layer and a tanh, "
            "which is `hidden = 0`",
            "σ = 0.3 in units of the states, whose size is about one at the start and grows",
            "if every position has a target, each position has a target state, and inv_l is computed position by position, "
            "although the attention of a block mixes positions",
            "inverses and network are updated in the same step, both from the weights before the step; the source updates the "
            "inverses first",
        ),
        architectures=("resmlp", "mlp", "linear_lq", "student_net", "causal_transformer"),
        tasks=ALL_TASKS,
        unsupported="an inverse maps a row of features to a row of features, so states must have the shape (samples, features), "
        "or there must be one target per position",
        gamma_reference="gauss_newton",
        exact_sites="last",
        feedback="inv_1..inv_L with weights and biases U(±1/√fan_in), learned",
        properties=("feedback_learns",),
        learned=True,
        options={
            "target_step": Option(1.0, "η̂, distance of the top target along −g_L", "chosen here", above=0),
            "sigma": Option(
                0.3,
                "σ, standard deviation of the noise that is added to the states from which an inverse learns",
                "chosen here",
                least=0,
            ),
            "hidden": Option(
                256, "width of the inverse's hidden layer; 0: one layer with a tanh", "chosen here", least=0
            ),
            "skip": Option(
                False, "whether inv_l(h) = h + net(h), if input and output have the same width", "chosen here"
            ),
        },
        credit_scale_source="Lee et al. 2015 do not normalise the credit; a factor 1/N would be a part of η̂, which they tune",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return Inverses(shape, options, generator)

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_L = g_L and c_{l−1} = (inv_l(h_l) − inv_l(h_l − η̂ c_l))/η̂.

        The code computes the credits from site L down to site 0. Each credit has the shape of its state. For every η̂, (state −
        target)/η̂ has the sign and scale of the gradient (tests/methods/test_dtp.py).
        """
        credits, target_step = [inputs.output_gradient], feedback.target_step
        for block in range(len(inputs.hidden) - 1, 0, -1):
            state = inputs.hidden[block]
            target = state - target_step * credits[-1]
            change = feedback.invert(block, state) - feedback.invert(block, target)  # (batch, above) -> (batch, below)
            credits.append(change / target_step)
        return credits[::-1]

    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """Compute the loss of the inverses, Σ_l mean_i ‖inv_l(F_l(h̃)) − h̃‖².

        h̃ is h_{l−1} plus noise. With the noise, the inverse also learns directions that occur only in targets, not in samples.
        """
        total = inputs.output_gradient.new_zeros(())
        for index, block in enumerate(inputs.network.blocks, start=1):
            clean = inputs.hidden[index - 1]
            noisy = clean + feedback.sigma * noise_like(clean, inputs.generator)
            with torch.no_grad():
                above = inputs.network.step(noisy, block(noisy))  # (batch, below) -> (batch, above)
            total = total + (feedback.invert(index, above) - noisy).square().sum(dim=-1).mean()
        return total


PLUGIN = DifferenceTargetPropagation()
