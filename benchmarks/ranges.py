"""python -m benchmarks.ranges AUDIT_JSON [--figure PNG]: where healthy and failing runs of an audit lie, and what lies between.

A threshold is calibrated by such a table: the constants of edition 2026-11 were. Its figure has one panel a quantity: from
the smallest to the largest value of every method, by state, with the threshold drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from benchmarks.tables import line
from fa_registry import jsonio
from fa_registry.analyses._methods import METHOD, RUNS, SETTING, MethodRuns, trained
from fa_registry.analyses.base import Analyser, Analysis, AnalysisCell, AnalysisColumn, AnalysisResult, AnalysisTable
from fa_registry.protocol.operators import OPERATORS
from fa_registry.protocol.reductions import take
from fa_registry.protocol.rules import Condition, Edition, Rule, load_edition
from fa_registry.records import AuditReport, Reading, RunAudit
from fa_registry.reporting.figures.analyses import figure_of
from fa_registry.reporting.figures.canvas import Canvas, key, limit_key, row_axis, row_width, value_axis
from fa_registry.reporting.figures.frames import in_rows
from fa_registry.reporting.figures.style import LIMIT_LOOK, PALETTE, TICK
from fa_registry.reporting.text.filters import compact

HEALTHY, FAILING, UNKNOWN = "healthy", "failing", "unknown"
HEALTHY_BY_DEFINITION = "bp"  # its credit is the gradient: where a rule fires on it, the rule is on trial, not the run
SCALE = (
    "growth",
    "growth_init",
    "h_norm",
    "g_norm",
    "g_norm_mean_ce",
)  # the rules that look at these say what is healthy


@dataclass(frozen=True)
class Watched:
    """A quantity, how it is taken, and whether a large or a small one is bad.

    near_one: its distance from 1 is what counts, so that the gap is one of distances.
    """

    quantity: str
    take: str
    words: str
    unit: str
    high_is_bad: bool = False
    near_one: bool = False

    def reading(self, run: RunAudit) -> Reading:
        return take(self.quantity, self.take, run.record.measurements)[0]


WATCHED = (
    Watched("growth", "max_over_sites", "largest growth of a block", "ratio", high_is_bad=True),
    Watched("growth_init", "max_over_sites", "largest growth since initialisation", "ratio", high_is_bad=True),
    Watched("g_norm", "last_site", "‖g_L‖ per sample", "median over samples"),
    Watched("g_norm_mean_ce", "last_site", "‖g_L‖ of the mean cross entropy", "median over samples"),
    Watched("gain", "last_site", "gain at site L", "‖g_L‖/‖e‖"),
    Watched("fidelity", "last_site", "fidelity at site L", "cosine of float32 and float64", near_one=True),
)
QUANTITY = AnalysisColumn("quantity", "what is measured")
COLUMNS = (
    QUANTITY,
    AnalysisColumn("words", "in words"),
    AnalysisColumn("unit", "its unit"),
    AnalysisColumn("healthy_low", "smallest over healthy runs", "of the quantity", "num"),
    AnalysisColumn("healthy_high", "largest over healthy runs", "of the quantity", "num"),
    AnalysisColumn("failing_low", "smallest over failing runs", "of the quantity", "num"),
    AnalysisColumn("failing_high", "largest over failing runs", "of the quantity", "num"),
    AnalysisColumn("not_finite", "runs in which it is not finite; they are in no range", "runs", "count"),
    AnalysisColumn("rule", "rule of the edition that looks at it"),
    AnalysisColumn("threshold", "that rule's threshold", "of the quantity", "chosen"),
    AnalysisColumn(
        "gap",
        "healthy end over failing end, for growth the reverse, for fidelity of 1 − fidelity; above 1: no overlap",
        "ratio",
        "num",
    ),
)
BY_METHOD = (
    QUANTITY,
    METHOD,
    SETTING,
    RUNS,
    AnalysisColumn("state", "healthy, failing, or unknown because a rule could not judge"),
    AnalysisColumn("verdict", "verdict of the method, its seeds combined"),
    AnalysisColumn("low", "smallest over its runs", "of the quantity", "num"),
    AnalysisColumn("high", "largest over its runs", "of the quantity", "num"),
)
DEFINITION = (
    "Healthy: bp unless it diverged, and every method on none of whose runs {rules} fires. Failing: one of them fires on some "
    "run, or a run diverged. A method of which neither can be said is in no range. Controls are not counted."
)


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """The ends between which healthy and failing methods lie, with the edition's threshold and the gap."""
    rules = [rule for rule in edition.rules if rule.quantity in SCALE and not rule.reference]
    methods = trained(report)
    states = [state_of(method, rules) for method in methods]
    rows, by_method = [], []
    for watched in WATCHED:
        members = {
            state: [run for method, one in zip(methods, states, strict=True) if one == state for run in method.runs]
            for state in (HEALTHY, FAILING, UNKNOWN)
        }
        rows.append(_row(watched, members, edition))
        by_method += [_method_row(watched, method, state) for method, state in zip(methods, states, strict=True)]
    tables = (
        AnalysisTable("ranges", "Where healthy and failing runs lie", COLUMNS, tuple(rows)),
        AnalysisTable("methods", "The same, method by method", BY_METHOD, tuple(by_method), detail=True),
    )
    counts = ", ".join(f"{states.count(state)} {state}" for state in (HEALTHY, FAILING, UNKNOWN))
    codes = " or ".join(rule.code for rule in rules) or "no rule"
    return AnalysisResult(
        tables, (DEFINITION.format(rules=codes), f"{len(methods)} methods in their settings: {counts}.")
    )


