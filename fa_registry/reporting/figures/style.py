"""Style and canvas of all figures: small PNG files, fixed matplotlib settings.

This module uses only the object interface of matplotlib. pyplot has global state, and a library must not change the user's
rcParams.
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

SHADES = 3  # of a colour between itself and white, for smooth edges
LARGEST = 256  # number of colours of a palette
# Formats for paper → the metadata that matplotlib would add, removed for reproducible bytes.
VECTORS: Mapping[str, Mapping[str, None]] = MappingProxyType(
    {
        "svg": MappingProxyType({"Date": None, "Creator": None}),
        "pdf": MappingProxyType({"CreationDate": None, "Creator": None, "Producer": None}),
    }
)
LEVEL = 8  # of zlib: 9 takes more than twice as long for 2 % fewer bytes


class RenderedFigure(bytes):
    """A figure as PNG bytes that can also be saved as a vector file.

    Neither the PNG nor the vector file contains a date or a random id, so the bytes are reproducible. The matplotlib figure is a
    private attribute, because user templates receive this object and must not be able to write files.
    """

    def __new__(cls, png: bytes, figure: Figure) -> RenderedFigure:
        instance = super().__new__(cls, png)
        instance._figure = figure
        return instance

    def vector(self, kind: str) -> bytes:
        """Return the figure as a vector file.

        Args:
            kind: A key of VECTORS: `svg` or `pdf`.
        """
        stream = io.BytesIO()
        with styled():
            self._figure.savefig(stream, format=kind, metadata=VECTORS[kind])
        return stream.getvalue()


class Canvas:
    """A matplotlib figure of a given size in inches, and its pixels.

    Create and draw the canvas inside the context `styled`.
    """

    def __init__(self, width: float, height: float, dpi: int):
        self.figure = Figure(figsize=(width, height), dpi=dpi)
        self._pixels = FigureCanvasAgg(self.figure)

    def png(self, flat: Iterable[str], used: Iterable[str]) -> RenderedFigure:
        """Return the figure as a PNG with a colour palette.

        Args:
            flat: Colours of areas.
            used: Colours of lines and letters.
        """
        self._pixels.draw()
        return RenderedFigure(compressed(np.asarray(self._pixels.buffer_rgba()), flat, used), self.figure)


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes at a fixed position to the figure.

    Args:
        figure: The figure.
        left: Distance from the left edge of the figure, in inches.
        top: Distance from the upper edge of the figure, in inches.
        width: Width in inches.
        height: Height in inches.
    """
    wide, high = figure.get_size_inches()
    return figure.add_axes((left / wide, (high - top - height) / high, width / wide, height / high))


def ticks(low: float, high: float, max_steps: int) -> list[float]:
    """Return round numbers between `low` and `high`, in about `max_steps` steps or fewer."""
    values = MaxNLocator(nbins=max_steps, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [value for value in values if low <= value <= high]


def whole_ticks(last: int, max_steps: int = 4) -> list[int]:
    """Return whole numbers from 0 to `last` in at most `max_steps` equal steps."""
    values = MaxNLocator(nbins=max_steps, integer=True, min_n_ticks=1).tick_values(0, last)
    return [round(value) for value in values if 0 <= value <= last]


def compressed(pixels: np.ndarray, flat: Iterable[str], line_colours: Iterable[str]) -> bytes:
    """Return a PNG with a colour palette and without metadata.

    The size of the file is about a quarter of the size of the same image in true colour.

    Args:
        pixels: Image of shape (height, width, 4) on a white background.
        flat: Colours of areas, which have no soft edges.
        line_colours: Colours of lines and letters, which have soft edges.
    """
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for shade in shades(flat, line_colours) for part in shade])
    picture = Image.fromarray(pixels).convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=LEVEL)
    return buffer.getvalue()


def shades(flat: Iterable[str], line_colours: Iterable[str]) -> list[tuple[int, ...]]:
    """Return the palette of an image as RGB values.

    The palette consists of white, the flat colours, and SHADES steps from white to each line colour.
    """
    blended_colours = [
        tuple(round(255 * (1 - (1 - part) * step / SHADES)) for part in to_rgb(colour))
        for colour in dict.fromkeys(line_colours)
        for step in range(1, SHADES + 1)
    ]
    flat_colours = [tuple(round(255 * part) for part in to_rgb(colour)) for colour in flat]
    return list(dict.fromkeys([(255, 255, 255), *flat_colours, *blended_colours]))[:LARGEST]


# Okabe and Ito's palette without yellow (invisible on white): distinguishable with any common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (4, 1, 1, 1)),
)  # after the last colour, the next dash pattern distinguishes methods
CONTROL, FRAME, TICK = "#767676", "#8b949e", "#57606a"
INK, GRID, LIMIT = "#1f2328", "#e3e6ea", "#a40e26"
STYLE: Mapping[str, object] = MappingProxyType(
    {
        "font.family": "DejaVu Sans",  # part of matplotlib, so that every machine draws the same pixels
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
        "text.parse_math": False,  # names are untrusted text; a `$` in a name is no formula
    }
)
DPI, DPI_OF_MANY = 140, 116  # of a figure; of a figure on a page with many
LIMIT_DASH = (0, (4, 2))
CHANCE_LOOK = MappingProxyType({"color": TICK, "linewidth": 1.0, "linestyle": (0, (1, 2))})


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
    """Use the matplotlib settings of this package inside the context.

    The user's settings are restored at the end.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's own settings would change the bytes
        matplotlib.rcParams.update(STYLE)
        yield
