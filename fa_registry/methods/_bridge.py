"""Networks and functions that both state_bridge and credit_bridge use.

Each bridge has one small network for all sites. The network receives the state h_l, the site as the time t_l = l/L, and a signal s
of the sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fa_registry.methods._nets import perceptron
from fa_registry.methods.base import CreditInputs, NetworkShape
from fa_registry.records import Option
from fa_registry.token_axes import features, mean_over_positions

CITATION = "arXiv 2606.21126"
BIBTEX = """@misc{arxiv2606.21126,
  key={arXiv 2606.21126},
  howpublished={arXiv preprint arXiv:2606.21126},
  year={2026},
  eprint={2606.21126}, archivePrefix={arXiv}
}"""
ONE_NET = (
    "one network is used for all sites; tokens and maps are averaged over positions, and each state is padded with zeros to "
    "the width of the widest state"
)
HIDDEN = 256
EPSILON = 1e-12  # avoids 0/0: a state of zeros divided by its scale is zero
FREQUENCIES = 2
LOWEST = 10_000.0  # the slowest frequency is 1/LOWEST^((FREQUENCIES − 1)/FREQUENCIES)


def conditioning_option(default: str, source: str) -> Option:
    """Return the method option that selects the sample signal s."""
    return Option(
        default,
        "signal s of a sample, which the learned net(h, t, s) receives: the output error e, the target y, or none",
        source,
        choices=("error", "target", "none"),
    )


class SiteNet(nn.Module):
    """GELU perceptron net(h, t, s) for all sites.

    An input row is the concatenation of h, the embedding of t, and s. The hidden layers have width 256.

    Args:
        features: width of h.
        classes: number of classes C, the width of s.
        conditioning: name of the signal s: "error", "target" or "none". With "none", s is empty.
        layers: number of hidden layers.
        outputs: number of outputs.
        generator: generator for the initial weights and biases.
    """

    def __init__(
        self, features: int, classes: int, conditioning: str, layers: int, outputs: int, generator: torch.Generator
    ):
        super().__init__()
        self.conditioning = conditioning
        signal_width = 0 if conditioning == "none" else classes
        self.layers = perceptron((features + 2 * FREQUENCIES + signal_width, *[HIDDEN] * layers, outputs), generator)

    def forward(self, features: Tensor, times: Tensor, signal: Tensor) -> Tensor:
        """Compute the outputs of the perceptron for R rows, (R, outputs).

        Args:
            features: states h, (R, D).
            times: times t in [0, 1], (R,).
            signal: sample signals s, (R, C) or (R, 0).
        """
        return self.layers(torch.cat([features, embedded(times), signal], dim=1))

    def conditioning_signal(self, inputs: CreditInputs) -> Tensor:
        """Return the signal s of every sample, (N, C), or (N, 0) without conditioning."""
        return {"error": inputs.error, "target": inputs.onehot, "none": inputs.error[:, :0]}[self.conditioning]


class ValueNet(nn.Module):
    """Network for a scalar value V(h, t, s).

    A state is divided by the scale of its site, and s is multiplied by the constant `weight`. Therefore the size of the inputs
    remains constant, even if the states grow from epoch to epoch. If the states grow, ∂V/∂h becomes smaller. True gradients also
    become smaller.
    """

    def __init__(self, shape: NetworkShape, conditioning: str, weight: float, layers: int, generator: torch.Generator):
        super().__init__()
        self.net = SiteNet(max(shape.sites), shape.classes, conditioning, layers, 1, generator)
        self.weight = weight
        self.register_buffer("scales", torch.ones(len(shape.sites)))

    def forward(self, states: Tensor, times: Tensor, signal: Tensor) -> Tensor:
        """Compute the values V of R rows, (R,).

        Args:
            states: states h, (R, D).
            times: times t in [0, 1], (R,).
            signal: sample signals s, (R, C) or (R, 0).
        """
        site = (times * (len(self.scales) - 1)).round().long()
        return self.net(states / self.scales[site, None], times, signal * self.weight).squeeze(1)

    def conditioning_signal(self, inputs: CreditInputs) -> Tensor:
        """Return the signal s of every sample, (N, C), or (N, 0) without conditioning."""
        return self.net.conditioning_signal(inputs)


def site_scales(hidden: Sequence[Tensor]) -> Tensor:
    """Compute the scale of every site, (L+1,).

    The scale is the root mean square of the state after averaging over positions.
    """
    return torch.stack([mean_over_positions(state).square().mean() for state in hidden]).sqrt() + EPSILON


def embedded(times: Tensor) -> Tensor:
    """Return sines and cosines of times, (R,) → (R, 2 · FREQUENCIES).

    The frequencies decrease from 1.
    """
    index = torch.arange(FREQUENCIES, device=times.device, dtype=times.dtype)
    angles = times[:, None] * torch.exp(index * (-math.log(LOWEST) / FREQUENCIES))  # (rows, frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def site_times(inputs: CreditInputs) -> Tensor:
    """Return the times t_l = l/L of sites 0..L, (L+1,), in the dtype of the states."""
    top = inputs.hidden[-1]
    return torch.linspace(0, 1, len(inputs.hidden), device=top.device, dtype=top.dtype)


def site_rows(inputs: CreditInputs) -> list[Tensor]:
    """Convert the states h_0..h_L to inputs of the network, with one row per sample.

    Token states and maps are averaged over positions. Rows are padded with zeros to the width of the widest site.
    """
    rows = [mean_over_positions(state) for state in inputs.hidden]
    width = max(row.shape[1] for row in rows)
    # padding with width 0 would copy the tensor
    return [row if row.shape[1] == width else nn.functional.pad(row, (0, width - row.shape[1])) for row in rows]


def all_sites(inputs: CreditInputs, signal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Concatenate states h, times t and signals s of all sites to (L+1)·N rows."""
    sites, count = len(inputs.hidden), len(signal)
    return torch.cat(site_rows(inputs)), site_times(inputs).repeat_interleave(count), signal.repeat(sites, 1)


def by_site(slopes: Tensor, inputs: CreditInputs) -> list[Tensor]:
    """Split gradients for the rows of `all_sites` into one credit (N, D_l) per site.

    The padding is removed.

    Args:
        slopes: gradients with respect to the padded states, ((L+1)·N, D).
    """
    rows = slopes.split(len(inputs.error))
    return [row[:, : features(state)] for row, state in zip(rows, inputs.hidden, strict=True)]
