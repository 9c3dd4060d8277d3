"""Methods of a report, each with a unique label, and the means of their metrics over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fa_registry.analyses.base import AnalysisCell, AnalysisColumn
from fa_registry.metrics import is_scale, metric_named, over_seeds
from fa_registry.protocol.answer_intervals import sample_interval
from fa_registry.protocol.grouping import Group, groups, seeds_key
from fa_registry.protocol.operators import take
from fa_registry.protocol.paired_runs import NO_CONTROL, RunWithControl, SeedGroup
from fa_registry.records import AuditReport, Reading, RunAudit, RunRecord
from fa_registry.statistics.over_seeds import LARGEST_DECADES, seed_values

Pick = Callable[[RunRecord], Reading]

METHOD = AnalysisColumn("method", "method and its options")
SETTING = AnalysisColumn("setting", "setting of the runs; methods are compared within one setting")
SEED = AnalysisColumn("seed", "seed of the run", kind="count")
RUNS = AnalysisColumn("runs", "runs of the method", "runs", "count")


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method in one setting, one per seed; `label` is unique within the setting."""

    label: str
    group: Group
    mark: str = ""  # end of the label if several methods have the same label

    @property
    def runs(self) -> tuple[RunAudit, ...]:
        return self.group.runs

    @property
    def name(self) -> str:
        return self.runs[0].record.spec.method

    @property
    def cells(self) -> dict[str, AnalysisCell]:
        """Mapping column name → cell for the columns METHOD, SETTING and RUNS."""
        ids = tuple(run.record.run_id for run in self.runs)
        return {
            METHOD.name: AnalysisCell(text=self.label, run_ids=ids),
            SETTING.name: AnalysisCell(text=self.group.setting or "not recorded"),
            RUNS.name: AnalysisCell(Reading(float(len(ids))), run_ids=ids),
        }


def trained(report: AuditReport) -> tuple[MethodRuns, ...]:
    """Return every method of the report that is not a control, one entry per setting.

    The name of a setting comes from the files of a run, so two settings can have the same name. If two methods then have the same
    label, each label is extended by some digits of the digest of the method's specification.
    """
    trained_groups = [group for group in groups(report) if not group.control]
    labels_and_settings = [(group.runs[0].record.spec.label, group.setting) for group in trained_groups]
    counts = Counter(labels_and_settings)
    methods = []
    for (label, setting), group in zip(labels_and_settings, trained_groups, strict=True):
        digits = "" if counts[label, setting] == 1 else f" [{seeds_key(group.runs[0].record.spec)[:6]}]"
        methods.append(MethodRuns(f"{label}{digits}", group, digits))
    return tuple(methods)


def scalar(name: str) -> Pick:
    return lambda record: take(name, "scalar", record.measurements)[0]


def last_site(name: str) -> Pick:
    return lambda record: take(name, "last_site", record.measurements)[0]


