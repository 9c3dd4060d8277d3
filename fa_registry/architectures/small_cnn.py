"""small_cnn: three convolutions and a fully connected layer, without skips and without normalisation.

The states are maps, except the last state, which is a vector of features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from fa_registry.architectures._layers import conv, linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.errors import Problem
from fa_registry.records import Option, Scalar
from fa_registry.token_axes import mean_over_positions

SHRUNK = 4  # two 2×2 pools


class SmallCNN(Architecture):
    card = ArchitectureCard(
        name="small_cnn",
        line="conv 32 → pool → conv 64 → pool → conv 128 → Linear 256 → Linear, with ReLU after every layer except the last",
        options={
            "width": Option(
                32,
                "number of channels of the first convolution; the next layers have 2, 4 and 8 times as many channels",
                least=1,
            ),
            "num_blocks": Option(
                3,
                "number of layers between the first convolution and the head: conv 64, conv 128, Linear 256; 0 is the "
                "shallow control",
                choices=(0, 1, 2, 3),
            ),
        },
        source="arXiv 2606.21126, CNN setting; the positions of the two pools are unpublished; this package puts them "
        "after the first two layers",
    )

    def check(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...]) -> list[Problem]:
        """Return a problem if images (C, H, W) are too small for two poolings."""
        _, height, image_width = image_shape
        if min(height, image_width) >= SHRUNK:
            return []
        needed = f"expected images of at least {SHRUNK}×{SHRUNK} pixels, because the network has two 2×2 pools"
        return [Problem((), f"{needed}; found {height}×{image_width}")]

    def parameters(self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int) -> int:
        channels, height, image_width = image_shape
        count, width = int(options["num_blocks"]), int(options["width"])
        area = (height // SHRUNK) * (image_width // SHRUNK)
        blocks = ((9 * width + 1) * 2 * width, (18 * width + 1) * 4 * width, (4 * width * area + 1) * 8 * width)
        return (9 * channels + 1) * width + sum(blocks[:count]) + (2**count * width + 1) * classes

    def build(
        self, options: Mapping[str, Scalar], image_shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Network:
        """Return a network without skips: maps at sites 0 to 2, and features (N, 8·width) at site 3.

        The maps have half the size of the images at site 0, and a quarter at sites 1 and 2. If num_blocks is smaller than 3, the
        last layers are absent and the input of the head is the mean of the maps over positions.
        """
        channels, height, image_width = image_shape
        count, width = int(options["num_blocks"]), int(options["width"])
        low, middle, high, features = widths = [width, 2 * width, 4 * width, 8 * width]
        flat = high * (height // SHRUNK) * (image_width // SHRUNK)
        embed = nn.Sequential(conv(channels, low, generator), nn.ReLU(), nn.MaxPool2d(2))
        blocks = [
            nn.Sequential(conv(low, middle, generator), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Sequential(conv(middle, high, generator), nn.ReLU()),
            nn.Sequential(linear(flat, features, generator, flatten=True), nn.ReLU()),
        ]
        return Network(
            embed=embed,
            blocks=blocks[:count],
            out_ln=None,
            out_head=linear(widths[count], classes, generator),
            residual=False,
            pool=mean_over_positions,  # does not change features; with fewer than 3 blocks, the head reads maps
        )


PLUGIN = SmallCNN()
