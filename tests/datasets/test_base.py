"""tensors_digest sees type, shape, order and every bit."""

from __future__ import annotations

import torch

from fa_registry.datasets.base import tensors_digest


def test_digest_sees_every_difference():
    one = torch.arange(6, dtype=torch.float32)
    variants = [(one,), (one.double(),), (one.reshape(2, 3),), (one, one), (one + 1e-6,), (one.flip(0),)]
    assert len({tensors_digest(*tensors) for tensors in variants}) == len(variants)


def test_digest_does_not_depend_on_memory_layout():
    matrix = torch.arange(6.0).reshape(2, 3)
    assert tensors_digest(matrix.T) == tensors_digest(matrix.T.contiguous())
