"""Paired differences of two columns of a comparison: over the seeds both have, with an interval, or with why not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fa_registry.protocol.grouping import Group
from fa_registry.quantities import is_scale
from fa_registry.records import Reading
from fa_registry.reporting.compare_parts import PairedRow
from fa_registry.reporting.naming import group_label
from fa_registry.reporting.parts import Number
from fa_registry.reporting.readings import last_site, scalar
from fa_registry.statistics import PairedDifference, excludes, paired_difference


@dataclass(frozen=True)
class Subject:
    """A quantity whose difference says something; on a ratio scale it is the difference of the logarithms."""

    name: str
    words: str
    unit: str
    kind: str
    factor: float = 1.0
    of_site: bool = False


SUBJECTS = (
    Subject("accuracy", "test accuracy", "percentage points", "pp", factor=100.0),
    Subject("gamma_deep_mean", "Γ, gamma_deep_mean", "cosine", "cos"),
    Subject("h_L", "‖h_L‖₂", "decades", "num"),
    Subject("growth_max", "largest growth", "decades", "num"),
    Subject("g_norm_mean_ce", "‖g_L‖ of the mean CE", "decades", "num", of_site=True),
    Subject("stability_mid", "stability", "cosine", "cos"),
)


def paired_rows(first: Group, second: Group) -> Iterator[PairedRow]:
    """first − second of every subject that both have measured."""
    for subject in SUBJECTS:
        a, b = _readings(first, subject), _readings(second, subject)
        if any(reading.value is not None for reading in a.values()) and any(
            one.value is not None for one in b.values()
        ):
            yield _row(subject, first, second, a, b)


def seeds_of(group: Group) -> set[int]:
    return {run.record.spec.seed for run in group.runs}


def _readings(group: Group, subject: Subject) -> dict[tuple[int, str], Reading]:
    """(seed, run id) → the reading as it is subtracted."""
    look = last_site if subject.of_site else scalar
    found = {(run.record.spec.seed, run.record.run_id): look(run.record, subject.name) for run in group.runs}
    return {key: _subtracted(reading, subject) for key, reading in found.items()}


def _subtracted(reading: Reading, subject: Subject) -> Reading:
    if reading.value is None:
        return reading
    if not is_scale(subject.name):
        return Reading(reading.value * subject.factor)
    return Reading(math.log10(reading.value)) if reading.value > 0 else Reading(None, "not positive: has no logarithm")


def _row(
    subject: Subject,
    first: Group,
    second: Group,
    a: Mapping[tuple[int, str], Reading],
    b: Mapping[tuple[int, str], Reading],
) -> PairedRow:
    hindrance = _hindrance(a, b)
    known = [{key[0]: one.value for key, one in side.items() if one.value is not None} for side in (a, b)]
    shared = known[0].keys() & known[1].keys()
    if hindrance or not shared:
        return _without(subject, first, second, hindrance or "no seed has a value on both sides")
    found = paired_difference(*({seed: side[seed] for seed in shared} for side in known))
    missing = sorted({key[0] for key in (*a, *b)} - shared)
    remarks = [found.remark.removeprefix("provisional: ")] if found.remark else []
    remarks += [f"without seed {', '.join(map(str, missing))}: no value on both sides"] if missing else []
    ids = tuple(run_id for seed, run_id in (*a, *b) if seed in shared)
    return PairedRow(
        first=group_label(first),
        second=group_label(second),
        words=subject.words,
        unit=subject.unit,
        difference=Number(Reading(found.mean), subject.kind, ids),
        low=_end(found, "low"),
        high=_end(found, "high"),
        seeds=found.seeds,
        answer=_answer(found),
        remark="; ".join(remarks),
    )


def _hindrance(*sides: Mapping[tuple[int, str], Reading]) -> str:
    """A seed that occurs twice on one side has no one partner."""
    for side in sides:
        seeds = [seed for seed, _ in side]
        twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
        if twice:
            return f"seed {', '.join(map(str, twice))} occurs more than once on one side"
    return ""


def _without(subject: Subject, first: Group, second: Group, reason: str) -> PairedRow:
    none = Reading(None, reason)
    labels = group_label(first), group_label(second)
    return PairedRow(
        *labels, subject.words, subject.unit, Number(none, subject.kind, ()), none, none, (), "none", reason
    )


def _end(found: PairedDifference, end: str) -> Reading:
    return Reading(getattr(found.interval, end)) if found.interval else Reading(None, "one shared seed: no interval")


def _answer(found: PairedDifference) -> str:
    if found.interval is None:
        return "provisional"
    if not excludes(found.interval, 0.0):
        return "undecided"
    return "higher" if found.mean > 0 else "lower"
