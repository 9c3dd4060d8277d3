"""Our Linear is drawn from the distribution of PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from fa_registry.architectures._layers import linear


def test_weights_and_biases_are_uniform_within_one_over_root_of_the_inputs():
    layer = linear(100, 400, torch.Generator().manual_seed(0))
    for values in (layer.weight, layer.bias):
        assert stats.kstest(values.detach().flatten().numpy(), stats.uniform(-0.1, 0.2).cdf).pvalue > 0.001
        assert values.abs().max().item() == pytest.approx(0.1, rel=0.02)


def test_the_generator_alone_decides():
    first, second = (linear(5, 3, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.bias, second.bias)
