"""Method credit_bridge: a value network V_φ predicts the loss at every site.

V_φ satisfies a recursion over sites. The credit is the gradient of V_φ.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fa_registry.methods import _bridge
from fa_registry.methods._bridge import ValueNet, all_sites, by_site, site_rows, site_scales, site_times
from fa_registry.methods.base import (
    Bridge,
    CreditInputs,
    HasFeedbackRule,
    LearnsFeedbackByLoss,
    Method,
    MethodCard,
    NetworkShape,
)
from fa_registry.methods.dfa import direct_credits, direct_matrices
from fa_registry.records import Option, Scalar
from fa_registry.token_axes import sum_over_positions

LAYERS = 3
PAPER = "arXiv 2606.21126"


class ValueState(nn.Module):
    """Feedback state of credit_bridge.

    The state contains V_φ, its moving average V̄, the matrices for the warm-up, and the progress of the training.
    """

    def __init__(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator):
        super().__init__()
        conditioning, scale = str(options["conditioning"]), float(options["condition_scale"])
        self.value = ValueNet(shape, conditioning, scale, LAYERS, generator)
        self.average = copy.deepcopy(self.value).requires_grad_(False)
        self.direct = direct_matrices(shape, generator)
        self.register_buffer("progress", torch.zeros(()))
        self.options = dict(options)


class CreditBridge(Method, LearnsFeedbackByLoss, HasFeedbackRule, Bridge):
    card = MethodCard(
        name="credit_bridge",
        rule="c_l = ∂V_φ(h_l, t_l, s)/∂h_l, where the net V_φ predicts the loss; during the warm-up, c_l is DFA's credit",
        citation=_bridge.CITATION,
        bibtex=_bridge.BIBTEX,
        equations="φ minimises mean (V_φ(h_l, t_l, s) − sg softmin_l)² over l < L and samples, + mean (V_φ(h_L, 1, s) − ℓ)², "
        "+ w mean r_L² ‖∂V_φ/∂h_L − g_L‖²; softmin_l = −λ_b log mean_k exp(−V̄(h_{l+1} + σξ_k, t_{l+1}, s)/λ_b), "
        "ξ_k ~ N(0, I); V̄ ← ema V̄ + (1 − ema) V_φ after every step",
        deviations=(
            "re-implemented from its description, because no code of the source was available. The activation is GELU. The "
            "inputs for t are sin and cos of t and of t/100. φ always learns with the network's optimiser, learning rate and "
            "weight decay, even during the warm-up",
            "a state is divided by the root mean square of its site in the previous step (a buffer). Gradients are matched in "
            "units of the root mean square of site L, which is about 1 on the toy LQ task. In other units, g_L would be too "
            "small to be matched when states grow",
            "s is multiplied by 10 (condition_scale), because training on the toy LQ task then starts faster",
            "sample i of a batch trains the recursion only at the sites l ≡ i modulo 4 (thinning). Batches are shuffled, so "
            "the mean stays the same, at a quarter of the cost",
            "the first step after the warm-up still uses DFA's credit, because the training progress is stored at the end of "
            "a step",
            _bridge.ONE_NET,
            "on the toy LQ task with s = e, the loss ℓ = ½‖s‖² is a function of s only. V_φ can fit this loss with ∂V_φ/∂h = "
            "0, which contradicts the gradient matching. The option conditioning=target (s = y) avoids the contradiction",
            "on the toy LQ task, 16 time features, t itself, SiLU and a learning rate of 3e-3 gave no clear gain; tanh, and the "
            "mean over features in the gradient matching, were worse",
        ),
        architectures=("any",),
        gamma_reference="bp",
        exact_sites="none",
        feedback="weights and biases of V_φ ~ U(±1/√inputs), then learned; its moving average; DFA's B_l ~ N(0, 1/C), fixed",
        options={
            "conditioning": _bridge.conditioning_option("error", f"{PAPER}: s = sg(e)"),
            "condition_scale": Option(
                10.0, "factor that multiplies s before the network reads s", "chosen here", above=0
            ),
            "temperature": Option(0.1, "λ_b of the softmin", PAPER, above=0),
            "noise": Option(0.1, "σ, standard deviation of the noise on h_{l+1}", PAPER, least=0),
            "draws": Option(8, "K, number of noise draws per softmin", PAPER, least=1),
            "ema": Option(0.995, "weight of the old V̄ in the moving average, at every step", PAPER, least=0),
            "warmup": Option(0.2, "fraction of the training during which DFA's credit is used", PAPER, least=0),
            "gradient_weight": Option(1.0, "w, weight of the terminal gradient matching", PAPER, least=0),
            "thinning": Option(
                4, "n: every sample trains the recursion only at every n-th site", "chosen here", least=1
            ),
        },
        properties=("feedback_learns",),
        learned=True,
        may_reach_bp=True,
        credit_scale_source="arXiv 2606.21126's equation: V_φ predicts the loss ℓ of one sample, so the credit belongs to one "
        "sample's loss",
    )

    def feedback(self, shape: NetworkShape, options: Mapping[str, Scalar], generator: torch.Generator) -> nn.Module:
        return ValueState(shape, options, generator)

    def credits(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        """Compute c_l = ∂V_φ(h_l, t_l, s)/∂h_l, (N, D_l).

        During the warm-up, the credit is that of dfa. V_φ predicts the loss, so its gradient has the sign of a credit. If V_φ is
        exact, the method is backpropagation (tests/methods/test_credit_bridge.py).
        """
        states, times, signal = all_sites(inputs, feedback.value.conditioning_signal(inputs))
        with torch.enable_grad():
            (slopes,) = torch.autograd.grad(feedback.value(states.requires_grad_(), times, signal).sum(), states)
        is_warmup = feedback.progress < feedback.options["warmup"]
        direct = direct_credits(feedback.direct, inputs.error, inputs.hidden)
        pairs = zip(direct, by_site(slopes, inputs), strict=True)
        return [torch.where(is_warmup, *pair) for pair in pairs]

    def feedback_loss(self, feedback: nn.Module, inputs: CreditInputs) -> Tensor:
        """Compute the loss of V_φ.

        The loss is recursion loss + terminal value loss + w · terminal gradient loss, each averaged over rows.
        """
        # every sample must train at least one site, also if there are fewer blocks than `thinning`
        thinning = min(feedback.options["thinning"], len(inputs.hidden) - 1)
        recursion = _recursion_errors(feedback, inputs, thinning)
        top = site_rows(inputs)[-1].detach().clone().requires_grad_()
        value = _top_value(feedback, inputs, top)
        (slope,) = torch.autograd.grad(value.sum(), top, create_graph=True)
        top_gradient = sum_over_positions(inputs.output_gradient)  # (batch, hidden)
        mismatch = ((slope[:, : top_gradient.shape[1]] - top_gradient) * feedback.value.scales[-1]).square().sum(dim=1)
        terminal = (value - inputs.losses).square() + feedback.options["gradient_weight"] * mismatch
        return recursion.square().mean() + terminal.mean()

    def update_feedback(self, feedback: nn.Module, inputs: CreditInputs) -> None:
        """Update V̄ ← ema V̄ + (1 − ema) V_φ, the sites' scales, and the progress."""
        average_parameters, value_parameters = list(feedback.average.parameters()), list(feedback.value.parameters())
        torch._foreach_lerp_(average_parameters, value_parameters, 1 - feedback.options["ema"])
        scales = site_scales(inputs.hidden)
        for net in (feedback.value, feedback.average):
            net.scales.copy_(scales)
        feedback.progress.fill_(inputs.progress)

    def bridge_residuals(self, feedback: nn.Module, inputs: CreditInputs) -> list[Tensor]:
        recursion_errors = _recursion_errors(feedback, inputs, 1).split(len(inputs.error))
        return [*recursion_errors, _top_value(feedback, inputs, site_rows(inputs)[-1]) - inputs.losses]


