"""Errors that a model's own backward code raises, such as a hook or a custom autograd Function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch
from torch import nn
from torch.utils.hooks import BackwardHook

from fa_registry.architectures import AdaptedNetwork

TORCH = Path(torch.__file__).parent


def backward_place(network: nn.Module, error: Exception) -> str:
    """Return which code of the model raised an error in the backward pass.

    Returns:
        The name of the module and of the function, or an empty string if torch or other code raised the error.
    """
    frames = list(_backward_frames(error))
    own_frames = [frame for frame in frames if TORCH not in Path(frame.f_code.co_filename).parents]
    if not own_frames:
        return ""
    model = network.model if isinstance(network, AdaptedNetwork) else network
    names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
    values = (value for frame in reversed(frames) for value in frame.f_locals.values())
    used = (value.module if isinstance(value, BackwardHook) else value for value in values)
    module = next((names[id(value)] for value in used if id(value) in names), "")
    function = own_frames[0].f_code.co_qualname
    return f"{function} of module {module}" if module else f"{function}, a hook or backward function of the model,"


def _backward_frames(error: Exception) -> Iterator[FrameType]:
    """Yield the frames of an error that are inside torch's backward pass, the outermost first."""
    trace, is_inside = error.__traceback__, False
    while trace:
        if is_inside:
            yield trace.tb_frame
        is_inside = is_inside or trace.tb_frame.f_code is torch.autograd.grad.__code__
        trace = trace.tb_next
