"""The test behind a verdict. A figure with a margin is an equivalence test, a bound is one-sided, `never` is a count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fa_registry.records import Measured, Published, PublishedFigure, Reading
from fa_registry.statistics import Reported, reported, t_interval, tost

ALPHA = 0.05
ONE_RUN = "one run has no spread to test with: train two seeds or more"


@dataclass(frozen=True)
class Tested:
    """outcome, with the reason in words; difference, interval_90 and margin in the unit of the test, as in FigureVerdict."""

    outcome: str
    reason: str
    difference: Reading = Reading(None, "not tested")
    interval_90: tuple[float, float] | None = None
    margin: float = 0.0


def outcome_of(figure: PublishedFigure, measured: Sequence[Measured]) -> Tested:
    """What the runs of one group, which is the published experiment again, say of one published figure."""
    runs = len(measured)
    silent = sum(run.never for run in measured)
    missing = [run.reading for run in measured if run.reading.value is None and not run.never]
    if len(missing) == runs:
        return Tested("not measured", missing[0].reason)
    if missing:
        return Tested("not shown", f"{len(missing)} of {runs} runs have no number: {missing[0].reason}")
    if runs < 2:
        return Tested("not shown", ONE_RUN)
    if figure.published.never:
        return _never(silent, runs, figure.margin.size)
    if silent == runs:
        return Tested("differs", f"published with epochs of first fire, here it fires on none of {runs} runs")
    if silent:
        return Tested("not shown", f"it fires on {runs - silent} of {runs} runs: no mean epoch")
    return _numbers(figure, [run.reading.value for run in measured])


def _never(silent: int, runs: int, margin: float) -> Tested:
    """Counted: of n runs without a fire, 1 − α^(1/n) is the largest rate that 95 % do not exclude (Clopper–Pearson)."""
    if silent < runs:
        return Tested("differs", f"published as never, here it fires on {runs - silent} of {runs} runs")
    rate = 1 - ALPHA ** (1 / runs)
    words = f"fires on none of {runs} runs, counted: the rate may be up to {rate:.2f}, the margin is {margin:.2f}"
    return Tested("reproduced" if rate < margin else "not shown", words, Reading(0.0), margin=margin)


def _numbers(figure: PublishedFigure, values: Sequence[float]) -> Tested:
    published, log = figure.published, figure.margin.scale == "log10"
    if log and min(values) <= 0:
        return Tested("not shown", f"there is no logarithm of {min(values):g}")
    measured = [math.log10(value) for value in values] if log else list(values)
    try:
        if published.below is not None or published.above is not None:
            return _bound(published, measured, log)
        target, margin, remark = _target(published, figure.margin.size, log)
        equivalence = tost(measured, target, margin)
    except ValueError as error:  # numbers beyond what the statistics take: said, not swallowed
        return Tested("not shown", str(error))
    unit = " decades" if log else ""
    interval = equivalence.interval_90
    words = (
        f"90 % interval of the difference {interval.low:.3g} to {interval.high:.3g}{unit}, margin ±{margin:.3g}{unit}"
    )
    notes = "; ".join(note for note in (words, remark, equivalence.remark) if note)
    return Tested(equivalence.outcome, notes, Reading.of(equivalence.difference), (interval.low, interval.high), margin)


def _target(published: Published, margin: float, log: bool) -> tuple[Reported | float, float, str]:
    """What is tested against, the margin, and what a reader must know of it. A range widens the margin by half of itself."""
    if published.values:
        return reported([_scaled(value, log) for value in published.values]), margin, ""
    if published.mean is not None:
        return Reported(published.mean, published.std, published.n), margin, ""
    if published.value is not None:
        return _scaled(published.value, log), margin, "published without a spread, taken as exact"
    low, high = _scaled(published.low, log), _scaled(published.high, log)
    return (low + high) / 2, margin + (high - low) / 2, "published as a range: its half is part of the margin"


def _bound(published: Published, measured: Sequence[float], log: bool) -> Tested:
    """One-sided at 5 %: the whole 90 % interval of the mean on the right side; wholly beyond with 95 % is `differs`."""
    below = published.below is not None
    bound = _scaled(published.below if below else published.above, log)
    sign = 1.0 if below else -1.0
    inner, outer = t_interval(measured, 1 - 2 * ALPHA), t_interval(measured, 1 - ALPHA)
    far, near = (inner.high, outer.low) if below else (inner.low, outer.high)
    outcome = "reproduced" if sign * (bound - far) > 0 else "differs" if sign * (near - bound) > 0 else "not shown"
    difference = math.fsum(measured) / len(measured) - bound
    unit = " decades" if log else ""
    words = (
        f"90 % interval of the mean, from the bound, {inner.low - bound:.3g} to {inner.high - bound:.3g}{unit}, "
        f"must lie {'below' if below else 'above'} 0"
    )
    return Tested(outcome, words, Reading.of(difference), (inner.low - bound, inner.high - bound))


def _scaled(value: float, log: bool) -> float:
    return math.log10(value) if log else value
