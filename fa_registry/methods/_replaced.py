"""Weight feedback: every layer's error goes back through a matrix B of its own instead of the weight W (dx = dy B, not dy W).

Skips, norms and activations stay exact. Methods of this family differ only in what B is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fa_registry.methods.base import CreditInputs, NetworkShape, NetworkView
from fa_registry.terminal_loss import sample_losses

SUPPORTED = ("resmlp", "mlp", "student_net", "vit_mini", "small_cnn", "small_resnet")
UNSUPPORTED = (
    "B stands in for W inside single layers, so the architecture must be built of the registry's own Linear and Conv, "
    "which can carry an error back through other weights"
)


@contextmanager
def backward_through(network: NetworkView, matrices: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, layers named in `matrices` carry errors back through them; forward values and weight gradients stay as they are."""
    layers = {name: network.get_submodule(name) for name in matrices}
    for name, layer in layers.items():
        layer.backward_weight = matrices[name]
    try:
        yield
    finally:
        for layer in layers.values():
            layer.backward_weight = None


def replaced_credits(inputs: CreditInputs, matrices: Mapping[str, Tensor]) -> list[Tensor]:
    """Gradients of Σ_i ℓ_i at every site 0..L, each of its state's shape, the error travelling through `matrices`.

    The head's matrix is among them, so that not even c_L is exact; norms, activations and skips are. The trained step makes the
    same credits in its one backward pass (tests/methods/test_weight_fa.py).
    """
    network = inputs.network
    with torch.enable_grad(), backward_through(network, matrices):
        states = [inputs.hidden[0].detach().requires_grad_()]
        for block in network.blocks:
            states.append(network.step(states[-1], block(states[-1])))
        loss = sample_losses(network.readout(states[-1]), inputs.labels).sum()
        return list(torch.autograd.grad(loss, states))


class LayerMatrices(nn.Module):
    """One matrix a layer, of its weight's shape (out, in) or (out, in, 3, 3): buffers, or parameters where they learn.

    Named after the layer.
    """

    def __init__(self, matrices: Mapping[str, Tensor], learn: bool = False):
        super().__init__()
        self.layers = tuple(matrices)
        for name, matrix in matrices.items():
            if learn:
                self.register_parameter(key(name), nn.Parameter(matrix))
            else:
                self.register_buffer(key(name), matrix)

    def matrices(self) -> dict[str, Tensor]:
        """Layer name → matrix."""
        return {name: getattr(self, key(name)) for name in self.layers}


def key(layer: str) -> str:
    """`blocks.0.w1` as the name of a tensor: B_blocks_0_w1."""
    return "B_" + layer.replace(".", "_")


def gaussian(shape: NetworkShape, generator: torch.Generator) -> dict[str, Tensor]:
    """N(0, 1/out) for every layer, 1/(9·out) of a 3×3 kernel: an error keeps its expected norm on the way back."""
    return {name: torch.randn(size, generator=generator) * backward_std(size) for name, size in shape.weights.items()}


def backward_std(size: Sequence[int]) -> float:
    """1/√(outputs that an input feeds), of a weight (out, in) or (out, in, height, width)."""
    return (size[0] * math.prod(size[2:])) ** -0.5


def layer_weights(network: NetworkView, names: tuple[str, ...]) -> dict[str, Tensor]:
    """The weights W of these layers, detached."""
    return {name: network.get_submodule(name).weight.detach() for name in names}


def sign_concordant(network: NetworkView, magnitudes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """|M| ⊙ sign(W) for every layer of `magnitudes`; an entry whose weight is exactly 0 carries nothing back."""
    signs = torch._foreach_sign(list(layer_weights(network, tuple(magnitudes)).values()))  # all layers in one launch
    return dict(zip(magnitudes, torch._foreach_mul(torch._foreach_abs(list(magnitudes.values())), signs), strict=True))
