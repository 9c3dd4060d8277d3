"""The published data path that ours is timed against does the published work."""

from __future__ import annotations

import os

import torch

from benchmarks.data_path import JOBS, OURS, PUBLISHED, PilImages, Throughput, on_cores, throughput_lines
from benchmarks.timing import Spread
from fa_registry.datasets import cifar10


def test_a_photograph_is_cropped_mirrored_and_normalised_one_by_one():
    photographs = PilImages()
    transform = cifar10.PLUGIN.transform
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (transform.mean, transform.std))
    torch.manual_seed(0)
    seen = [photographs[5] for _ in range(40)]
    assert {label for _, label in seen} == {int(photographs.labels[5])}
    raw = torch.from_numpy(photographs.pixels[5]).permute(2, 0, 1).float()  # (channels, height, width)
    padded = torch.nn.functional.pad(raw, [4] * 4)
    windows = {bytes(view.to(torch.uint8).numpy().tobytes()) for view in _windows(padded)}
    for image, _ in seen:
        pixels = ((image * std + mean) * 255).round().to(torch.uint8)
        assert pixels.numpy().tobytes() in windows
    assert len({image.numpy().tobytes() for image, _ in seen}) > 20


def _windows(padded: torch.Tensor):
    for top in range(9):
        for left in range(9):
            window = padded[:, top : top + 32, left : left + 32]
            yield from (window.contiguous(), window.flip(2).contiguous())


def test_it_keeps_to_the_cores_it_is_given():
    before = os.sched_getaffinity(0)
    with on_cores(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def test_a_missed_target_is_said():
    times = {PUBLISHED: 50.0, OURS: 20.0, JOBS: 12.0}
    slow, fast = Spread(2.5, 2.0, 3.0), Spread(4.2, 4.0, 5.0)
    assert throughput_lines(Throughput(times, {OURS: slow, JOBS: slow}))[-1].endswith("MISSED")
    assert throughput_lines(Throughput(times, {OURS: slow, JOBS: fast}))[-1].endswith("met")
