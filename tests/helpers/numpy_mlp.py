"""A GELU perceptron conditioned on site and sample, in NumPy: its equations, its pull-back of a gradient, and the value net V."""

from __future__ import annotations

import numpy as np

from tests.helpers.numpy_resmlp import Arrays, gelu, gelu_slope, linear


def rows(h: np.ndarray, t: float, s: np.ndarray) -> np.ndarray:
    """(h, sin t, sin t/100, cos t, cos t/100, s): the input of a bridge's net."""
    time = [np.sin(t), np.sin(t / 100), np.cos(t), np.cos(t / 100)]
    return np.hstack([h, np.tile(time, (len(h), 1)), s])


def names(w: Arrays, prefix: str) -> list[str]:
    """The linear layers below `prefix`, first to last: Sequential counts the activations too."""
    found = {int(name.removeprefix(prefix).split(".")[1]) for name in w if name.startswith(f"{prefix}.")}
    return [f"{prefix}.{index}" for index in sorted(found)]


def value(w: Arrays, prefix: str, x: np.ndarray) -> np.ndarray:
    *hidden, last = names(w, prefix)
    for name in hidden:
        x = gelu(linear(w, name, x))
    return linear(w, last, x)


def pulled_back(w: Arrays, prefix: str, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """dy · ∂out/∂x, row by row."""
    *hidden, last = names(w, prefix)
    inner = []
    for name in hidden:
        inner.append(linear(w, name, x))
        x = gelu(inner[-1])
    dx = dy @ w[f"{last}.weight"]
    for name, u in zip(reversed(hidden), reversed(inner), strict=True):
        dx = (dx * gelu_slope(u)) @ w[f"{name}.weight"]
    return dx


def value_rows(f: Arrays, net: str, h: np.ndarray, site: int, conditioning: np.ndarray, weight: float) -> np.ndarray:
    """(h / scale of the site, embedding of t = site/L, weight · s)"""
    scales = f[f"{net}.scales"]
    return rows(h / scales[site], site / (len(scales) - 1), weight * conditioning)


def values(f: Arrays, net: str, h: np.ndarray, site: int, conditioning: np.ndarray, weight: float = 10) -> np.ndarray:
    return value(f, f"{net}.net.layers", value_rows(f, net, h, site, conditioning, weight))[:, 0]


def slope(f: Arrays, h: np.ndarray, site: int, conditioning: np.ndarray, weight: float = 10) -> np.ndarray:
    """∂V/∂h."""
    at = value_rows(f, "value", h, site, conditioning, weight)
    return pulled_back(f, "value.net.layers", at, np.ones((len(h), 1)))[:, : h.shape[1]] / f["value.scales"][site]
