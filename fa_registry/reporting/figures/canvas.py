"""The canvas of all figures: axes, ticks, legends, and reproducible SVG, PDF and PNG files.

This module uses only the object interface of matplotlib. pyplot has global state, and a library must not change the user's
rcParams. All sizes and positions are in inches from the top left corner. Fixed positions are faster than a layout engine of
matplotlib, and the axes do not move when a label changes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from urllib.parse import quote

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from fa_registry.reporting.figures.style import CHANCE_LOOK, DPI, FRAME, INK, LIMIT_LOOK, TICK, styled
from fa_registry.reporting.labels import short_names
from fa_registry.reporting.text.filters import compact
from fa_registry.text_safety import escape_control

# inches: the figure of a setting, with letters that are readable on phones, and the figure of an analysis
WIDTH, WIDE = 5.0, 7.2
NARROW = 3.3  # one of three figures in a row of a form
SMALL, LABEL = 7.0, 8.0  # points
IN_URI = " !$()*+,-./:;=?@[]^_{|}~"  # characters that a data URI may contain in the attribute of a page
# Formats for papers → the metadata that matplotlib would add; removed, so that the bytes are reproducible.
VECTORS: Mapping[str, Mapping[str, None]] = MappingProxyType(
    {
        "svg": MappingProxyType({"Date": None, "Creator": None}),
        "pdf": MappingProxyType({"CreationDate": None, "Creator": None, "Producer": None}),
    }
)


class RenderedFigure(bytes):
    """A figure as the bytes of an SVG, which can also be saved in other formats.

    No format contains a date or a random id, so the bytes are reproducible. The matplotlib figure is a private attribute, because
    user templates receive this object and must not be able to write files.
    """

    def __new__(cls, svg: bytes, figure: Figure) -> RenderedFigure:
        instance = super().__new__(cls, svg)
        instance._figure = figure
        return instance

    @property
    def uri(self) -> str:
        """The SVG as a data URI, which is shorter than its base64 form."""
        return f"data:image/svg+xml,{quote(self, safe=IN_URI)}"

    def saved(self, kind: str) -> bytes:
        """Return the figure as a file in a format of VECTORS, or as `png`."""
        if kind == "svg":
            return bytes(self)
        stream = io.BytesIO()
        with styled():
            self._figure.savefig(stream, format=kind, metadata=VECTORS.get(kind, {"Software": None}))
        return stream.getvalue()


class Canvas:
    """A figure of a given size. Create and draw it inside the context `styled`."""

    def __init__(self, width: float, height: float):
        self.figure = Figure(figsize=(width, height), dpi=DPI)

    @property
    def width(self) -> float:
        return self.figure.get_size_inches()[0]

    @property
    def height(self) -> float:
        return self.figure.get_size_inches()[1]

    def resize(self, height: float) -> None:
        self.figure.set_size_inches(self.width, height)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes at a fixed position."""
        wide, high = self.figure.get_size_inches()
        return self.figure.add_axes((left / wide, (high - top - height) / high, width / wide, height / high))

    @cached_property
    def sheet(self) -> Axes:
        """Invisible axes that cover the whole canvas. Their coordinates are inches from the top left corner.

        Many small panels on one sheet are drawn faster than one Axes per panel.
        """
        axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.set_axis_off()
        return axes

    def text(self, x: float, y: float, description: str, **look: object) -> None:
        """Write text on the sheet; control characters of untrusted text are escaped."""
        defaults = {"fontsize": SMALL, "color": INK, "va": "center", "parse_math": False}
        self.sheet.text(x, y, escape_control(description), **(defaults | look))

    def lines(self, pieces: Iterable[Sequence[tuple[float, float]]], colour: str, **look: object) -> None:
        """Draw lines on the sheet."""
        self.sheet.add_collection(LineCollection([*pieces], colors=colour, **look), autolim=False)

    def dots(self, points: Iterable[tuple[float, float]], colour: str, **look: object) -> None:
        """Draw round dots on the sheet as one path, because circles would make the file five times as long."""
        ends = [(x + shift, y) for x, y in points for shift in (0, 1e-4)]
        path = Path(ends, [Path.MOVETO, Path.LINETO] * (len(ends) // 2)) if ends else Path(np.empty((0, 2)))
        self.sheet.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=3.6, capstyle="round", **look))

    def place(self, left: float, right: float, bottom: float, top: float, **options: float) -> None:
        """Set the margins around all axes; all margins are in inches."""
        wide, high = self.figure.get_size_inches()
        self.figure.subplots_adjust(
            left=left / wide, right=1 - right / wide, bottom=bottom / high, top=1 - top / high, **options
        )

    def legend(self, handles: Sequence[Artist], corner: str = "upper left") -> float:
        """Draw the legend at the upper or lower edge of the figure, and return its height."""
        widest = 0.55 + 0.07 * max(len(handle.get_label()) for handle in handles)
        columns = max(1, min(4, int(self.width / widest)))
        self.figure.legend(handles=handles, loc=corner, ncols=columns)
        return 0.12 + 0.19 * math.ceil(len(handles) / columns)

    def rendered(self) -> RenderedFigure:
        """Return the finished figure as SVG."""
        stream = io.StringIO()
        self.figure.savefig(stream, format="svg", metadata=VECTORS["svg"])
        return RenderedFigure(compact_svg(stream.getvalue()).encode(), self.figure)