def mid_site(name: str) -> Pick:
    """Return a function that reads a metric of a run at site ⌊L/2⌋.

    protocol.md requires this site if a metric is reported for only one site.
    """

    def pick(record: RunRecord) -> Reading:
        row = record.measurements.sites.get(name, ())
        return row[(len(row) - 1) // 2] if row else Reading(None, f"{name} was not measured")

    return pick


def by_seed(runs: Iterable[RunAudit], quantity: str, pick: Pick) -> dict[int, float]:
    """Return a mapping seed → value of a metric; a seed without a value is left out.

    If several runs have the same seed, their mean is used. The declaration of the metric decides whether this mean is
    arithmetic or geometric.
    """
    readings = ((run.record.spec.seed, pick(run.record)) for run in runs)
    return seed_values(readings, metric_named(quantity).mean)


def mean_cell(runs: Sequence[RunAudit], quantity: str, pick: Pick | None = None) -> AnalysisCell:
    """Return a cell with the mean of the metric `quantity` over seeds and its 95 % interval.

    The interval contains the error of the samples too, see `sample_interval`. Otherwise, it is the t interval over seeds.

    The declaration of the metric decides between the arithmetic and the geometric mean. By default, `pick` reads the scalar metric.
    """
    pick = pick or scalar(quantity)
    readings = [(run, pick(run.record)) for run in runs]
    summary = over_seeds(((run.record.spec.seed, reading) for run, reading in readings), quantity)
    runs_not_finite = [run for run, reading in readings if reading.not_finite]
    runs_with_value = [run for run, reading in readings if reading.value is not None]
    ids = tuple(run.record.run_id for run in runs_not_finite or runs_with_value or runs)
    interval = summary.interval and (sample_interval([run.record for run in runs], quantity) or summary.interval)
    return AnalysisCell(summary.mean, run_ids=ids, interval=interval, n=summary.n, of=summary.of)


def frozen_of(report: AuditReport) -> dict[str, RunRecord]:
    """Return a mapping run id → record of the frozen control with which this run is compared."""
    frozen = {run.record.run_id: run.record for run in report.runs if run.record.spec.control == "frozen"}
    return {run.record.run_id: frozen[run.frozen_run_id] for run in report.runs if run.frozen_run_id in frozen}


def margin_cell(method: MethodRuns, frozen: Mapping[str, RunRecord]) -> AnalysisCell:
    """Return a cell with the mean margin over the frozen controls and its 95 % interval.

    Rule D3 computes the same numbers.

    Args:
        frozen: the return value of `frozen_of`.
    """
    cases = tuple(RunWithControl(run.record, frozen.get(run.record.run_id)) for run in method.runs)
    margins = SeedGroup(cases).margins
    counted = [case.record.run_id for case in cases if case.record.spec.seed in margins.seeds]
    if margins.mean is None:
        reasons = (note for note in margins.notes if any(case.frozen for case in cases))
        reading = Reading(None, next(reasons, NO_CONTROL))
        return AnalysisCell(reading, run_ids=tuple(case.record.run_id for case in cases), of=len(cases))
    reading = Reading(margins.mean)
    return AnalysisCell(reading, run_ids=tuple(counted), interval=margins.interval, n=len(counted), of=len(cases))


def quantity_column(name: str, quantity: str, unit: str = "", site_text: str = "") -> AnalysisColumn:
    """Return the column of a metric that is averaged over seeds.

    The heading is the metric's text in the catalog of metrics. The heading of a geometric mean contains the words `geometric mean`.

    Args:
        name: key of the column's cells.
        unit: unit of the numbers; needed only if the catalog contains no unit.
        site_text: text that is added to the heading, such as `at site 0`.
    """
    metric = metric_named(quantity)
    text = " ".join(filter(None, (metric.alone or f"{metric.symbol}, {metric.words}", site_text)))
    mean = ", geometric mean over seeds" if is_scale(quantity) else ""
    return AnalysisColumn(name, f"{text}{mean}", unit or metric.unit, metric.kind)


def estimate(
    mean: float, interval: tuple[float, float] | None, n: int, run_ids: tuple[str, ...], scale: bool = False
) -> AnalysisCell:
    """Return a cell with a mean and its interval.

    Args:
        interval: low and high end, or None.
        run_ids: ids of the runs that provided the values.
        scale: if true, `mean` and `interval` are decimal logarithms, and the cell contains 10^mean and 10^interval.
    """
    if scale and abs(mean) > LARGEST_DECADES:
        reading = Reading(None, f"outside the range of float64: 10 to the power of {mean:.0f}")
        return AnalysisCell(reading, run_ids=run_ids, n=n)
    if scale:
        is_bounded = interval is not None and max(map(abs, interval)) < LARGEST_DECADES
        interval = tuple(10.0**end for end in interval) if is_bounded else None
        mean = 10.0**mean
    return AnalysisCell(Reading.of(mean), run_ids=run_ids, interval=interval, n=n)
