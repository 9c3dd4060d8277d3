"""What the two bridges share: one net for all sites, told where it is (t_l = l/L) and of which sample it speaks (s)."""

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
    "one net is asked at every site: tokens and maps enter by their position average, a state narrower than the widest site's "
    "is padded with zeros"
)
HIDDEN = 256
EPSILON = 1e-12  # a state of zeros stays zero
FREQUENCIES = 2
LOWEST = 10_000.0  # the slowest frequency is 1/LOWEST^((FREQUENCIES − 1)/FREQUENCIES)


def conditioning_option(default: str, source: str) -> Option:
    """s, what the net is told of a sample."""
    return Option(
        default,
        "s, what the net is told of a sample: the output error e, or y",
        source,
        choices=("error", "target", "none"),
    )


class SiteNet(nn.Module):
    """net(h, t, s): a GELU perceptron on the row (h, embedding of t, s), hidden layers of 256, the same for every site."""

    def __init__(
        self, features: int, classes: int, conditioning: str, layers: int, outputs: int, generator: torch.Generator
    ):
        super().__init__()
        self.conditioning = conditioning
        signal_width = 0 if conditioning == "none" else classes
        self.layers = perceptron((features + 2 * FREQUENCIES + signal_width, *[HIDDEN] * layers, outputs), generator)

    def forward(self, features: Tensor, times: Tensor, signal: Tensor) -> Tensor:
        """features of the states (R, D), times (R,) from 0 to 1, signal s (R, C or 0) → (R, outputs)."""
        return self.layers(torch.cat([features, embedded(times), signal], dim=1))

    def conditioning_signal(self, inputs: CreditInputs) -> Tensor:
        """s of every sample, (N, C), or (N, 0) where nothing is told."""
        return {"error": inputs.error, "target": inputs.onehot, "none": inputs.error[:, :0]}[self.conditioning]


class ValueNet(nn.Module):
    """V(h, t, s), a scalar. A state enters in units of its site's scale, s multiplied by a constant.

    So states that grow from epoch to epoch leave the net's inputs as they are, and its slope shrinks as gradients do.
    """

    def __init__(self, shape: NetworkShape, conditioning: str, weight: float, layers: int, generator: torch.Generator):
        super().__init__()
        self.net = SiteNet(max(shape.sites), shape.classes, conditioning, layers, 1, generator)
        self.weight = weight
        self.register_buffer("scales", torch.ones(len(shape.sites)))

    def forward(self, states: Tensor, times: Tensor, signal: Tensor) -> Tensor:
        """states (R, D), times (R,), signal s (R, C or 0) → (R,)."""
        site = (times * (len(self.scales) - 1)).round().long()
        return self.net(states / self.scales[site, None], times, signal * self.weight).squeeze(1)

    def conditioning_signal(self, inputs: CreditInputs) -> Tensor:
        """s of every sample, (N, C), or (N, 0)."""
        return self.net.conditioning_signal(inputs)


def site_scales(hidden: Sequence[Tensor]) -> Tensor:
    """The root mean square of what enters a net of every site's states, (L+1,)."""
    return torch.stack([mean_over_positions(state).square().mean() for state in hidden]).sqrt() + EPSILON


def embedded(times: Tensor) -> Tensor:
    """Sines and cosines of t at frequencies from 1 down, (R,) → (R, 2 · FREQUENCIES)."""
    index = torch.arange(FREQUENCIES, device=times.device, dtype=times.dtype)
    angles = times[:, None] * torch.exp(index * (-math.log(LOWEST) / FREQUENCIES))  # (rows, frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def site_times(inputs: CreditInputs) -> Tensor:
    """t_l = l/L of sites 0..L, (L+1,), in the states' type."""
    top = inputs.hidden[-1]
    return torch.linspace(0, 1, len(inputs.hidden), device=top.device, dtype=top.dtype)


def site_rows(inputs: CreditInputs) -> list[Tensor]:
    """h_0..h_L as the net reads them: one row a sample, all as wide as the widest."""
    rows = [mean_over_positions(state) for state in inputs.hidden]
    width = max(row.shape[1] for row in rows)
    # padding by nothing would copy
    return [row if row.shape[1] == width else nn.functional.pad(row, (0, width - row.shape[1])) for row in rows]


def all_sites(inputs: CreditInputs, signal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """h, t and s of all sites below each other, site after site: one batch of (L+1)·N rows."""
    sites, count = len(inputs.hidden), len(signal)
    return torch.cat(site_rows(inputs)), site_times(inputs).repeat_interleave(count), signal.repeat(sites, 1)


def by_site(slopes: Tensor, inputs: CreditInputs) -> list[Tensor]:
    """Slopes at the rows of `all_sites` as one credit (N, D_l) a site; what was padded falls away."""
    rows = slopes.split(len(inputs.error))
    return [row[:, : features(state)] for row, state in zip(rows, inputs.hidden, strict=True)]
