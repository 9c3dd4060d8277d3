"""Colours and matplotlib settings of all figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import matplotlib

from fa_registry.protocol.grouping import Group
from fa_registry.reporting.labels import group_label

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
