"""Figures of the analyses as SVG, drawn from data frames.

Each module of this package has two functions. `numbers(analysis, runs)` returns the data frame, and `draw(canvas, frame)` draws it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType

import pandas as pd

from fa_registry.analyses.base import Analysis, AnalysisTable
from fa_registry.records import RunAudit
from fa_registry.reporting.figures.canvas import WIDE, Canvas, RenderedFigure
from fa_registry.reporting.figures.style import styled

Draw = Callable[[Canvas, pd.DataFrame], None]
# Analysis → the module that draws its figure: every other module of this package.
MODULES: Mapping[str, ModuleType] = MappingProxyType(
    {
        module.name.replace("_", "-"): importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    }
)
DRAWINGS: Mapping[str, Draw] = MappingProxyType({name: module.draw for name, module in MODULES.items()})


def figure_of(draw: Draw, numbers: pd.DataFrame) -> RenderedFigure:
    """Draw a data frame; the user's matplotlib settings have no effect."""
    with styled():
        canvas = Canvas(WIDE, 1.2)
        if len(numbers):
            draw(canvas, numbers)
        else:
            text = "no number to draw: see the remarks of the analysis"
            canvas.figure.text(0.5, 0.5, text, ha="center", va="center")
        return canvas.rendered()


def analysis_numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """Return all numbers of a built-in analysis's figure; figures by epoch read the runs' trajectories."""
    return MODULES[analysis.name].numbers(analysis, runs)


def analysis_figure(analysis: Analysis, runs: Sequence[RunAudit]) -> RenderedFigure | None:
    """Return the figure of an analysis, or None for a third-party analysis.

    The same numbers give the same bytes.
    """
    if analysis.name not in DRAWINGS:
        return None
    return figure_of(DRAWINGS[analysis.name], analysis_numbers(analysis, runs))


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
