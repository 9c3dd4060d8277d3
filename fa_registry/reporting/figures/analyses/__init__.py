"""Figures of the analyses, drawn from data frames.

An analysis names the module of its figure, which has two functions. `numbers(analysis, runs)` returns the data frame, and
`draw(canvas, frame)` draws it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

import pandas as pd

from fa_registry.analyses import CATALOG, Analysis, AnalysisTable
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import WIDE, Canvas, RenderedFigure, styled


def figure_of(draw: Callable[[Canvas, pd.DataFrame], None], numbers: pd.DataFrame) -> RenderedFigure:
    """Draw a data frame; the user's matplotlib settings have no effect."""
    with styled():
        canvas = Canvas(WIDE, 1.2)
        if len(numbers):
            draw(canvas, numbers)
        else:
            text = "no number to draw: see the remarks of the analysis"
            canvas.figure.text(0.5, 0.5, text, ha="center", va="center")
        return canvas.rendered()


def figure_module(name: str) -> ModuleType | None:
    """Return the module that draws the figure of an analysis, or None if the analysis has no figure."""
    module = CATALOG.get(name.replace("-", "_")).figure
    return importlib.import_module(module) if module else None


def analysis_numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return all numbers of an analysis's figure; figures by epoch read the runs' trajectories."""
    return figure_module(analysis.name).numbers(analysis, runs)


def analysis_figure(analysis: Analysis, runs: Sequence[RunAudit]) -> RenderedFigure | None:
    """Return the figure of an analysis, or None if the analysis has no figure.

    The same numbers give the same bytes.
    """
    module = figure_module(analysis.name)
    return figure_of(module.draw, analysis_numbers(analysis, runs)) if module else None


def table_numbers(table: AnalysisTable) -> pd.DataFrame:
    """Return an analysis table as a data frame without loss of information.

    The frame has further columns for intervals, n, reasons and run ids, if the numbers of the table have them.
    """
    columns: dict[str, list] = {}
    for column in table.columns:
        cells = [row[column.name] for row in table.rows]
        if column.kind == "text":
            columns[column.name] = [cell.text for cell in cells]
        else:
            columns[column.name] = [cell.reading.value for cell in cells]
            extras = {
                "words": [cell.text for cell in cells],
                "reason": [cell.reading.reason for cell in cells],
                "low": [cell.interval[0] if cell.interval else None for cell in cells],
                "high": [cell.interval[1] if cell.interval else None for cell in cells],
                "n": [cell.n or None for cell in cells],
            }
            columns |= {f"{column.name}_{name}": values for name, values in extras.items() if any(values)}
        runs = [" ".join(cell.run_ids) for cell in cells]
        if any(runs):
            columns[f"{column.name}_runs"] = runs
    return pd.DataFrame(columns)
