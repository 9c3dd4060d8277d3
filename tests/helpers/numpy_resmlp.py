"""resmlp once more, in NumPy from its equations: forward pass, the derivative of each part, one AdamW step. No torch in here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import erf

Arrays = dict[str, np.ndarray]
EPS = 1e-5  # LayerNorm's


def standardise(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    std = np.sqrt(h.var(axis=1, keepdims=True) + EPS)
    return (h - h.mean(axis=1, keepdims=True)) / std, std


def layer_norm(w: Arrays, name: str, h: np.ndarray) -> np.ndarray:
    return standardise(h)[0] * w[f"{name}.weight"] + w[f"{name}.bias"]


def layer_norm_back(w: Arrays, grads: Arrays, name: str, h: np.ndarray, dy: np.ndarray) -> np.ndarray:
    unit, std = standardise(h)
    grads[f"{name}.weight"], grads[f"{name}.bias"] = (dy * unit).sum(axis=0), dy.sum(axis=0)
    d = dy * w[f"{name}.weight"]
    return (d - d.mean(axis=1, keepdims=True) - unit * (d * unit).mean(axis=1, keepdims=True)) / std


def linear(w: Arrays, name: str, h: np.ndarray) -> np.ndarray:
    return h @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def linear_back(w: Arrays, grads: Arrays, name: str, h: np.ndarray, dy: np.ndarray) -> np.ndarray:
    grads[f"{name}.weight"], grads[f"{name}.bias"] = dy.T @ h, dy.sum(axis=0)
    return dy @ w[f"{name}.weight"]


def gelu(u: np.ndarray) -> np.ndarray:
    return u * (1 + erf(u / np.sqrt(2))) / 2


def gelu_slope(u: np.ndarray) -> np.ndarray:
    return (1 + erf(u / np.sqrt(2))) / 2 + u * np.exp(-u * u / 2) / np.sqrt(2 * np.pi)


def branch(w: Arrays, block: int, h: np.ndarray) -> np.ndarray:
    """f(h) = w2 GELU(w1 LN(h)) of block 1..L."""
    name = f"blocks.{block - 1}"
    return linear(w, f"{name}.w2", gelu(linear(w, f"{name}.w1", layer_norm(w, f"{name}.ln", h))))


def branch_back(w: Arrays, grads: Arrays, block: int, h: np.ndarray, df: np.ndarray) -> np.ndarray:
    """Parameter gradients of block 1..L from df = ∂J/∂f; returns ∂J/∂h through the branch (not the skip)."""
    name = f"blocks.{block - 1}"
    n = layer_norm(w, f"{name}.ln", h)
    u = linear(w, f"{name}.w1", n)
    du = linear_back(w, grads, f"{name}.w2", gelu(u), df) * gelu_slope(u)
    return layer_norm_back(w, grads, f"{name}.ln", h, linear_back(w, grads, f"{name}.w1", n, du))


def forward(w: Arrays, x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """States h_0..h_L, branches f_1..f_L, and the error e = softmax(z) − onehot(y)."""
    blocks = len({name.split(".")[1] for name in w if name.startswith("blocks.")})
    states, branches = [linear(w, "embed", x.reshape(len(x), -1))], []
    for block in range(1, blocks + 1):
        branches.append(branch(w, block, states[-1]))
        states.append(states[-1] + branches[-1])
    z = linear(w, "out_head", layer_norm(w, "out_ln", states[-1]))
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return states, branches, p / p.sum(axis=1, keepdims=True) - np.eye(z.shape[1])[y]


def head_back(w: Arrays, grads: Arrays, top: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Gradients of out_ln and head from ∂J/∂z = error; returns ∂J/∂h_L."""
    return layer_norm_back(
        w, grads, "out_ln", top, linear_back(w, grads, "out_head", layer_norm(w, "out_ln", top), error)
    )


def norm(c: np.ndarray, kind: str, held: int = 1) -> np.ndarray:
    """held: N where the source normalises c/N, the credit of the mean loss, and 1 where it normalises c."""
    if kind == "none":
        return c
    return c / held / (np.sqrt((c * c).mean(axis=1, keepdims=True)) / held + 1e-6)


CreditReference = Callable[
    [list[np.ndarray], np.ndarray, np.ndarray], list[np.ndarray]
]  # (states, error, g_L) -> c_0..c_L


def local_gradients(
    w: Arrays, x: np.ndarray, y: np.ndarray, credit: CreditReference, penalty: float, kind: str, held: int = 1
) -> Arrays:
    """∂(Σ_l J_l + mean CE of the head)/∂w of credit.md §2; held: see norm."""
    states, branches, error = forward(w, x, y)
    grads: Arrays = {}
    head_back(w, grads, states[-1], error / len(x))
    top_gradient = head_back(w, {}, states[-1], error)
    credits = [norm(c, kind, held) / len(x) for c in credit(states, error, top_gradient)]
    for block, f in enumerate(branches, start=1):
        branch_back(w, grads, block, states[block - 1], credits[block] + 2 * penalty * f / len(x))
    linear_back(w, grads, "embed", x.reshape(len(x), -1), credits[0])
    return grads


class AdamW:
    """Loshchilov & Hutter 2019 with PyTorch's defaults."""

    def __init__(self, rate: float, decay: float):
        self.rate, self.decay, self.time, self.m, self.v = rate, decay, 0, {}, {}

    def step(self, w: Arrays, grads: Arrays) -> Arrays:
        self.time += 1
        new = {}
        for name, g in grads.items():
            self.m[name] = 0.9 * self.m.get(name, 0.0) + 0.1 * g
            self.v[name] = 0.999 * self.v.get(name, 0.0) + 0.001 * g * g
            m, v = self.m[name] / (1 - 0.9**self.time), self.v[name] / (1 - 0.999**self.time)
            new[name] = w[name] * (1 - self.rate * self.decay) - self.rate * m / (np.sqrt(v) + 1e-8)
        return new
