"""How every figure looks, and the canvas it is drawn on: small PNG, the same bytes whatever the user's settings are.

Matplotlib's object interface only: pyplot keeps global state, and a library must not change its user's rcParams.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from fa_registry.protocol.grouping import Group
from fa_registry.reporting.labels import group_label

SHADES = 3  # of a colour between itself and white: what smooth edges need
LARGEST = 256  # colours of a palette
# Formats for paper → what matplotlib would write into them of its own, taken out.
VECTORS: Mapping[str, Mapping[str, None]] = MappingProxyType(
    {
        "svg": MappingProxyType({"Date": None, "Creator": None}),
        "pdf": MappingProxyType({"CreationDate": None, "Creator": None, "Producer": None}),
    }
)
LEVEL = 8  # of zlib: 9 takes more than twice as long for 2 % fewer bytes


class RenderedFigure(bytes):
    """A figure as PNG, which can be written for paper too: the same bytes again, since no date and no random id is in them.

    The figure itself is private: templates that a user brings see this object, and must not have what writes files.
    """

    def __new__(cls, png: bytes, figure: Figure) -> RenderedFigure:
        made = super().__new__(cls, png)
        made._figure = figure
        return made

    def vector(self, kind: str) -> bytes:
        """kind: one of VECTORS."""
        stream = io.BytesIO()
        with styled():
            self._figure.savefig(stream, format=kind, metadata=VECTORS[kind])
        return stream.getvalue()


class Canvas:
    """A figure of so many inches, and its pixels. To be made and drawn inside of `styled`."""

    def __init__(self, width: float, height: float, dpi: int):
        self.figure = Figure(figsize=(width, height), dpi=dpi)
        self._pixels = FigureCanvasAgg(self.figure)

    def png(self, flat: Iterable[str], used: Iterable[str]) -> RenderedFigure:
        """The figure as it is now, by the colours that were drawn with; see `compressed`."""
        self._pixels.draw()
        return RenderedFigure(compressed(np.asarray(self._pixels.buffer_rgba()), flat, used), self.figure)


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches from the upper left corner, so that one panel more does not move the others."""
    wide, high = figure.get_size_inches()
    return figure.add_axes((left / wide, (high - top - height) / high, width / wide, height / high))


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high, about `most` steps of them at most."""
    places = MaxNLocator(nbins=most, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [place for place in places if low <= place <= high]


def whole_ticks(last: int, most: int = 4) -> list[int]:
    """Whole numbers of 0..last in equal steps, `most` of these at most."""
    places = MaxNLocator(nbins=most, integer=True, min_n_ticks=1).tick_values(0, last)
    return [round(place) for place in places if 0 <= place <= last]


def compressed(pixels: np.ndarray, flat: Iterable[str], used: Iterable[str]) -> bytes:
    """PNG without metadata, a quarter of its size in true colour. pixels: (height, width, 4), drawn on white.

    used: the colours drawn with, of which lines and letters have soft edges. flat: those without any.
    """
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for shade in shades(flat, used) for part in shade])
    picture = Image.fromarray(pixels).convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=LEVEL)
    return buffer.getvalue()


def shades(flat: Iterable[str], used: Iterable[str]) -> list[tuple[int, ...]]:
    """White, the flat colours, and each of the used ones with its way to white."""
    ways = [
        tuple(round(255 * (1 - (1 - part) * step / SHADES)) for part in to_rgb(colour))
        for colour in dict.fromkeys(used)
        for step in range(1, SHADES + 1)
    ]
    plain = [tuple(round(255 * part) for part in to_rgb(colour)) for colour in flat]
    return list(dict.fromkeys([(255, 255, 255), *plain, *ways]))[:LARGEST]


# Okabe and Ito's palette without its yellow, which vanishes on white: told apart under every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (4, 1, 1, 1)),
)  # after the palette's end the next dash pattern tells methods apart
CONTROL, FRAME, TICK = "#767676", "#8b949e", "#57606a"
INK, GRID, LIMIT = "#1f2328", "#e3e6ea", "#a40e26"
STYLE: Mapping[str, object] = MappingProxyType(
    {
        "font.family": "DejaVu Sans",  # ships with matplotlib, so that every machine draws the same pixels
        "font.size": 9.0,
        "mathtext.fontset": "dejavusans",
        "axes.edgecolor": FRAME,
        "axes.linewidth": 0.7,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titley": 1.0,  # said, it need not be found out by measuring all tick labels
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
        "text.parse_math": False,  # names are foreign text; a `$` in one is no formula
    }
)
DPI, DPI_OF_MANY = 140, 116  # of one figure, and of those of a page that holds many
LIMIT_DASH = (0, (4, 2))
CHANCE_LOOK = MappingProxyType({"color": TICK, "linewidth": 1.0, "linestyle": (0, (1, 2))})


def colours(groups: Sequence[Group]) -> dict[str, tuple[str, object]]:
    """method label → (colour, dash), by the order in which methods first appear; controls are grey."""
    trained = in_order(group_label(group) for group in groups if not group.control)
    return trained | {group_label(group): (CONTROL, "--") for group in groups if group.control}


def in_order(labels: Iterable[str]) -> dict[str, tuple[str, object]]:
    """label → (colour, dash), by first appearance."""
    return {
        label: (PALETTE[index % len(PALETTE)], DASHES[index // len(PALETTE) % len(DASHES)])
        for index, label in enumerate(dict.fromkeys(labels))
    }


@contextmanager
def styled() -> Iterator[None]:
    """Inside, matplotlib has our settings; the user's come back at the end."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's own settings would change the bytes
        matplotlib.rcParams.update(STYLE)
        yield
