"""Comparison of published values with the runs of an audit, with the outcomes REPRODUCTION_OUTCOMES."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fa_registry.metrics import ARITHMETIC, GEOMETRIC, over_seeds
from fa_registry.protocol.grouping import Group, groups
from fa_registry.protocol.operators import take, trajectory
from fa_registry.protocol.rule_evaluation import first_fire
from fa_registry.protocol.rules import Edition, Rule, load_edition
from fa_registry.records import (
    AuditReport,
    FigureVerdict,
    MeasuredFigure,
    Published,
    PublishedFigure,
    Reading,
    Recipe,
    Reference,
    Reproduction,
    RunRecord,
    RunSpec,
    Scalar,
)
from fa_registry.statistics import Reported, reported, t_interval, tost

EDITION = "2026-05"  # edition of the published first fires; the leading edition of the audit does not matter


def reproduction(reference: Reference, report: AuditReport) -> Reproduction:
    """Compare every published value of a reference with the runs of an audit, one row per value, in order."""
    groups_of_report, edition = groups(report), load_edition(EDITION)
    rows = tuple(_row(entry, groups_of_report, report, edition) for entry in reference.figures)
    return Reproduction(reference.study, reference.title, reference.digest, rows, reference.remarks)


def _row(entry: PublishedFigure, candidates: Sequence[Group], report: AuditReport, edition: Edition) -> FigureVerdict:
    if entry.not_measured:
        return FigureVerdict(entry, "not measured", entry.not_measured)
    match = nearest(entry, candidates, report.cards)
    if match is None:
        architecture_text = f" on {entry.setting.architecture}" if entry.setting else ""
        absent = f"no run of {entry.label}{architecture_text} is in this audit"
        if entry.not_at_hand:
            return FigureVerdict(entry, "not at hand", f"{_without_value(entry)}; {absent}")
        return FigureVerdict(entry, "not measured", absent)
    group, differences = match
    rule = _rule(entry, edition)
    measured = tuple(figure_of(entry, run.record, rule) for run in group.runs)
    if entry.not_at_hand:
        verdict = Tested("not at hand", "; ".join([_without_value(entry), *differences]))
    else:
        verdict = Tested("not comparable", "; ".join(differences)) if differences else outcome_of(entry, measured)
    other_count = len(alike(entry, candidates, report.cards)) - 1
    ambiguity_note = (
        f"; {other_count} other groups of runs match too, and the largest group is used" if other_count > 0 else ""
    )
    mean, std = _over_runs([run.reading for run in measured], entry)
    return FigureVerdict(
        entry,
        verdict.outcome,
        f"{verdict.reason}{ambiguity_note}",
        measured,
        group.setting,
        mean,
        std,
        verdict.difference,
        verdict.interval_90,
        verdict.margin,
    )


def _without_value(entry: PublishedFigure) -> str:
    return f"published value not at hand: {entry.not_at_hand}"


def _rule(entry: PublishedFigure, edition: Edition) -> Rule | None:
    return next((rule for rule in edition.rules if rule.code == entry.rule), None)


def _over_runs(readings: Sequence[Reading], entry: PublishedFigure) -> tuple[Reading, Reading]:
    """Compute mean and std of the measured values (geometric mean on scale log10)."""
    average = GEOMETRIC if entry.margin.scale == "log10" else ARITHMETIC
    estimate = over_seeds(enumerate(readings), entry.quantity, average)
    if estimate.mean.value is not None and average == GEOMETRIC:
        return estimate.mean, Reading(None, "the spread over runs is in decades; see the values of the runs")
    return estimate.mean, Reading(None, "one run: no spread") if estimate.n == 1 else estimate.std


# Runs of an audit that match a published value, and differences between their experiment and the published one.
Cards = Mapping[str, Mapping[str, Any]]


def nearest(entry: PublishedFigure, groups: Iterable[Group], cards: Cards) -> tuple[Group, tuple[str, ...]] | None:
    """Return the group of runs nearest to a published experiment, with its differences, or None.

    A group is a candidate if it has the method, penalty, control and architecture of the published value. If several groups have
    the same number of differences, groups trained by this package are preferred to groups of adopted runs. If several groups are
    still equal, the largest group is preferred.
    """
    candidates = [(group, tuple(differences(entry, _spec(group), cards))) for group in groups if _is_of(entry, group)]
    return min(
        candidates,
        key=lambda candidate: (len(candidate[1]), bool(_spec(candidate[0]).weights), -len(candidate[0].runs)),
        default=None,
    )


def alike(entry: PublishedFigure, groups: Iterable[Group], cards: Cards) -> Sequence[Group]:
    """Return the groups that have no recorded difference from a published experiment."""
    return [group for group in groups if _is_of(entry, group) and not any(differences(entry, _spec(group), cards))]


def differences(entry: PublishedFigure, spec: RunSpec, cards: Cards) -> Iterator[str]:
    """Yield the differences between a run and a published experiment as sentences.

    The data set, epochs, options and recipe are compared.
    """
    setting = entry.setting
    if setting is None:
        return
    if spec.dataset != setting.dataset:
        yield f"data set: published on {setting.dataset}, here {spec.dataset}"
    if spec.epochs != setting.epochs:
        yield f"epochs: published value after {setting.epochs} epochs, here after {spec.epochs}"
    for kind, name, published_options, run_options in (
        ("architectures", spec.architecture, setting.architecture_options, spec.architecture_options),
        ("methods", spec.method, entry.method_options, spec.method_options),
    ):
        options = cards.get(f"{kind}/{name}", {}).get("options", {})
        defaults = {option: declared["default"] for option, declared in options.items() if "default" in declared}
        yield from _unlike(published_options, run_options, defaults)
    recipe = {field.name: field.default for field in dataclasses.fields(Recipe)}
    yield from _unlike(setting.recipe, dataclasses.asdict(spec.recipe), recipe)


def _unlike(
    published: Mapping[str, Scalar], run_options: Mapping[str, Scalar], defaults: Mapping[str, Scalar]
) -> Iterator[str]:
    """Yield a sentence for every option that differs.

    If the reference does not name an option, the default of the option is expected, if the default is known.
    """
    expected = {**defaults, **published}
    for name in dict.fromkeys([*published, *run_options]):
        if name not in expected:
            yield f"{name}: not given in the reference, here {run_options[name]}"
        elif name in run_options and run_options[name] != expected[name]:
            yield f"{name}: published with {expected[name]}, here {run_options[name]}"
        elif name not in run_options and expected[name] != defaults.get(name):
            yield f"{name}: published with {expected[name]}, but the method or architecture here has no such option"


def _is_of(entry: PublishedFigure, group: Group) -> bool:
    spec = _spec(group)
    is_same_method = (spec.method, spec.penalty, spec.control) == (entry.method, entry.penalty, entry.control)
    is_same_method = is_same_method and not spec.penalty_embedding  # no published run has this penalty
    return is_same_method and (entry.setting is None or spec.architecture == entry.setting.architecture)


def _spec(group: Group) -> RunSpec:
    return group.runs[0].record.spec


def figure_of(entry: PublishedFigure, record: RunRecord, rule: Rule | None) -> MeasuredFigure:
    """Return the value of a run in the published unit, or the first epoch at which `rule` fires."""
    reading, never = _fire(rule, record) if rule else (_number(entry, record), False)
    if record.integrity.state == "mismatch":
        reading, never = Reading(None, "the logged metrics of the run were not reproduced"), False
    return MeasuredFigure(record.spec.seed, record.run_id, reading, never)


def _number(entry: PublishedFigure, record: RunRecord) -> Reading:
    if entry.epoch is None:
        reading = _at_the_end(entry, record)
    else:
        readings = record.trajectory.get(
            trajectory(entry.quantity, "last_site" if entry.site == "last" else "scalar"), ()
        )
        if entry.epoch >= len(readings):
            return Reading(None, f"{entry.quantity} was not recorded up to epoch {entry.epoch}")
        reading = readings[entry.epoch]
    return reading if reading.value is None else Reading.of(reading.value * entry.factor)


def _fire(rule: Rule, record: RunRecord) -> tuple[Reading, bool]:
    """Return the tuple (first epoch at which the rule fires, whether the rule never fires)."""
    readings = record.trajectory.get(trajectory(rule.quantity, rule.take))
    if not readings or record.spec.weights:
        return Reading(None, f"{rule.quantity} was not recorded at every epoch"), False
    epoch = first_fire(rule, record)
    unknown = [reading.reason for reading in readings[:epoch] if reading.value is None]
    if unknown:
        return Reading(None, f"the metric is not known for every epoch: {unknown[0]}"), False
    if epoch is None:  # every epoch has a number here
        return Reading(None, f"the rule never fires in {len(readings) - 1} epochs"), True
    return Reading(float(epoch)), False


def _at_the_end(entry: PublishedFigure, record: RunRecord) -> Reading:
    if not entry.site:
        return take(entry.quantity, "scalar", record.measurements)[0]
    row = record.measurements.sites.get(entry.quantity, ())
    if not row:
        return Reading(None, f"{entry.quantity} was not measured")
    named_sites = {"last": len(row) - 1, "mid": (len(row) - 1) // 2}
    site = named_sites.get(entry.site)
    site = int(entry.site) if site is None else site
    return (
        row[site]
        if site < len(row)
        else Reading(None, f"there is no site {site}, because the last site is L = {len(row) - 1}")
    )


# Test of a published value: an equivalence test if there is a margin, one-sided for a bound, a count for `never`.
ALPHA = 0.05
ONE_RUN = "a test needs the spread over at least two runs; train two or more seeds"


@dataclass(frozen=True)
class Tested:
    """Outcome of a test of a published value, with the reason.

    The numbers are in the unit of the test, for example decades on scale log10.
    """

    outcome: str
    reason: str
    difference: Reading = Reading(None, "not tested")
    interval_90: tuple[float, float] | None = None
    margin: float = 0.0


def outcome_of(entry: PublishedFigure, measured: Sequence[MeasuredFigure]) -> Tested:
    """Test whether the values of one group of runs reproduce a published value."""
    runs = len(measured)
    never_count = sum(run.never for run in measured)
    missing = [run.reading for run in measured if run.reading.value is None and not run.never]
    if len(missing) == runs:
        return Tested("not measured", missing[0].reason)
    if missing:
        return Tested("not shown", f"{len(missing)} of {runs} runs have no value: {missing[0].reason}")
    if runs < 2:
        return Tested("not shown", ONE_RUN)
    if entry.published.never:
        return _never(never_count, runs, entry.margin.size)
    if never_count == runs:
        return Tested("differs", f"the published rule fires at some epoch, but here it fires in none of {runs} runs")
    if never_count:
        return Tested(
            "not shown", f"the rule fires in only {runs - never_count} of {runs} runs, so there is no mean epoch"
        )
    return _numbers(entry, [run.reading.value for run in measured])


def _never(never_count: int, runs: int, margin: float) -> Tested:
    """Test a value published as "never" by counting the runs in which the rule fires."""
    if never_count < runs:
        return Tested(
            "differs", f"the published rule never fires, but here it fires in {runs - never_count} of {runs} runs"
        )
    # Upper end of the one-sided 95 % interval if the rule fires in no run (Clopper–Pearson).
    rate = 1 - ALPHA ** (1 / runs)
    text = (
        f"the rule fires in none of {runs} runs, so its rate can be as large as {rate:.2f}; the margin is {margin:.2f}"
    )
    return Tested("reproduced" if rate < margin else "not shown", text, Reading(0.0), margin=margin)


def _numbers(entry: PublishedFigure, values: Sequence[float]) -> Tested:
    published, log = entry.published, entry.margin.scale == "log10"
    if log and min(values) <= 0:
        return Tested("not shown", f"no logarithm exists for the value {min(values):g}")
    measured = [math.log10(value) for value in values] if log else list(values)
    try:
        if published.below is not None or published.above is not None:
            return _bound(published, measured, log)
        target, margin, remark = _target(published, entry.margin.size, log)
        equivalence = tost(measured, target, margin)
    except ValueError as error:  # numbers out of range: the reason is reported
        return Tested("not shown", str(error))
    unit = " decades" if log else ""
    interval = equivalence.interval_90
    text = (
        f"90 % interval of the difference {interval.low:.3g} to {interval.high:.3g}{unit}, margin ±{margin:.3g}{unit}"
    )
    notes = "; ".join(note for note in (text, remark, equivalence.remark) if note)
    return Tested(equivalence.outcome, notes, Reading.of(equivalence.difference), (interval.low, interval.high), margin)


def _target(published: Published, margin: float, log: bool) -> tuple[Reported | float, float, str]:
    """Return the target, the margin and a remark for the test of a published value."""
    if published.values:
        return reported([_scaled(value, log) for value in published.values]), margin, ""
    if published.mean is not None:
        return Reported(published.mean, published.std, published.n), margin, ""
    if published.value is not None:
        return _scaled(published.value, log), margin, "published without a spread, therefore treated as exact"
    low, high = _scaled(published.low, log), _scaled(published.high, log)
    return (
        (low + high) / 2,
        margin + (high - low) / 2,
        "published as a range; half the width of the range is added to the margin",
    )


def _bound(published: Published, measured: Sequence[float], log: bool) -> Tested:
    """Test a published bound with a one-sided test at 5 %."""
    below = published.below is not None
    bound = _scaled(published.below if below else published.above, log)
    sign = 1.0 if below else -1.0
    # reproduced: the whole 90 % interval of the mean keeps the bound; differs: the whole 95 % interval violates the bound
    inner, outer = t_interval(measured, 1 - 2 * ALPHA), t_interval(measured, 1 - ALPHA)
    far_end, near_end = (inner.high, outer.low) if below else (inner.low, outer.high)
    outcome = (
        "reproduced" if sign * (bound - far_end) > 0 else "differs" if sign * (near_end - bound) > 0 else "not shown"
    )
    difference = math.fsum(measured) / len(measured) - bound
    unit = " decades" if log else ""
    text = (
        f"90 % interval of mean − bound: {inner.low - bound:.3g} to {inner.high - bound:.3g}{unit}; "
        f"the interval must be {'below' if below else 'above'} 0"
    )
    return Tested(outcome, text, Reading.of(difference), (inner.low - bound, inner.high - bound))


def _scaled(value: float, log: bool) -> float:
    return math.log10(value) if log else value
