"""Figures of small panels that are drawn on one Axes, with positions in inches."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.collections import LineCollection

from fa_registry.records import Reading
from fa_registry.reporting.figures.style import FRAME, GRID, INK, TICK, Canvas, RenderedFigure
from fa_registry.reporting.labels import short_names
from fa_registry.text_safety import escape_control

WIDTH = 5.0  # inches, as for trajectories, so that letters have one size on the page, on phones too
SMALL, LABEL = 7.0, 8.0  # points
Edges = tuple[float, float, float, float]  # values at a panel's left, right, lower and upper edge
ACROSS, MOST, LETTERS = 3, 24, 21  # small multiples per row and per figure; characters of a name
LEFT, GAP, BOTTOM = 0.42, 0.42, 0.36  # inches around small multiples


class DrawingSurface:
    """A drawing area of fixed width and given height.

    All positions are in inches from the top left corner.
    """

    def __init__(self, height: float, dpi: int):
        self._canvas = Canvas(WIDTH, height, dpi)
        self.axes = self._canvas.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.set_axis_off()

    def text(self, x: float, y: float, description: str, **look: object) -> None:
        """Write text at a position; control characters of untrusted text are escaped."""
        defaults = {"fontsize": SMALL, "color": INK, "va": "center", "parse_math": False}
        self.axes.text(x, y, escape_control(description), **(defaults | look))

    def lines(self, pieces: Iterable[Sequence[tuple[float, float]]], colour: str, **look: object) -> None:
        self.axes.add_collection(LineCollection([*pieces], colors=colour, **look), autolim=False)

    def png(self, flat: Iterable[str], used: Iterable[str]) -> RenderedFigure:
        return self._canvas.png([GRID, *flat], [INK, TICK, FRAME, *used])


@dataclass(frozen=True)
class PanelFrame:
    """Position and size of a panel in inches, and the ranges of its two axes.

    Args:
        first: Value of x at the left edge.
        last: Value of x at the right edge.
        low: Value of y at the lower edge.
        high: Value of y at the upper edge.
    """

    left: float
    top: float
    width: float
    height: float
    first: float
    last: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return self.left + self.width * (value - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        return self.top + self.height * (self.high - value) / (self.high - self.low)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width


def small_multiples(
    sheet: DrawingSurface, methods: Mapping[str, Edges], head: float, high: float, names: tuple[str, str]
) -> Iterator[tuple[str, PanelFrame, bool]]:
    """Draw one empty panel per method with its name and axes, ACROSS panels per row.

    Args:
        sheet: The drawing.
        methods: Method → values at the left, right, lower and upper edge of its panel.
        head: Space above the first row, in inches.
        high: Height of a panel, in inches.
        names: Labels of the x axis and the y axis.

    Yields:
        (method, its panel, whether the panel is the first of its row).
    """
    wide = (WIDTH - LEFT - 0.12) / ACROSS
    displayed_names = short_names(list(methods), LETTERS)
    for index, ((method, edges), name) in enumerate(zip(methods.items(), displayed_names, strict=True)):
        row, column = divmod(index, ACROSS)
        box = PanelFrame(LEFT + column * wide, head + row * (high + GAP), wide - 0.14, high, *edges)
        sheet.text(box.left, box.top - 0.1, name, fontsize=LABEL)
        sheet.lines([[(box.left, box.top), (box.left, box.bottom), (box.right, box.bottom)]], FRAME, linewidths=0.7)
        if column == 0:
            sheet.text(0.02, box.top - 0.1, names[1])
        if index + ACROSS >= len(methods):
            sheet.text(box.left + box.width / 2, box.bottom + 0.24, names[0], ha="center")
        yield method, box, column == 0


def height_of(count: int, head: float, high: float) -> float:
    """Return the height in inches of a figure with `count` small panels."""
    return head + math.ceil(count / ACROSS) * (high + GAP) - GAP + BOTTOM


def padded(values: Iterable[float], min_width: float) -> tuple[float, float]:
    """Return the range of the values with a margin, at least `min_width` wide.

    The range is centred at 0 if there is no finite value.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    margin = max(0.06 * (high - low), (min_width - (high - low)) / 2)
    return low - margin, high + margin


def data_uri(image: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def from_frame(value: float, reason: str) -> Reading:
    """Return the number as a Reading; if it is NaN, the Reading has the reason."""
    return Reading(float(value)) if value == value else Reading(None, reason)