# Parts of matplotlib's SVG without an effect: the header, metadata, names of groups, rotations by 0 degrees, the font's name.
FONT = "font-family: 'DejaVu Sans'"
UNSEEN = re.compile(
    rf"^.*?(?=<svg)|<metadata>.*?</metadata>|(?<=<g) id=\"[^\"]*\"| transform=\"rotate\(-0 [^\"]*\"|{FONT};? ?",
    re.DOTALL,
)
LINE = re.compile(r'(?<= d=")M ([^"A-KM-Za-z]*)(?=")')
ATTRIBUTE = re.compile(r'(?<= )(?:x|y|d|transform|style)="[^"]*"')
# In an attribute: digits after the second, zeros before the point, and spaces that separate nothing.
SHORTER = ((r"(\.\d\d)\d+", r"\1"), (r"(?<!\d)0(?=\.\d)", ""), (r"\s*([MLCQz:;])\s*|\s+(?=-)", r"\1"), (r"\s+", " "))
DETAIL = 60_000  # bytes of an SVG for which a line may deviate by another 0.1 pt
GROUP, EMPTY = re.compile(r"</?g\b[^>]*>"), re.compile(r"<g/>|(?<=>)\s+(?=<)")


def compact_svg(svg: str) -> str:
    """Return an SVG of matplotlib with a third of its size.

    Lines are rounded to 0.1 pt, other positions to 0.01 pt. The more a figure contains, the fewer points has a line.
    """
    steps = partial(_steps, tolerance=2 + len(svg) // DETAIL)
    svg = ATTRIBUTE.sub(_shorter, LINE.sub(steps, UNSEEN.sub("", svg)))
    closing: list[str] = []

    def needed(found: re.Match[str]) -> str:
        """Return the tag of a group, or "" if the group has no attribute."""
        if found.group() == "</g>":
            return closing.pop()
        closing.append("" if found.group() == "<g>" else "</g>")
        return found.group() if closing[-1] else ""

    svg = GROUP.sub(needed, EMPTY.sub("", svg))
    # Verdana has almost the same widths as DejaVu Sans
    return svg.replace("<svg ", f'<svg style="{FONT},Verdana,sans-serif" ', 1)


def _steps(line: re.Match[str], tolerance: int) -> str:
    """Return the points of a line as steps of 0.1 pt."""
    rounded = [tuple(round(10 * float(part)) for part in point.split()) for point in line[1].split("L")]
    points = thinned(rounded, tolerance)
    steps = [(x - before[0], y - before[1]) for before, (x, y) in zip(points, points[1:], strict=False)]
    return "m" + " ".join(f"{x / 10:g} {y / 10:g}" for x, y in [*points[:1], *steps])


def thinned(points: Sequence[tuple[int, int]], tolerance: int) -> list[tuple[int, int]]:
    """Return the points of a line without those that are at most `tolerance` from the simpler line."""
    kept, low, high = [points[0]], -math.inf, math.inf
    for before, point in zip(points, points[1:], strict=False):
        x, y = kept[-1]
        fits = point[0] > x and low <= (point[1] - y) / (point[0] - x) <= high
        if not fits and before != kept[-1]:
            kept.append(before)
            (x, y), low, high = before, -math.inf, math.inf
        if point[0] > x:
            low = max(low, (point[1] - tolerance - y) / (point[0] - x))
            high = min(high, (point[1] + tolerance - y) / (point[0] - x))
        else:
            low, high = math.inf, -math.inf
    return [*kept, points[-1]]


def _shorter(attribute: re.Match[str]) -> str:
    text = attribute.group()
    for pattern, replacement in SHORTER:
        text = re.sub(pattern, replacement, text)
    return text


DECADES = 1.5  # values that range over more decades are drawn on a logarithmic axis
MOST_LETTERS = 44  # maximum length of the label of a legend entry or a row


def shortened(text: str, max_length: int = MOST_LETTERS) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def key(label: str, **look: object) -> Line2D:
    """Return a legend entry; control characters of untrusted text are escaped."""
    return Line2D([], [], label=shortened(escape_control(label)), **look)


def dot(label: str, colour: object, marker: str = "o", fill: object = None) -> Line2D:
    """Return a legend entry for a marker without a line."""
    return key(label, linestyle="", color=colour, marker=marker, markersize=4.5, markerfacecolor=fill or colour)


def dotted_lines(styles: Mapping[str, tuple[str, object]]) -> list[Line2D]:
    """Return legend entries for lines with dots; the styles are label → (colour, dash pattern)."""
    return [
        key(label, color=colour, linestyle=dash, marker="o", markersize=4) for label, (colour, dash) in styles.items()
    ]


def limit_key(label: str) -> Line2D:
    """Return the legend entry of a threshold."""
    return key(label, **{**LIMIT_LOOK, "linewidth": 1.2})


def chance_line(axes: Axes, chance: float) -> None:
    """Draw a line at the accuracy of guessing, if this accuracy is not NaN."""
    if not math.isnan(chance):
        axes.axhline(chance, **CHANCE_LOOK)


def chance_keys(chance: float) -> list[Line2D]:
    """Return the legend entry of the line that `chance_line` draws, or an empty list if there is no line."""
    return [] if math.isnan(chance) else [key("chance", **CHANCE_LOOK)]


def ticks(low: float, high: float, max_steps: int) -> list[float]:
    """Return round numbers between `low` and `high`, in at most about `max_steps` steps."""
    values = MaxNLocator(nbins=max_steps, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [value for value in values if low <= value <= high]


def whole_ticks(last: int, max_steps: int = 4) -> list[int]:
    """Return whole numbers from 0 to `last` in at most `max_steps` equal steps."""
    values = MaxNLocator(nbins=max_steps, integer=True, min_n_ticks=1).tick_values(0, last)
    return [round(value) for value in values if 0 <= value <= last]


def tick_text(value: float, percent: bool) -> str:
    return f"{100 * value:.4g}%" if percent else f"{value:.4g}"


def padded(values: Iterable[float], min_width: float, share: float = 0.06) -> tuple[float, float]:
    """Return the range of the finite values with a margin on both sides, at least `min_width` wide.

    Each margin is `share` of the range. If no value is finite, the range is centred at 0.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    margin = max(share * (high - low), (min_width - (high - low)) / 2)
    return low - margin, high + margin


def whole_axis(axes: Axes, label: str, max_steps: int = 8) -> None:
    """Set the label of the x axis, and set its ticks to whole numbers."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=max_steps, integer=True))
    axes.set_xlabel(label)


def value_axis(axes: Axes, values: Iterable[float], axis: str = "x", linear: bool = False) -> None:
    """Set limits, scale and ticks of an axis for the given values.

    The scale is logarithmic if all values are positive and their range exceeds DECADES decades, unless `linear` is true.
    """
    finite = np.array([value for value in values if math.isfinite(value)])
    if not linear and finite.size and finite.min() > 0 and np.ptp(np.log10(finite)) > DECADES:
        _decades(axes, axis, np.log10(finite))
        return
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 0.1
    # enough digits to distinguish the ticks
    digits = max(4, math.ceil(math.log10(max(abs(low), abs(high)) / margin or 1)) + 2)
    ruler = axes.xaxis if axis == "x" else axes.yaxis
    ruler.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ruler.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:.{digits}g}" if digits > 6 else compact(float(f"{value:.{digits}g}")))
    )
    axes.set(**{f"{axis}lim": (low - margin, high + margin)})


