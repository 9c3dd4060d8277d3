"""Analysis `ladder`: accuracy by number of trained blocks and by total depth.

The controls ladder_1 .. ladder_{L−1} of a method train only its last 1 .. L−1 blocks. The method itself trains all L
blocks. The run without trained blocks is the control ladder_0. If ladder_0 was not run, the frozen control of the setting
replaces ladder_0. The frozen control was run with another method, but a method has no effect if no block is trained.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from fa_registry import jsonio
from fa_registry.analyses._methods import (
    METHOD,
    RUNS,
    SETTING,
    MethodRuns,
    by_seed,
    estimate,
    mean_cell,
    quantity_column,
    scalar,
    trained,
)
from fa_registry.analyses.base import Analyser, Analysis, AnalysisCell, AnalysisColumn, AnalysisResult, AnalysisTable
from fa_registry.metrics import ACCURACY
from fa_registry.protocol.answer_intervals import with_samples
from fa_registry.protocol.grouping import groups, seeds_key
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading, RunAudit, RunSpec
from fa_registry.statistics import paired_difference

SHOWN = 5  # maximum number of methods in a remark
DEPTH = re.compile(r"ladder_(\d{1,9})")
RESULT = quantity_column(ACCURACY.name, ACCURACY.name)
COLUMNS = (
    METHOD,
    SETTING,
    AnalysisColumn("trained", "number K of trained blocks; only the last K blocks are trained", "blocks", "count"),
    AnalysisColumn("blocks", "total number of blocks, L", "blocks", "count"),
    RUNS,
    RESULT,
    AnalysisColumn(
        "gain",
        "accuracy minus the accuracy of the same network without trained blocks, paired by seed",
        "percentage points",
        "pp",
    ),
    AnalysisColumn("of", "label of the method and control of these runs"),
)
DEPTHS = (
    METHOD,
    SETTING,
    AnalysisColumn("scan", "setting of the network with the fewest blocks in the depth scan"),
    AnalysisColumn("blocks", "total number of blocks, L", "blocks", "count"),
    RUNS,
    RESULT,
    AnalysisColumn("frozen", "accuracy of the frozen control with the same number of blocks", "fraction", "pct"),
)
Runs = Sequence[RunAudit]


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Compare the accuracy of every method by number of trained blocks and by depth.

    Returns:
        Two tables: one row per method and number of trained blocks, and one row per method and depth. The second table
        contains only methods that were trained at several depths.
    """
    controls = _controls(report)
    rows, without_ladder = [], []
    for method in trained(report):
        depths = _depths_value(method, controls)
        rows += [_row(method, count, depths) for count in sorted(depths)]
        without_ladder += [f"{method.label} in {method.group.setting}"] if len(depths) < 3 else []
    tables = (
        AnalysisTable("ladder", "Accuracy by number of trained blocks", COLUMNS, tuple(rows)),
        AnalysisTable("depth", "Accuracy by total number of blocks", DEPTHS, tuple(_depths(report, controls))),
    )
    suffix = f" and {len(without_ladder) - SHOWN} more" if len(without_ladder) > SHOWN else ""
    remark = f"no run trains only the last K blocks (control ladder_K) with {', '.join(without_ladder[:SHOWN])}{suffix}"
    return AnalysisResult(tables, (remark,) if without_ladder else ())


def _controls(report: AuditReport) -> Mapping[tuple[str, str], tuple[str, Runs]]:
    """Return a mapping (key, name of a control) → (label, runs) of the control.

    The key of a frozen control identifies only the setting. The key of another control identifies the method.
    """
    controls: dict[tuple[str, str], tuple[str, Runs]] = {}
    for group in groups(report):
        spec = group.runs[0].record.spec
        if DEPTH.fullmatch(spec.control):
            controls[_key(spec, spec.control == "ladder_0"), spec.control] = (group.method, group.runs)
        elif spec.control == "frozen":
            controls[spec.setting.identity, "frozen"] = (group.method, group.runs)
    return controls


def _key(spec: RunSpec, bare: bool) -> str:
    return seeds_key(dataclasses.replace(spec.unpenalised if bare else spec, control="none"))


def _depths_value(
    method: MethodRuns, controls: Mapping[tuple[str, str], tuple[str, Runs]]
) -> dict[int, tuple[str, Runs]]:
    """Return a mapping: number of trained blocks → (label, runs) of the method or its control."""
    spec, blocks = method.runs[0].record.spec, _blocks(method)
    depths = {blocks: (method.label, method.runs)}
    ladder_depths = {int(depth[1]) for _, name in controls if (depth := DEPTH.fullmatch(name))}
    for count in sorted({0, *ladder_depths}):  # not range(blocks), because a specification may give any number
        if count >= blocks:
            break
        depth = controls.get((_key(spec, bare=not count), f"ladder_{count}"))
        if depth is None and not count:
            depth = controls.get((spec.setting.identity, "frozen"))
        depths |= {count: depth} if depth else {}
    return depths


