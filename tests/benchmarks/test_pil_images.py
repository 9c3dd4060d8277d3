"""The published data path hands out photographs as CIFAR-10's transform makes them, one by one."""

from __future__ import annotations

import torch

from benchmarks.pil_images import PilImages
from fa_registry.datasets import cifar10

COUNT = 8
TRANSFORM = cifar10.PLUGIN.transform
MEAN, STD = (torch.tensor(values).view(-1, 1, 1) for values in (TRANSFORM.mean, TRANSFORM.std))


def pixels(image: torch.Tensor) -> torch.Tensor:
    """uint8 again, (channels, height, width)."""
    return ((image * STD + MEAN) * 255).round().to(torch.uint8)


def test_a_photograph_is_cropped_mirrored_and_normalised_one_by_one():
    photographs = PilImages(COUNT)
    torch.manual_seed(0)
    seen = [photographs[5] for _ in range(40)]
    assert {label for _, label in seen} == {int(photographs.labels[5])}
    raw = torch.from_numpy(photographs.pixels[5]).permute(2, 0, 1).float()  # (channels, height, width)
    padded = torch.nn.functional.pad(raw, [4] * 4)
    windows = {bytes(view.to(torch.uint8).numpy().tobytes()) for view in _windows(padded)}
    for image, _ in seen:
        assert pixels(image).numpy().tobytes() in windows
    assert len({image.numpy().tobytes() for image, _ in seen}) > 20


def test_one_to_test_on_is_normalised_and_nothing_else():
    photographs = PilImages(COUNT, augmented=False)
    assert len(photographs) == COUNT
    for index in range(COUNT):
        raw = torch.from_numpy(photographs.pixels[index]).permute(2, 0, 1)
        assert torch.equal(pixels(photographs[index][0]), raw)


def _windows(padded: torch.Tensor):
    for top in range(9):
        for left in range(9):
            window = padded[:, top : top + 32, left : left + 32]
            yield from (window.contiguous(), window.flip(2).contiguous())