def _recursion_errors(feedback: ValueState, inputs: CreditInputs, thinning: int) -> Tensor:
    """Compute V_φ(h_l) − softmin_l for all sites l < L, concatenated to shape (rows,).

    No gradient flows through the softmin. At site l, only the samples i with i ≡ l modulo `thinning` are used.
    """
    signal, hidden, times = feedback.value.conditioning_signal(inputs), site_rows(inputs), site_times(inputs)
    blocks = len(hidden) - 1
    row_slices = [slice(site % thinning, None, thinning) for site in range(blocks)]
    row_times = [times[site].expand(len(signal[rows])) for site, rows in enumerate(row_slices)]
    lower = torch.cat([hidden[site][rows] for site, rows in enumerate(row_slices)])  # (rows, hidden)
    upper = torch.cat([hidden[site + 1][rows] for site, rows in enumerate(row_slices)])
    signal = torch.cat([signal[rows] for rows in row_slices])
    row_times = torch.cat(row_times)
    return feedback.value(lower, row_times, signal) - _softmin(
        feedback, upper, row_times + 1 / blocks, signal, inputs.generator
    )


@torch.no_grad()
def _softmin(
    feedback: ValueState, states: Tensor, times: Tensor, signal: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Compute −λ_b log mean_k exp(−V̄(h + σξ_k, t, s)/λ_b) for every row, (R,)."""
    draws, temperature = feedback.options["draws"], feedback.options["temperature"]
    noise = torch.randn(draws, *states.shape, generator=generator, device=states.device, dtype=states.dtype)
    noisy_states = (states + feedback.options["noise"] * noise).flatten(0, 1)  # (draws * rows, hidden)
    values = feedback.average(noisy_states, times.repeat(draws), signal.repeat(draws, 1)).view(draws, len(states))
    return temperature * (math.log(draws) - torch.logsumexp(-values / temperature, dim=0))


def _top_value(feedback: ValueState, inputs: CreditInputs, top: Tensor) -> Tensor:
    """Compute V_φ(h_L, 1, s), (N,)."""
    return feedback.value(top, top.new_ones(len(top)), feedback.value.conditioning_signal(inputs))


PLUGIN = CreditBridge()