def state_of(method: MethodRuns, rules: Sequence[Rule]) -> str:
    """healthy, failing or unknown; the worst of its runs, as the seeds of a verdict combine."""
    if any(run.record.status == "diverged" for run in method.runs):
        return FAILING
    if method.name == HEALTHY_BY_DEFINITION:
        return HEALTHY
    fired = {rule.code: rule.fired for rule in rules}
    findings = [finding for run in method.runs for finding in run.findings if finding.rule in fired]
    if any(one.outcome != "pass" and one.state == fired[one.rule] for one in findings):  # waived, it still fired
        return FAILING
    return HEALTHY if findings and all(one.outcome == "pass" for one in findings) else UNKNOWN


def _row(watched: Watched, members: dict[str, list[RunAudit]], edition: Edition) -> dict[str, AnalysisCell]:
    healthy, failing = (_ends(watched, members[state], state) for state in (HEALTHY, FAILING))
    broken = [run.record.run_id for runs in members.values() for run in runs if watched.reading(run).not_finite]
    rule, condition = _judge(watched, edition)
    absent = Reading(None, f"no rule of edition {edition.name} looks at it")
    good, bad = (failing[0], healthy[1]) if watched.high_is_bad else (healthy[0], failing[1])
    return {
        QUANTITY.name: AnalysisCell(text=watched.quantity),
        "words": AnalysisCell(text=watched.words),
        "unit": AnalysisCell(text=watched.unit),
        "healthy_low": healthy[0],
        "healthy_high": healthy[1],
        "failing_low": failing[0],
        "failing_high": failing[1],
        "not_finite": AnalysisCell(Reading(float(len(broken))), run_ids=tuple(broken)),
        "rule": AnalysisCell(text=rule or "none"),
        "threshold": AnalysisCell(Reading(condition.threshold) if condition else absent),
        "gap": _gap(good, bad, watched.near_one),
    }


def _method_row(watched: Watched, method: MethodRuns, state: str) -> dict[str, AnalysisCell]:
    low, high = _ends(watched, method.runs, state)
    return {
        QUANTITY.name: AnalysisCell(text=watched.quantity),
        **method.cells,
        "state": AnalysisCell(text=state),
        "verdict": AnalysisCell(text=method.group.verdict.label),
        "low": low,
        "high": high,
    }


def _ends(watched: Watched, runs: Sequence[RunAudit], state: str) -> tuple[AnalysisCell, AnalysisCell]:
    """The smallest and the largest finite value, each with the run that has it."""
    readings = [
        (reading.value, run.record.run_id) for run in runs if (reading := watched.reading(run)).value is not None
    ]
    if not readings:
        reason = watched.reading(runs[0]).reason if runs else f"no {state} run"
        absent = AnalysisCell(Reading(None, reason), run_ids=tuple(run.record.run_id for run in runs))
        return absent, absent
    ends = min(readings), max(readings)
    return tuple(AnalysisCell(Reading(value), run_ids=(run_id,), n=len(readings)) for value, run_id in ends)


def _judge(watched: Watched, edition: Edition) -> tuple[str, Condition | None]:
    """The rule and its condition that look at the quantity in this way."""
    for rule in edition.rules:
        for condition in rule.conditions:
            fits = (condition.quantity, condition.take) == (watched.quantity, watched.take)
            if fits and not OPERATORS[condition.fires].needs_reference:
                return rule.code, condition
    return "", None


def _gap(good: AnalysisCell, bad: AnalysisCell, near_one: bool) -> AnalysisCell:
    """Above 1 where all of the healthy lie on one side of all of the failing."""
    ids = (*good.run_ids, *bad.run_ids)
    for cell in (good, bad):
        if cell.reading.value is None:
            return AnalysisCell(cell.reading, run_ids=ids)
    above, below = good.reading.value, bad.reading.value
    if near_one:
        above, below = 1 - below, 1 - above
    if below <= 0:
        return AnalysisCell(Reading(None, f"no ratio to {below:g}"), run_ids=ids)
    return AnalysisCell(Reading.of(above / below), run_ids=ids)


RANGES = Analyser(
    name="ranges",
    title="Healthy and failing ranges",
    question="Between which values do healthy and failing runs lie, and do the thresholds stand in the gap?",
    source="this project: the constants of edition 2026-11 are calibrated by it",
    answer=answer,
)

