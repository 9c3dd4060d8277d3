"""The range to which the last operations of a model limit its outputs.

A softmax, a sigmoid or a clamp at the end of a model limits its outputs to [0, 1]. Outputs of a linear layer have no limit, even if
their values are small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

Interval = tuple[float, float]
UNLIMITED: Interval = (-math.inf, math.inf)
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "convolution", "linear", "matmul", "einsum")
LIMITED: Mapping[str, Interval] = {
    **dict.fromkeys(("sigmoid", "hardsigmoid", "_softmax", "softmax", "_safe_softmax"), (0.0, 1.0)),
    **dict.fromkeys(("tanh", "erf", "sin", "cos", "sign"), (-1.0, 1.0)),
    **dict.fromkeys(("_log_softmax", "log_softmax"), (-math.inf, 0.0)),
    **dict.fromkeys(("relu", "abs"), (0.0, math.inf)),
}
# operations that select, move or average entries
SAME_RANGE = (
    *("view", "_unsafe_view", "reshape", "expand", "squeeze", "unsqueeze", "permute", "transpose", "t", "slice"),
    *("select", "index", "alias", "detach", "clone", "_to_copy", "contiguous", "flatten", "mean", "amax", "narrow"),
)


class OutputRange(TorchDispatchMode):
    """Context manager that follows the range of every tensor in a forward pass by interval arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self._ranges, self._operations = WeakTensorKeyDictionary(), WeakTensorKeyDictionary()
        self._magnitudes = WeakTensorKeyDictionary()  # |x|, or |x| + 1 → x

    def of(self, tensor: Tensor) -> Interval:
        """Return the range of a tensor, or an infinite range if it is unknown."""
        return self._ranges.get(tensor, UNLIMITED)

    def is_product(self, tensor: Tensor) -> bool:
        """Return whether a matrix product or a convolution computed the tensor."""
        return self._operations.get(tensor) in PRODUCTS

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run the operation, and record the range of its result."""
        name, options = function.overloadpacket.__name__.rstrip("_"), kwargs or {}
        interval = self._interval(name, args, options)  # first, because the operation may replace its argument
        source = args[0] if args and isinstance(args[0], Tensor) else None
        operation = self._operations.get(source, name) if name in SAME_RANGE and source is not None else name
        out = function(*args, **options)
        if isinstance(out, Tensor):
            self._ranges[out], self._operations[out] = interval, operation
            if name == "abs":
                self._magnitudes[out] = source
            elif name == "add" and source in self._magnitudes and options.get("alpha", 1) == 1:
                self._magnitudes[out] = self._magnitudes[source] if _number(args[1]) == 1 else None
        return out

    def _interval(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Interval:
        if name in LIMITED:
            return LIMITED[name]
        if name in SAME_RANGE:
            return self._of_operand(args[0])
        if name == "exp":
            return tuple(
                math.exp(min(limit, 700.0)) if limit < math.inf else math.inf for limit in self._of_operand(args[0])
            )
        if name in ("clamp", "clip", "hardtanh"):
            return self._clamped(name, args, options)
        if name in ("cat", "stack"):
            parts = [self._of_operand(part) for part in args[0]]
            return min(low for low, _ in parts), max(high for _, high in parts)
        if name == "div" and isinstance(args[0], Tensor) and self._is_softsign(*args[:2]):
            return -1.0, 1.0
        if name in ARITHMETIC and not set(options) - {"alpha"} and options.get("alpha", 1) == 1:
            return ARITHMETIC[name](*map(self._of_operand, args[:2]))
        return UNLIMITED

    def _is_softsign(self, numerator: Tensor, denominator: Any) -> bool:
        return isinstance(denominator, Tensor) and self._magnitudes.get(denominator) is numerator

    def _clamped(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Interval:
        defaults = (-1.0, 1.0) if name == "hardtanh" else (None, None)
        limits = [*args[1:3], *defaults[len(args[1:3]) :]]
        for index, key in enumerate(("min_val", "max_val") if name == "hardtanh" else ("min", "max")):
            limits[index] = options.get(key, limits[index])
        low, high = self._of_operand(args[0])
        lower, upper = (_number(limit) if limit is not None else None for limit in limits)
        low, high = (low if lower is None else max(low, lower)), (high if upper is None else min(high, upper))
        return min(low, high), max(low, high)

    def _of_operand(self, operand: Any) -> Interval:
        number = _number(operand)
        if isinstance(operand, Tensor):
            return self._ranges.get(operand, UNLIMITED if number is None else (number, number))
        return UNLIMITED if number is None else (number, number)


def _number(value: Any) -> float | None:
    """Return a number or the entry of a tensor with one entry, such as a temperature; otherwise None."""
    if isinstance(value, Tensor):
        with torch.utils._python_dispatch._disable_current_modes():
            return float(value.detach()) if value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None


def _sum(left: Interval, right: Interval) -> Interval:
    return left[0] + right[0], left[1] + right[1]


def _negated(operand: Interval) -> Interval:
    return -operand[1], -operand[0]


def _product(left: Interval, right: Interval) -> Interval:
    corners = [0.0 if 0 in (one, other) else one * other for one in left for other in right]
    return min(corners), max(corners)


def _reciprocal(operand: Interval) -> Interval:
    low, high = operand
    return (1 / high, 1 / low) if low > 0 or high < 0 else UNLIMITED


ARITHMETIC: Mapping[str, Callable[..., Interval]] = {
    "add": _sum,
    "sub": lambda left, right: _sum(left, _negated(right)),
    "rsub": lambda left, right: _sum(right, _negated(left)),
    "mul": _product,
    "div": lambda left, right: _product(left, _reciprocal(right)),
    "neg": _negated,
    "reciprocal": _reciprocal,
}
