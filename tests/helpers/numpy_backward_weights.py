"""Weight feedback once more, in NumPy from its equations: resmlp whose errors go back through B instead of W. No torch in here."""

from __future__ import annotations

import numpy as np

from tests.helpers.numpy_resmlp import (
    Arrays,
    forward,
    gelu,
    gelu_slope,
    head_back,
    layer_norm,
    layer_norm_back,
    linear,
    linear_back,
    norm,
)

HEAD = "out_head"


def layers(w: Arrays) -> list[str]:
    """The layers that have a B, in the network's order (of up to ten blocks): two a block, then the head."""
    ends = (".w1.weight", ".w2.weight", f"{HEAD}.weight")
    return sorted(name.removesuffix(".weight") for name in w if name.endswith(ends))


def stored(w: Arrays, feedback: Arrays) -> Arrays:
    """Layer → its matrix in the feedback state, whose names have no dots."""
    return {name: feedback["B_" + name.replace(".", "_")] for name in layers(w)}


def branch_back(w: Arrays, back: Arrays, grads: Arrays, block: int, h: np.ndarray, df: np.ndarray) -> np.ndarray:
    """Parameter gradients of block 1..L from df = ∂J/∂f; returns what arrives at h through w2's and w1's B."""
    name = f"blocks.{block - 1}"
    n = layer_norm(w, f"{name}.ln", h)
    u = linear(w, f"{name}.w1", n)
    linear_back(w, grads, f"{name}.w2", gelu(u), df)
    du = df @ back[f"{name}.w2"] * gelu_slope(u)
    linear_back(w, grads, f"{name}.w1", n, du)
    return layer_norm_back(w, grads, f"{name}.ln", h, du @ back[f"{name}.w1"])


def replaced_credits(w: Arrays, back: Arrays, states: list[np.ndarray], error: np.ndarray) -> list[np.ndarray]:
    """c_L = LN-backward of e B_head; c_{l-1} = c_l + what c_l leaves at h_{l-1} through block l. No norm, no penalty."""
    credits = [layer_norm_back(w, {}, "out_ln", states[-1], error @ back[HEAD])]
    for block in range(len(states) - 1, 0, -1):
        credits.insert(0, credits[0] + branch_back(w, back, {}, block, states[block - 1], credits[0]))
    return credits


def replaced_gradients(w: Arrays, back: Arrays, x: np.ndarray, y: np.ndarray, penalty: float, kind: str) -> Arrays:
    """All parameter gradients of one step. back: layer → B (out, in)."""
    states, branches, error = forward(w, x, y)
    credits = replaced_credits(w, back, states, error)
    grads: Arrays = {}
    head_back(w, grads, states[-1], error / len(x))  # the head itself learns from the exact loss
    for block, f in enumerate(branches, start=1):
        df = (norm(credits[block], kind) + 2 * penalty * f) / len(x)
        branch_back(w, back, grads, block, states[block - 1], df)
    linear_back(w, grads, "embed", x.reshape(len(x), -1), norm(credits[0], kind) / len(x))
    return grads
