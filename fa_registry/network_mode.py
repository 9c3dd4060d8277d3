"""Eval mode of a network during a measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """Switch the network to eval mode inside the context.

    In eval mode, BatchNorm and dropout do not depend on the batch. At the end of the context, each module's previous mode is
    restored.
    """
    training = [module for module in network.modules() if module.training]
    if training:  # contexts may be nested; an inner context changes nothing
        network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
