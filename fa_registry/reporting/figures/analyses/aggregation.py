"""The eight aggregates of every method on one line, and beside it the Γ of every site they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from fa_registry.analyses.aggregation import NAMES
from fa_registry.analyses.base import Analysis
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.analyses import _canvas
from fa_registry.reporting.figures.style import INK, PALETTE, TICK
from fa_registry.reporting.text.filters import MINUS

MARKERS = {"mean_mean": "o", "mean_median": "s", "median_mean": "^", "median_median": "D"}
FILLED, HOLLOW = "filled: sites 1..L", "hollow: with site 0"
LEGEND = [*("{} over sites of the {} over samples".format(*name.split("_")) for name in MARKERS), FILLED, HOLLOW]
EXACT, MOST_WORDS = "exact by construction", 7  # sites beyond which their numbers no longer fit
ROW, BOTTOM, LEAST = 0.3, 0.45, 1.0  # inches


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """panel `aggregates`: name is the aggregate; panel `sites`: name is the site, counts whether it enters them."""
    rows = [
        ("aggregates", row["method"].text, row["setting"].text, name, "", row[name])
        for row in analysis.rows
        for name in NAMES
    ]
    rows += [
        (
            "sites",
            row["method"].text,
            row["setting"].text,
            f"{row['site'].reading.value:.0f}",
            row["counts"].text,
            row["gamma"],
        )
        for row in analysis.table("sites").rows
    ]
    columns = ["panel", "method", "setting", "name", "counts", "value", "low", "high", "reason"]
    return pd.DataFrame(
        [(*row[:5], row[5].reading.value, *(row[5].interval or (None, None)), row[5].reading.reason) for row in rows],
        columns=columns,
    ).astype({"value": float, "low": float, "high": float})


def height(frame: pd.DataFrame) -> float:
    rows = len(_canvas.rows_of(_canvas.named(frame)))
    return BOTTOM + max(LEAST, ROW * rows) + _canvas.legend_height(LEGEND) + 0.1


def draw(figure: Figure, frame: pd.DataFrame) -> None:
    """frame: a row a method and aggregate (left panel), and a row a method and site (right panel), each a cosine."""
    frame = _canvas.named(frame)
    rows = _canvas.rows_of(frame)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [3, 2]})
    _aggregates(left, frame[frame["panel"] == "aggregates"], rows)
    _sites(right, frame[(frame["panel"] == "sites") & frame["row"].isin(rows)], rows)
    _canvas.row_axis(left, rows, frame["row"].nunique() - len(rows))
    _canvas.row_axis(right, rows)
    right.set_yticks([])
    handles = [_canvas.dot(words, INK, marker) for words, marker in zip(LEGEND, MARKERS.values(), strict=False)]
    handles += [_canvas.dot(FILLED, INK), _canvas.dot(HOLLOW, INK, fill="white")]
    _canvas.legend(figure, handles)
    _canvas.place(figure, _canvas.row_width(rows), 0.15, BOTTOM, _canvas.legend_height(LEGEND) + 0.1, wspace=0.06)


def _aggregates(axes: Axes, frame: pd.DataFrame, rows: Sequence[str]) -> None:
    known = frame[frame["row"].isin(rows)].dropna(subset="value")
    _canvas.value_axis(axes, [*known["value"], 0.0])
    axes.axvline(0, color=TICK, linewidth=0.8)
    for row, name, value in zip(known["row"], known["name"], known["value"], strict=True):
        scope, rest = name.split("_", 1)
        shift = 0.18 if scope == "all" else -0.18
        look = {"color": INK, "markerfacecolor": INK if scope == "deep" else "white"}
        axes.plot(value, rows.index(row) + shift, MARKERS[rest], markersize=5, **look)
    look = {"ha": "center", "va": "center", "color": TICK, "fontsize": 8}
    for row in [row for row in rows if row not in set(known["row"])]:
        axes.text(0.5, rows.index(row), "N/A", transform=axes.get_yaxis_transform(), **look)
    axes.set_xlabel("Γ, mean over seeds")


def _sites(axes: Axes, frame: pd.DataFrame, rows: Sequence[str]) -> None:
    """A field a site, blue where Γ is positive and orange where it is negative; white where it does not count."""
    counted = frame[frame["counts"] != EXACT].dropna(subset="value")
    largest = counted["value"].abs().max() if len(counted) else 0.0
    count = frame["name"].astype(int).max() + 1 if len(frame) else 1
    for row, name, value in zip(counted["row"], counted["name"], counted["value"], strict=True):
        corner = (int(name) - 0.47, rows.index(row) - 0.42)
        colour, strength = PALETTE[0] if value > 0 else PALETTE[1], abs(value) / largest if largest else 0.0
        axes.add_patch(Rectangle(corner, 0.94, 0.84, color=colour, alpha=0.8 * strength, linewidth=0))
    for row, name, counts, value in zip(frame["row"], frame["name"], frame["counts"], frame["value"], strict=True):
        if count <= MOST_WORDS:
            plain = counts != EXACT and value == value
            words = f"{value:.2f}".replace("-", MINUS) if plain else "exact" if counts == EXACT else "N/A"
            ink = "white" if plain and abs(value) > 0.65 * largest else INK if plain else TICK
            axes.text(int(name), rows.index(row), words, ha="center", va="center", fontsize=6.5, color=ink)
    axes.set_xlim(-0.5, count - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.grid(visible=False)
    axes.set_xlabel("Γ at site l")


DRAWING = _canvas.Drawing(numbers, height, draw)