def _blocks(method: MethodRuns) -> int:
    """Return the number of blocks L from the network's options or the measured sites."""
    declared_blocks = method.runs[0].record.spec.architecture_options.get("num_blocks")
    site_counts = [len(row) for run in method.runs for row in run.record.measurements.sites.values()]
    return int(declared_blocks) if jsonio.is_finite(declared_blocks) else max(site_counts, default=1) - 1


def _row(method: MethodRuns, count: int, depths: Mapping[int, tuple[str, Runs]]) -> dict[str, AnalysisCell]:
    name, runs = depths[count]
    return {
        METHOD.name: method.cells[METHOD.name],
        SETTING.name: method.cells[SETTING.name],
        "trained": AnalysisCell(Reading(float(count))),
        "blocks": AnalysisCell(Reading(float(_blocks(method)))),
        RUNS.name: AnalysisCell(Reading(float(len(runs))), run_ids=tuple(run.record.run_id for run in runs)),
        RESULT.name: mean_cell(runs, ACCURACY.name),
        "gain": _gain(runs, depths[0][1] if 0 in depths else ()),
        "of": AnalysisCell(text=name),
    }


def _gain(runs: Runs, baseline_runs: Runs) -> AnalysisCell:
    """Return the mean paired difference of accuracy from `baseline_runs`, which train no block."""
    if runs is baseline_runs:
        return AnalysisCell(Reading(0.0), run_ids=tuple(run.record.run_id for run in runs))
    accuracies, baseline = (by_seed(group, ACCURACY.name, scalar(ACCURACY.name)) for group in (runs, baseline_runs))
    common = accuracies.keys() & baseline.keys()
    ids = tuple(run.record.run_id for run in (*baseline_runs, *runs) if run.record.spec.seed in common)
    if not common:
        reason = "no run with the same seed and without trained blocks: neither ladder_0 nor frozen"
        return AnalysisCell(Reading(None, reason))
    pairs = ({seed: 100 * values[seed] for seed in common} for values in (accuracies, baseline))
    records = ([run.record for run in group] for group in (runs, baseline_runs))
    difference = with_samples(paired_difference(*pairs), ACCURACY.name, 100.0, *records)
    interval = (difference.interval.low, difference.interval.high) if difference.interval else None
    return estimate(difference.mean, interval, len(difference.seeds), ids)


def _depths(report: AuditReport, controls: Mapping[tuple[str, str], tuple[str, Runs]]) -> list[dict[str, AnalysisCell]]:
    """Return rows for the methods that differ only in num_blocks, sorted by depth."""
    scans: dict[str, list[MethodRuns]] = {}
    for method in trained(report):
        spec = method.runs[0].record.spec
        options = {name: value for name, value in spec.architecture_options.items() if name != "num_blocks"}
        if len(options) < len(spec.architecture_options):
            scans.setdefault(seeds_key(dataclasses.replace(spec, architecture_options=options)), []).append(method)
    depth_scans = [sorted(scan, key=_blocks) for scan in scans.values() if len({_blocks(entry) for entry in scan}) > 1]
    return [_depth(method, scan[0], controls) for scan in depth_scans for method in scan]


def _depth(
    method: MethodRuns, shallowest: MethodRuns, controls: Mapping[tuple[str, str], tuple[str, Runs]]
) -> dict[str, AnalysisCell]:
    _, frozen = controls.get((method.runs[0].record.spec.setting.identity, "frozen"), ("", ()))
    missing_cell = AnalysisCell(Reading(None, "no frozen control with this number of blocks"))
    return {
        **method.cells,
        METHOD.name: AnalysisCell(text=shallowest.label, run_ids=method.cells[METHOD.name].run_ids),
        "scan": shallowest.cells[SETTING.name],
        "blocks": AnalysisCell(Reading(float(_blocks(method)))),
        RESULT.name: mean_cell(method.runs, ACCURACY.name),
        "frozen": mean_cell(frozen, ACCURACY.name) if frozen else missing_cell,
    }


def silence(analysis: Analysis) -> str:
    """Return the reason why the analysis has no result, or "".

    There is a result if some runs train only some of their blocks, or if a method was run with at least two numbers of blocks.
    """
    depths = Counter((row["method"].text, row["setting"].text) for row in analysis.rows)
    if max(depths.values(), default=0) > 2 or analysis.table("depth").rows:
        return ""
    return "no run trains only the last K blocks (control ladder_K), and no method was run with two numbers of blocks"


PLUGIN = Analyser(
    name="ladder",
    title="Depth ladder",
    question="How much does each trained block add to the accuracy?",
    source="arXiv 2606.21126, ladder control and depth scan",
    answer=answer,
    rank=6,
    silence=silence,
    figure="fa_registry.reporting.figures.analyses.ladder",
)
