"""Low-rank feedback: the option `rank` of dfa and weight_fa.

A matrix B of rank r is a product U V of two random matrices, scaled so that its entries have the variance of a full matrix B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fa_registry.errors import UsageError
from fa_registry.records import Option, Scalar

RANK = Option(
    0,
    "r, the rank of every feedback matrix; 0 means full rank",
    "chosen here; the source has full rank",
    least=0,
    omit_default=True,
)


def normal(size: Sequence[int], generator: torch.Generator, rank: int = 0) -> Tensor:
    """Draw a tensor of a given size whose entries have mean 0 and variance 1.

    Args:
        size: (out, in) or, for a kernel, (out, in, height, width).
        generator: the source of the random numbers.
        rank: rank r of the tensor as a matrix with `out` rows. It is U V/√r, where U (out, r) and V (r, …) have entries N(0, 1).
            For rank 0, all entries are independent.
    """
    if not rank:
        return torch.randn(size, generator=generator)
    left = torch.randn(size[0], rank, generator=generator)
    right = torch.randn(rank, math.prod(size[1:]), generator=generator)
    return (left @ right / rank**0.5).reshape(size)


def checked_rank(method: str, options: Mapping[str, Scalar], sizes: Mapping[str, Sequence[int]]) -> int:
    """Return the option `rank`, which is 0 if it is missing.

    Args:
        method: name of the method, for the error message.
        options: the options of the method.
        sizes: mapping from the name of each feedback matrix to its size.

    Raises:
        UsageError: the rank is above the number of rows or columns of a matrix.
    """
    rank = int(options.get("rank", 0))
    for name, size in sizes.items():
        rows, columns = size[0], math.prod(size[1:])
        if rank > min(rows, columns):
            raise UsageError(
                f"method {method!r}, option rank: expected at most {min(rows, columns)}, because {name} has the size "
                f"{rows} × {columns}, found {rank}; use a smaller rank, or 0 for full rank"
            )
    return rank