def _decades(axes: Axes, axis: str, powers: np.ndarray) -> None:
    """Set limits and ticks of a logarithmic axis; matplotlib's margins overflow for hundreds of decades."""
    margin = 0.05 * (powers.max() - powers.min())
    low, high = np.clip([powers.min() - margin, powers.max() + margin], -300, 300)
    axes.set(**{f"{axis}lim": (10.0**low, 10.0**high), f"{axis}scale": "log"})
    step = max(1, math.ceil((high - low) / 7))
    ruler = axes.xaxis if axis == "x" else axes.yaxis
    ruler.set_ticks([10.0**power for power in range(math.ceil(low), math.floor(high) + 1) if power % step == 0])
    ruler.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    ruler.set_minor_locator(NullLocator())


def row_width(rows: Sequence[str]) -> float:
    """Return the width in inches of the row labels on the left side of the axes."""
    return 0.25 + 0.07 * max(map(len, rows), default=0)


def row_axis(axes: Axes, rows: Sequence[str], left_out: int = 0) -> None:
    """Label the rows on the y axis, first row at the top, and write on the x axis how many are left out."""
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelsize=8)
    if left_out:
        axes.set_xlabel(f"{axes.get_xlabel()}   ({left_out} more rows in the table)".strip())


def intervals(
    axes: Axes, positions: Sequence[float], low: Sequence[float], high: Sequence[float], **style: object
) -> None:
    """Draw a vertical line from `low` to `high` at each x position; NaN is left out."""
    axes.plot(np.array([positions, positions]), np.array([low, high]), **style)


