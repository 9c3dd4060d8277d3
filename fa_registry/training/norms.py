"""norm(c) of credit.md §2: the paper's recipe divides a credit by the rms over its features, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

NORM_EPS = 1e-6  # the paper's recipe: c / (rms over features + 1e-6)


def normalised(credits: Sequence[Tensor], kind: str, count: int) -> Sequence[Tensor]:
    """norm(c_l)/count of every site's credit. Sites of one shape go through each operation together: a GPU waits for launches.

    Not where a sample's credit lies transposed in memory: joined to the others it would be summed in another order.
    """
    if len({credit.shape for credit in credits}) > 1 or not all(credit[0].is_contiguous() for credit in credits):
        return [credit / (scales(credit, kind) * count) for credit in credits]
    together = torch.cat(tuple(credits))  # (sites · batch, …)
    return (together / (scales(together, kind) * count)).chunk(len(credits))


def scales(credit: Tensor, kind: str) -> Tensor | float:
    """What norm(c) divides by, (N, 1, …): rms over features + 1e-6 for "rms", 1 for "none"."""
    if kind == "none":
        return 1.0
    rows = credit.flatten(1)
    scale = torch.linalg.vector_norm(rows, dim=1) / math.sqrt(rows.shape[1]) + NORM_EPS  # one pass, no square kept
    return scale.reshape(-1, *[1] * (credit.dim() - 1))
