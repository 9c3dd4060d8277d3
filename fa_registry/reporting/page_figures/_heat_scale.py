"""Colours of heat maps, in steps: told apart by lightness alone, so in print and under every colour blindness."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle

from fa_registry.reporting.figures import FRAME, LIMIT, TICK
from fa_registry.reporting.filters import compact
from fa_registry.reporting.page_figures._inches import SMALL, Inches

WHITE, BLUE, DARK_BLUE = "#f4f8fb", "#4a97cc", "#00395c"
ORANGE, DARK_ORANGE, HATCH = "#ee9350", "#571c00", "#a9afb6"
STEPS, STEPS_BELOW = 6, 10  # of a ramp; of the one below a limit, where most fields lie
SIDES = ((ORANGE, DARK_ORANGE), (BLUE, DARK_BLUE))
LENGTH, THICK = 2.9, 0.11  # inches, of the bar


@dataclass(frozen=True)
class Scale:
    """Fields of colour between edges. ticks: (edge, words) on the bar; logarithmic: edges are decimal logarithms.

    limit: the edge at which a rule starts to fire.
    """

    edges: tuple[float, ...]
    colours: tuple[str, ...]
    ticks: tuple[tuple[float, str], ...]
    logarithmic: bool
    limit: float | None = None

    def colour(self, value: float) -> str:
        """Of a finite value; what is beyond the ends has the ends' colour."""
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.edges[0]
        inner = self.edges[1:-1]
        return self.colours[sum(value > edge for edge in inner)]


def growth(values: Iterable[float], threshold: float | None) -> Scale:
    """From 1 in blue up to the threshold, in orange beyond it: the colour says whether the rule fires."""
    known = [math.log10(value) for value in values if value > 0] or [0.0]
    low = min(0.0, math.floor(10 * min(known)) / 10)
    if threshold is None or threshold <= 0:
        high = max(*known, low + 0.3)
        edges = _even(low, high, 2 * STEPS)
        ticks = ((low, compact_power(low)), (high, compact_power(high)))
        return Scale(edges, ramp(WHITE, DARK_BLUE, 2 * STEPS), ticks, logarithmic=True)
    at = math.log10(threshold)
    low = min(low, at - 0.3)
    below = (
        _even(low, at, STEPS_BELOW),
        ramp(WHITE, BLUE, STEPS_BELOW),
        (low, compact_power(low)),
        (at, compact(threshold)),
    )
    if max(known) <= at:
        return Scale(below[0], below[1], below[2:], logarithmic=True, limit=at)
    high = max(*known, at + 0.3)
    edges = (*below[0], *_even(at, high, STEPS)[1:])
    colours = (*below[1], *ramp(ORANGE, DARK_ORANGE, STEPS))
    return Scale(edges, colours, (*below[2:], (high, compact_power(high))), logarithmic=True, limit=at)


def signed(values: Iterable[float]) -> Scale:
    """Around 0: blue above, orange below, white in the middle."""
    reach = max((abs(value) for value in values), default=0.0)
    reach = max(0.1, math.ceil(10 * reach) / 10)
    count = 2 * STEPS + 1  # the middle field lies around 0
    below, above = ((*ramp(WHITE, middle, 4)[1:], *ramp(middle, end, 4)[1:]) for middle, end in SIDES)
    colours = (*below[::-1], WHITE, *above)
    ticks = tuple((value, compact(value)) for value in (-reach, 0.0, reach))
    return Scale(_even(-reach, reach, count), colours, ticks, logarithmic=False)


def ramp(start: str, end: str, count: int) -> tuple[str, ...]:
    """Colours from one to the other, both included."""
    ends = to_rgb(start), to_rgb(end)
    return tuple(
        to_hex([one + (other - one) * place / (count - 1) for one, other in zip(*ends, strict=True)])
        for place in range(count)
    )


def compact_power(power: float) -> str:
    return compact(float(f"{10.0 ** min(power, 308):.2g}"))


def bar(sheet: Inches, scale: Scale, words: str, left: float, top: float) -> None:
    """The colours side by side with the numbers at their ends; the rule's limit as a line across."""
    first, last = scale.edges[0], scale.edges[-1]

    def at(edge: float) -> float:
        return left + LENGTH * (edge - first) / (last - first)

    for start, end, colour in zip(scale.edges, scale.edges[1:], scale.colours, strict=False):
        width = at(end) - at(start)
        sheet.axes.add_patch(Rectangle((at(start), top), width, THICK, color=colour, linewidth=0, antialiased=False))
    outline = Rectangle((left, top), LENGTH, THICK, fill=False, edgecolor=FRAME, linewidth=0.6)
    sheet.axes.add_patch(outline)
    for edge, label in scale.ticks:
        own = edge == scale.limit
        label = f"limit {label}" if own else label
        sheet.text(at(edge), top + THICK + 0.1, label, ha="center", color=LIMIT if own else TICK, fontsize=SMALL)
    if scale.limit is not None:
        sheet.lines([[(at(scale.limit), top - 0.03), (at(scale.limit), top + THICK + 0.03)]], LIMIT, linewidths=1.3)
    sheet.text(left + LENGTH + 0.12, top + THICK / 2, words, fontsize=SMALL)


def _even(low: float, high: float, count: int) -> tuple[float, ...]:
    return tuple(low + (high - low) * place / count for place in range(count + 1))