def remark(axes: Axes, x: float, y: float, text: str, ha: str = "center", **text_options: object) -> None:
    """Write a grey text at the position of a missing number."""
    axes.text(x, y, text, ha=ha, va="center", color=TICK, fontsize=8, **text_options)


Edges = tuple[float, float, float, float]  # the values at the left, right, lower and upper edge of a panel
ACROSS, MOST, LETTERS = 3, 24, 21  # panels per row and per figure; characters of a name
LEFT, GAP, BOTTOM = 0.42, 0.42, 0.36  # inches around panels


@dataclass(frozen=True)
class PanelFrame:
    """Position and size of a panel in inches, and the values at its left, right, lower and upper edge."""

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
    canvas: Canvas, methods: Mapping[str, Edges], head: float, high: float, names: tuple[str, str], across: int = ACROSS
) -> Iterator[tuple[str, PanelFrame, bool]]:
    """Draw one empty panel per method with its name and axes, `across` panels per row.

    Args:
        canvas: The canvas, with the height that `height_of` returns.
        methods: Method → values at the left, right, lower and upper edge of its panel.
        head: Space above the first row, in inches.
        high: Height of a panel, in inches.
        names: Labels of the x axis and the y axis.

    Yields:
        (method, its panel, whether the panel is the first of its row).
    """
    wide = (canvas.width - LEFT - 0.12) / across
    displayed_names = short_names(list(methods), LETTERS)
    for index, ((method, edges), name) in enumerate(zip(methods.items(), displayed_names, strict=True)):
        row, column = divmod(index, across)
        box = PanelFrame(LEFT + column * wide, head + row * (high + GAP), wide - 0.14, high, *edges)
        canvas.text(box.left, box.top - 0.1, name, fontsize=LABEL)
        canvas.lines([[(box.left, box.top), (box.left, box.bottom), (box.right, box.bottom)]], FRAME, linewidths=0.7)
        if column == 0:
            canvas.text(0.02, box.top - 0.1, names[1])
        if index + across >= len(methods):
            canvas.text(box.left + box.width / 2, box.bottom + 0.24, names[0], ha="center")
        yield method, box, column == 0


def height_of(count: int, head: float, high: float, across: int = ACROSS) -> float:
    """Return the height in inches of a figure with `count` small panels."""
    return head + math.ceil(count / across) * (high + GAP) - GAP + BOTTOM
