"""Properties of a user-supplied forward pass: random numbers and written tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry.architectures import AdaptedNetwork
from fa_registry.diagnostics._forward_gradient import draws_numbers
from fa_registry.errors import join_names
from fa_registry.network_mode import equal_values, eval_mode
from fa_registry.seeding import generators_unchanged

RANDOM = (
    "model: two forward passes of one batch can differ in eval mode, because the pass draws random numbers or depends on "
    "earlier passes; two measurements can differ too"
)
WRITTEN = (
    "model: in eval mode the forward pass writes its own weights or buffers ({}); they are restored after a measurement"
)


@dataclass(frozen=True)
class ForwardTraits:
    """Properties of a forward pass in eval mode.

    Attributes:
        is_random: whether the pass draws from a random generator, or whether a second pass gives other outputs.
        written: names of the parameters and buffers that the pass changes.
    """

    is_random: bool = False
    written: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about the properties that change a measurement."""
        return (
            *([RANDOM] if self.is_random else []),
            *([WRITTEN.format(join_names(self.written))] if self.written else []),
        )


def remarks_on(network: nn.Module, traits: ForwardTraits) -> tuple[str, ...]:
    """Return the sentences about a forward pass and about unused arguments of `adapt`."""
    return (*traits.remarks, *getattr(network, "notes", ()))


@generators_unchanged()
def passes_with_traits(network: nn.Module, x: Tensor) -> tuple[Any, ForwardTraits]:
    """Run the network on one batch in eval mode, twice if the first pass draws no random numbers.

    Returns:
        The output of the first pass, and the properties of the pass.
    """
    results: list[tuple[Any, tuple[str, ...]]] = []
    draws_random = draws_numbers(lambda: results.append(eval_pass(network, x)))
    if not draws_random:
        results.append(eval_pass(network, x))
    (output, written), (repeated, _) = results[0], results[-1]
    return output, ForwardTraits(draws_random or not _agree(output, repeated), written)


def eval_pass(network: nn.Module, x: Tensor) -> tuple[Any, tuple[str, ...]]:
    """Run the network on one batch in eval mode with copies of its tensors.

    Returns:
        The output, and the names of the parameters and buffers that the pass changes.
    """
    tensors = dict((*network.named_parameters(), *network.named_buffers()))
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    with torch.no_grad(), eval_mode(network):
        output = torch.func.functional_call(
            network, copies, x.clone()
        )  # puts tensors that the pass replaced into copies
    names = (name for name, tensor in tensors.items() if not equal_values(copies[name], tensor))
    return output, tuple(name.removeprefix("model.") if isinstance(network, AdaptedNetwork) else name for name in names)


def _agree(first: Any, second: Any) -> bool:
    """Return whether two outputs are equal up to rounding; other values than tensors are not compared."""
    if not isinstance(first, Tensor) or not isinstance(second, Tensor) or not first.is_floating_point():
        return True
    tolerance = 100 * torch.finfo(first.dtype).eps
    return first.shape == second.shape and torch.allclose(first, second, tolerance, tolerance, equal_nan=True)
