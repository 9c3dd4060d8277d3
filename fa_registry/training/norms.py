"""norm(c) of credit.md §2: the paper's recipe divides a credit by the rms over its features, sample by sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor

NORM_EPS = 1e-6  # the paper's recipe: c / (rms over features + 1e-6)


def scales(credit: Tensor, kind: str) -> Tensor | float:
    """What norm(c) divides by, (N, 1, …): rms over features + 1e-6 for "rms", 1 for "none"."""
    if kind == "none":
        return 1.0
    rows = credit.flatten(1)
    scale = torch.linalg.vector_norm(rows, dim=1) / math.sqrt(rows.shape[1]) + NORM_EPS  # one pass, no square kept
    return scale.reshape(-1, *[1] * (credit.dim() - 1))
