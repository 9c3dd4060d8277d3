"""Data frames from which figures are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pandas as pd

from fa_registry.analyses.base import AnalysisCell
from fa_registry.metrics import headlines_of
from fa_registry.protocol.paired_runs import common_chance
from fa_registry.records import Reading, RunAudit
from fa_registry.reporting.figures.canvas import MOST_LETTERS, shortened
from fa_registry.text_safety import escape_control

MOST_ROWS = 40  # methods in a figure; the table of the figure contains all methods
NUMERIC = (
    "value",
    "low",
    "high",
    "site",
    "epoch",
    "trained",
    "penalty",
    "seed",
    "blocks",
    "frozen",
    "epochs",
    "growth_init_max",
)


def from_frame(value: float, reason: str) -> Reading:
    """Return the number as a Reading. For NaN, the Reading contains only the reason."""
    return Reading(float(value)) if value == value else Reading(None, reason)


def variant(entries: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Return a data frame with one row per entry; NUMERIC columns are float, and a missing number is NaN."""
    frame = pd.DataFrame(list(entries))
    return frame.astype({name: float for name in NUMERIC if name in frame})


def with_chance(frame: pd.DataFrame, runs: Iterable[RunAudit]) -> pd.DataFrame:
    """Add the column `chance`, the accuracy of guessing.

    The column is NaN if this accuracy is unknown or differs between runs, for example if the runs predict tokens.
    """
    records = [run.record for run in runs]
    is_share = all(headline.is_share for headline in headlines_of(records))
    frame["chance"] = common_chance(records) if is_share else math.nan
    return frame


def entry(row: Mapping[str, AnalysisCell], name: str, *keys: str) -> dict[str, object]:
    """Return one cell of an analysis table, with the values of the columns `keys`, as a data frame's row."""
    cell = row[name]
    low, high = cell.interval or (None, None)
    values = {"words": cell.text, "value": cell.reading.value, "low": low, "high": high, "reason": cell.reading.reason}
    copied = {key: plain(row[key]) if key in row else None for key in ("method", "setting", *keys)}
    return {"panel": name, **copied, **values}


def plain(cell: AnalysisCell) -> str | float | None:
    """Return the number of a numeric cell (None if it is missing), or the text of a text cell."""
    return cell.reading.value if cell.reading else cell.text


def named(numbers: pd.DataFrame) -> pd.DataFrame:
    """Add a column `row` with the label of each method.

    If there are several settings, the label also contains the parts in which the settings differ.
    """
    settings = list(dict.fromkeys(numbers["setting"]))
    parts = [setting.split(" · ") for setting in settings]
    shared = set.intersection(*map(set, parts)) if parts else set()
    distinct_parts = {
        setting: " · ".join(part for part in several if part not in shared)
        for setting, several in zip(settings, parts, strict=True)
    }
    rows: dict[tuple[str, str], str] = {}
    for method, setting in dict.fromkeys(zip(numbers["method"], numbers["setting"], strict=True)):
        suffix = f" · {distinct_parts[setting]}" if len(settings) > 1 and distinct_parts[setting] else ""
        text = escape_control(f"{method}{suffix}")
        short_text = shortened(text)
        twice = short_text in rows.values()  # rows with the same shortened text would be drawn over each other
        rows[method, setting] = f"{shortened(text, MOST_LETTERS - 5)} #{len(rows) + 1}" if twice else short_text
    return numbers.assign(row=[rows[key] for key in zip(numbers["method"], numbers["setting"], strict=True)])


def in_rows(numbers: pd.DataFrame) -> tuple[pd.DataFrame, list[str], int]:
    """Return (data of the first MOST_ROWS figure rows, labels of these rows, number of rows left out)."""
    numbers = named(numbers)
    rows = list(dict.fromkeys(numbers["row"]))
    visible_rows = rows[:MOST_ROWS]
    return numbers[numbers["row"].isin(visible_rows)], visible_rows, len(rows) - len(visible_rows)
