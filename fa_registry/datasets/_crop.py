"""Batched random crops: one gather for the whole batch, on whatever device it lives."""

from __future__ import annotations

import torch
from torch import Tensor


def random_crop(images: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """A random size × size window of every image, each offset equally likely.

    images: (batch, channels, height, width), already padded. Returns (batch, channels, size, size).
    """
    batch, _, height, width = images.shape
    device = images.device
    top = torch.randint(height - size + 1, (batch,), generator=generator, device=device)
    left = torch.randint(width - size + 1, (batch,), generator=generator, device=device)
    windows = images.unfold(2, size, 1).unfold(3, size, 1)  # (batch, channels, tops, lefts, size, size), a view
    return windows[torch.arange(batch, device=device), :, top, left]  # (batch, channels, size, size)
