"""Weight feedback: a matrix B replaces the weight of a layer in the backward pass.

The layer computes dx = dy B instead of dx = dy W. Skips, norms and activations propagate the credit as in backpropagation. The
methods that use this module differ only in B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fa_registry.methods._low_rank import normal
from fa_registry.methods.base import CreditInputs, NetworkShape, NetworkView

SUPPORTED = ("resmlp", "mlp", "student_net", "vit_mini", "small_cnn", "small_resnet", "causal_transformer")
UNSUPPORTED = (
    "a matrix B replaces the weight W of each layer in the backward pass, and only the Linear and Conv layers of fa_registry "
    "support such a replacement"
)


@contextmanager
def backward_through(network: NetworkView, matrices: Mapping[str, Tensor]) -> Iterator[None]:
    """Context manager: replace weights by `matrices` in the backward pass.

    The forward pass and the formula of the weights' gradients stay the same.

    Args:
        matrices: layer name → matrix that replaces the weight of this layer in the backward pass.
    """
    layers = {name: network.get_submodule(name) for name in matrices}
    for name, layer in layers.items():
        layer.backward_weight = matrices[name]
    try:
        yield
    finally:
        for layer in layers.values():
            layer.backward_weight = None


def replaced_credits(inputs: CreditInputs, matrices: Mapping[str, Tensor]) -> list[Tensor]:
    """Compute the credits at sites 0..L with `matrices` in the backward pass.

    The credits refer to the summed loss Σ_i ℓ_i and have the shapes of the states. The weight of the head is replaced too, so c_L
    is not exact either. A training step computes the same credits in its backward pass (tests/methods/test_weight_fa.py).
    """
    network = inputs.network
    with torch.enable_grad(), backward_through(network, matrices):
        states = [inputs.hidden[0].detach().requires_grad_()]
        for block in network.blocks:
            states.append(network.step(states[-1], block(states[-1])))
        loss = inputs.losses_of(network.readout(states[-1])).sum()
        return list(torch.autograd.grad(loss, states))


class LayerMatrices(nn.Module):
    """Module with one matrix per layer, in the shape of the layer's weight.

    The shape is (out, in) or (out, in, 3, 3).

    Args:
        matrices: layer name → matrix.
        learn: whether the matrices are parameters, which learn, or buffers.
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
        """Return a mapping from layer name to matrix."""
        return {name: getattr(self, key(name)) for name in self.layers}


def key(layer: str) -> str:
    """Return the name of the matrix B of a layer, such as B_blocks_0_w1 for `blocks.0.w1`."""
    return "B_" + layer.replace(".", "_")


def gaussian(shape: NetworkShape, generator: torch.Generator, rank: int = 0) -> dict[str, Tensor]:
    """Draw one matrix per layer with entries N(0, 1/out), and return layer name → matrix.

    The variance is 1/(9·out) for a 3×3 kernel. With this variance, the backward pass preserves the expected norm of an error.
    `rank` is the rank of every matrix, or 0 for independent entries.
    """
    return {name: normal(size, generator, rank) * backward_std(size) for name, size in shape.weights.items()}


def backward_std(size: Sequence[int]) -> float:
    """Return the standard deviation 1/√n of a matrix B.

    n is the number of outputs that depend on one input. `size` is the shape of the weight, (out, in) or (out, in, height, width).
    """
    return (size[0] * math.prod(size[2:])) ** -0.5


def layer_weights(network: NetworkView, names: tuple[str, ...]) -> dict[str, Tensor]:
    """Return a mapping from layer name to the detached weight W."""
    return {name: network.get_submodule(name).weight.detach() for name in names}


def sign_concordant(network: NetworkView, magnitudes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return |M| ⊙ sign(W) for every layer, where `magnitudes` contains M.

    The result is 0 where W is 0. The mapping has the layer names of `magnitudes`.
    """
    signs = torch._foreach_sign(list(layer_weights(network, tuple(magnitudes)).values()))  # one launch for all layers
    return dict(zip(magnitudes, torch._foreach_mul(torch._foreach_abs(list(magnitudes.values())), signs), strict=True))
