"""adapt: look into a model that somebody else wrote, by forward hooks, without touching its forward pass.

Where the skip is must be declared, and the declaration is checked against what flowed: guessing is how the published code
came to measure ViT and ResNet gradients on a wrong network.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from fa_registry.errors import UsageError

SKIPS = ("outside", "inside")
TOLERANCE = 1e-4  # relative; the model's own addition may be fused with another operation


class Adapted(nn.Module):
    """Any model with a chain of blocks, observable at sites 0..L. Build it with `adapt`."""

    def __init__(self, model: nn.Module, sites: Sequence[str], skip: str):
        super().__init__()
        self.model = model
        self.sites = tuple(sites)
        self.skip = skip

    def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor], list[Tensor]]:
        """The model's own output; with return_hidden also the states h_0..h_L and the tensors to differentiate for them.

        A skip that is added outside a block leaves no tensor for h_L to hook. But h_l = h_{l-1} + f_l makes ∂ℓ/∂f_l equal
        ∂ℓ/∂h_l, so there the block's output stands in.
        """
        if not return_hidden:
            return self.model(x)
        flows: list[tuple[Tensor, Tensor]] = []
        with ExitStack() as hooks:
            for name in self.sites:
                module = self.model.get_submodule(name)
                handle = module.register_forward_hook(lambda _, inputs, output: flows.append((inputs[0], output)))
                hooks.callback(handle.remove)
            logits = self.model(x)
        if len(flows) != len(self.sites):
            raise UsageError(
                f"adapt: expected every site to run once in a forward pass, found {len(flows)} runs of {len(self.sites)} sites"
            )
        states = [flows[0][0]] + [into + out if self.skip == "outside" else out for into, out in flows]
        self._check(states, [into for into, _ in flows[1:]])
        return logits, states, [flows[0][0], *(out for _, out in flows)]

    def _check(self, states: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """What goes into block l+1 must be the declared h_l."""
        for block, (state, into) in enumerate(zip(states[1:-1], inputs, strict=True), start=1):
            same = state.shape == into.shape and torch.allclose(state, into, rtol=TOLERANCE, equal_nan=True)
            if not same:
                raise UsageError(
                    f"adapt: skip={self.skip!r} was declared, but what enters {self.sites[block]} is not h_{block} so computed; "
                    f"declare skip={SKIPS[1 - SKIPS.index(self.skip)]!r}, or choose sites that follow each other on one stream"
                )


def adapt(model: nn.Module, sites: Sequence[str] = (), skip: str = "outside") -> Adapted:
    """Make `model` observable at the blocks named by `sites` (module paths, in order of the stream; default: `.blocks`).

    skip: "outside" if a block returns its residual branch and the model adds the skip, "inside" if the block's output is the
    new state (skip included, or no skip at all). Raises UsageError for unknown sites; a wrong `skip` shows at the first pass.
    """
    if skip not in SKIPS:
        raise UsageError(f"adapt: skip: expected one of {', '.join(SKIPS)}, found {skip!r}")
    names = tuple(sites) or tuple(f"blocks.{index}" for index in range(len(getattr(model, "blocks", ()))))
    known = dict(model.named_modules())
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(
            f"adapt: expected names of the model's modules, found {', '.join(unknown) or 'none and no .blocks'}; "
            f"known: {', '.join(name for name in known if name)}"
        )
    return Adapted(model, names, skip)