STATES = {HEALTHY: (PALETTE[0], "o"), FAILING: (PALETTE[1], "s"), UNKNOWN: (TICK, "^")}
NEAR_ONE = {watched.quantity for watched in WATCHED if watched.near_one}
ROW, BOTTOM, GAP = 0.19, 0.35, 0.62  # inches


def numbers(analysis: Analysis, runs: Sequence[RunAudit]) -> pd.DataFrame:
    """The figure's twin: one row a quantity and method, fidelity as its distance from 1.

    threshold is NaN where no rule looks at the quantity. runs: not looked at; every drawing of an analysis takes them.
    """
    thresholds = {row["quantity"].text: row["threshold"].reading.value for row in analysis.rows}
    words = {row["quantity"].text: row["words"].text for row in analysis.rows}
    rows = []
    for row in analysis.table("methods").rows:
        quantity = row["quantity"].text
        values = [row["low"].reading.value, row["high"].reading.value, thresholds[quantity]]
        if quantity in NEAR_ONE:
            values = [None if value is None else 1 - value for value in values]
            values[:2] = values[1::-1]
        label = f"1 − {words[quantity]}" if quantity in NEAR_ONE else words[quantity]
        texts = (row["method"].text, row["setting"].text, row["state"].text, row["low"].reading.reason)
        rows.append((quantity, label, *texts, *values))
    columns = ["quantity", "words", "method", "setting", "state", "reason", "low", "high", "threshold"]
    return pd.DataFrame(rows, columns=columns).astype({"low": float, "high": float, "threshold": float})


def draw(canvas: Canvas, frame: pd.DataFrame) -> None:
    """frame: a row a quantity and method: the ends of its values, and the threshold."""
    quantities = list(dict.fromkeys(frame["quantity"]))
    frame, rows, left_out = in_rows(frame)
    handles = [
        key(state, color=colour, marker=marker, markersize=4.5, linewidth=2)
        for state, (colour, marker) in STATES.items()
    ]
    top = canvas.legend([*handles, limit_key("threshold of the edition")])
    canvas.resize(top + BOTTOM + (ROW * len(rows) + GAP) * len(quantities))
    panels = canvas.figure.subplots(len(quantities), 1, squeeze=False)[:, 0]
    for axes, quantity in zip(panels, quantities, strict=True):
        _panel(axes, frame[frame["quantity"] == quantity], rows)
    row_axis(panels[-1], rows, left_out)
    canvas.place(row_width(rows), 0.2, BOTTOM, top + 0.2, hspace=GAP / (ROW * len(rows)))


def _panel(axes: Axes, frame: pd.DataFrame, rows: Sequence[str]) -> None:
    threshold = frame["threshold"].iloc[0]
    known = frame.dropna(subset="low")
    value_axis(axes, [*known["low"], *known["high"], threshold])
    if threshold == threshold:
        axes.axvline(threshold, **{**LIMIT_LOOK, "linewidth": 1.2}, zorder=3)
    for row, state, low, high in zip(known["row"], known["state"], known["low"], known["high"], strict=True):
        colour, marker = STATES[state]
        axes.plot([low, high], [rows.index(row)] * 2, color=colour, marker=marker, markersize=4, linewidth=2, zorder=4)
    row_axis(axes, rows)
    limit = (
        f", threshold {compact(float(f'{threshold:.6g}'))}"
        if threshold == threshold
        else ", judged by no rule of this edition"
    )
    axes.set_title(frame["words"].iloc[0] + limit)


def table_lines(table: AnalysisTable) -> list[str]:
    """The table in Markdown; a number that is missing as its reason."""
    lines = [line([column.name for column in table.columns]), "|" + "---|" * len(table.columns)]
    return lines + [line([_words(row[column.name]) for column in table.columns]) for row in table.rows]


def _words(cell: AnalysisCell) -> str:
    if cell.text or cell.reading is None:
        return cell.text
    return cell.reading.reason if cell.reading.value is None else f"{cell.reading.value:.6g}"


def main(arguments: Sequence[str]) -> None:
    """Judged by the edition that the audit names; ValueError where that file says something else by now."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranges", description="Healthy and failing ranges.")
    parser.add_argument("audit", type=Path, help="audit.json, as an audit has written it")
    parser.add_argument("--figure", type=Path, help="a PNG file to draw into")
    options = parser.parse_args(arguments)
    report = jsonio.decode(AuditReport, json.loads(options.audit.read_text(encoding="utf-8")))
    analysis = RANGES.run(report, load_edition(report.edition.name, report.edition.overrides))
    for table in analysis.tables:
        print(f"{table.title}\n", *table_lines(table), sep="\n", end="\n\n")
    print(*analysis.remarks, sep="\n")
    if options.figure:
        options.figure.write_bytes(figure_of(draw, numbers(analysis, report.runs)).saved("png"))


if __name__ == "__main__":
    main(sys.argv[1:])
