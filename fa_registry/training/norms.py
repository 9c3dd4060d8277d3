"""norm(c) of credit.md §2: the paper's recipe divides a credit by the rms over its features, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

NORM_EPS = 1e-6  # the paper's recipe: c / (rms over features + 1e-6)


def norm_eps(credit_scale: str, count: int) -> float:
    """The recipe's ε in units of the summed loss, for a batch of `count` samples.

    credit_scale: MethodCard.credit_scale. A published rule that holds the credit of the mean loss divides c/N by rms(c/N) + ε,
    which is c divided by rms(c) + N·ε. With ε alone fa explodes five times further on digits (docs/differences.md).
    tests/methods/test_published_loops.py trains fa and dfa beside the published loop: equal as the cards have it, and not equal
    in the other's scale. A number of the host, fixed by the batch's size: a captured step holds it as it holds the size.
    """
    return NORM_EPS * count if credit_scale == "mean" else NORM_EPS


def normalised(credits: Sequence[Tensor], kind: str, count: int, eps: float = NORM_EPS) -> Sequence[Tensor]:
    """norm(c_l)/count of every site's credit. Sites of one shape go through each operation together: a GPU waits for launches.

    count: N, of the mean over samples in J_l, in whatever units ε acts (eps: see norm_eps).
    Not where a sample's credit lies transposed in memory: joined to the others it would be summed in another order.
    """
    if len({credit.shape for credit in credits}) > 1 or not all(credit[0].is_contiguous() for credit in credits):
        return [credit / (scales(credit, kind, eps) * count) for credit in credits]
    together = torch.cat(tuple(credits))  # (sites · batch, …)
    return (together / (scales(together, kind, eps) * count)).chunk(len(credits))


def scales(credit: Tensor, kind: str, eps: float = NORM_EPS) -> Tensor | float:
    """What norm(c) divides by, (N, 1, …): rms over features + eps for "rms", 1 for "none".

    Of each sample by itself, over all of its entries: a batch's rms would let one sample scale another
    (test_rms_norm_is_per_sample_and_over_features in tests/training/test_norms.py).
    """
    if kind == "none":
        return 1.0
    rows = credit.flatten(1)
    scale = torch.linalg.vector_norm(rows, dim=1) / math.sqrt(rows.shape[1]) + eps  # one pass, no square kept
    return scale.reshape(-1, *[1] * (credit.dim() - 1))
