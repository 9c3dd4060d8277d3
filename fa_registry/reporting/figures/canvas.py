"""The canvas of all figures: axes, ticks, legends, colours, and reproducible PNG, SVG and PDF files.

This module uses only the object interface of matplotlib. pyplot has global state, and a library must not change the user's
rcParams. All sizes and positions are in inches from the top left corner. Fixed positions are faster than a layout engine of
matplotlib, and the axes do not move when a label changes.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from PIL import Image

from fa_registry.protocol.grouping import Group
from fa_registry.reporting.labels import group_label, short_names
from fa_registry.reporting.text.filters import compact
from fa_registry.text_safety import escape_control

# inches: the figure of a setting, with letters that are readable on phones, and the figure of an analysis
WIDTH, WIDE = 5.0, 7.2
NARROW = 3.3  # one of three figures in a row of a form
SMALL, LABEL = 7.0, 8.0  # points
PAGE_COLOURS = 64  # of a PNG on a page; a palette makes the file a quarter as large
# Formats for papers → the metadata that matplotlib would add; removed, so that the bytes are reproducible.
VECTORS: Mapping[str, Mapping[str, None]] = MappingProxyType(
    {
        "svg": MappingProxyType({"Date": None, "Creator": None}),
        "pdf": MappingProxyType({"CreationDate": None, "Creator": None, "Producer": None}),
    }
)


class RenderedFigure(bytes):
    """A figure as the bytes of a PNG, which can also be saved as a file for papers.

    No format contains a date or a random id, so the bytes are reproducible. The matplotlib figure is a private attribute, because
    user templates receive this object and must not be able to write files.
    """

    def __new__(cls, png: bytes, figure: Figure) -> RenderedFigure:
        instance = super().__new__(cls, png)
        instance._figure = figure
        return instance

    @property
    def uri(self) -> str:
        """The PNG as a data URI."""
        return f"data:image/png;base64,{base64.b64encode(self).decode()}"

    def saved(self, kind: str) -> bytes:
        """Return the figure as a file in a format of VECTORS."""
        stream = io.BytesIO()
        with styled():
            self._figure.savefig(stream, format=kind, metadata=VECTORS[kind])
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

    def text(self, x: float, y: float, description: str, **style: object) -> None:
        """Write text on the sheet; control characters of untrusted text are escaped."""
        defaults = {"fontsize": SMALL, "color": INK, "va": "center", "parse_math": False}
        self.sheet.text(x, y, escape_control(description), **(defaults | style))

    def lines(self, pieces: Iterable[Sequence[tuple[float, float]]], colour: str, **style: object) -> None:
        """Draw lines on the sheet."""
        self.sheet.add_collection(LineCollection([*pieces], colors=colour, **style), autolim=False)

    def dots(self, points: Sequence[tuple[float, float]], colour: str, **style: object) -> None:
        """Draw round dots on the sheet."""
        self.sheet.plot(*zip(*points, strict=True), "o", color=colour, markersize=3.6, markeredgewidth=0, **style)

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
        """Return the finished figure as PNG."""
        canvas, stream = FigureCanvasAgg(self.figure), io.BytesIO()
        canvas.draw()
        pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        pixels.quantize(PAGE_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(stream, "PNG")
        return RenderedFigure(stream.getvalue(), self.figure)


DECADES = 1.5  # values that range over more decades are drawn on a logarithmic axis
MOST_LETTERS = 44  # maximum length of the label of a legend entry or a row


def shortened(text: str, max_length: int = MOST_LETTERS) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def key(label: str, **style: object) -> Line2D:
    """Return a legend entry; control characters of untrusted text are escaped."""
    return Line2D([], [], label=shortened(escape_control(label)), **style)


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


def bigram_keys(entropy: float) -> list[Line2D]:
    """Return the legend entry of the bigram entropy, or an empty list if it is NaN."""
    return [] if math.isnan(entropy) else [key("bigram of the text", **BIGRAM_LOOK)]


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


# Okabe and Ito's palette without yellow (invisible on white): distinguishable with any common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# After the last colour, the colours are used again with the next dash pattern.
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
CONTROL, FRAME, TICK = "#767676", "#8b949e", "#57606a"
BAND, PANE = "#cfe6d8", "#f3f4f6"  # the range in which no verdict changes; the area of missing numbers
DECISIONS = ("#F3C98B", "#d0d4d9", "#CFE6F5")  # fills of decisions, in addition to the palette
GREY_BAND = "#d9dcdf"  # the range of the frozen controls, or of a null
INK, GRID, LIMIT = "#1f2328", "#e3e6ea", "#a40e26"
STYLE: Mapping[str, object] = MappingProxyType(
    {
        "font.family": "DejaVu Sans",  # matplotlib contains this font, so every machine draws the same pixels
        "font.size": 9.0,
        "mathtext.fontset": "dejavusans",
        "axes.edgecolor": FRAME,
        "axes.linewidth": 0.7,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titley": 1.0,  # a fixed value avoids measuring all tick labels
        "axes.titlelocation": "left",
        "axes.titlesize": 8.5,
        "axes.titlepad": 3,
        "legend.frameon": False,
        "legend.fontsize": 8.0,
        "legend.handlelength": 1.8,
        "legend.columnspacing": 1.2,
        "legend.borderaxespad": 0.2,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "xtick.color": TICK,
        "ytick.color": TICK,
        "text.color": INK,
        "svg.hashsalt": "fa_registry",
        "svg.fonttype": "none",  # letters, not their outlines
        "text.parse_math": False,  # names are untrusted text; a `$` in a name is no formula
    }
)
DPI = 140  # of PNG files
LIMIT_LOOK = MappingProxyType({"color": LIMIT, "linewidth": 1.1, "linestyle": (0, (4, 2))})
CHANCE_LOOK = MappingProxyType({"color": TICK, "linewidth": 1.0, "linestyle": (0, (1, 2))})
BIGRAM_LOOK = MappingProxyType({"color": TICK, "linewidth": 1.0, "linestyle": (0, (5, 2, 1, 2))})


def colours(groups: Sequence[Group]) -> dict[str, tuple[str, object]]:
    """Return a mapping (label of a method) → (colour, dash pattern); controls are grey."""
    trained = in_order(group_label(group) for group in groups if not group.control)
    return trained | {group_label(group): (CONTROL, "--") for group in groups if group.control}


def in_order(labels: Iterable[str]) -> dict[str, tuple[str, object]]:
    """Return a mapping label → (colour, dash pattern), in the order of first appearance."""
    return {
        label: (PALETTE[index % len(PALETTE)], DASHES[index // len(PALETTE) % len(DASHES)])
        for index, label in enumerate(dict.fromkeys(labels))
    }


@contextmanager
def styled() -> Iterator[None]:
    """Use the matplotlib settings of this package inside the context, and restore the user's settings."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's settings would change the bytes
        matplotlib.rcParams.update(STYLE)
        yield
