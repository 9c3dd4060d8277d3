"""A run together with what it is compared with: its frozen control, or an accuracy its owner gave, and its other seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fa_registry.protocol.operators import margin_pp
from fa_registry.protocol.verdict import stands
from fa_registry.records import Reading, RunRecord
from fa_registry.statistics import paired_difference

NO_CONTROL = "no frozen control of the same setting and seed"
BY_HAND = "given when the run was adopted, not measured here"
SHOWN = 10
COUNTED = ("complete", "diverged")  # without the diverged ones, a method would be judged by its luckier seeds


@dataclass(frozen=True)
class Reference:
    """What a run is compared with, and whose it is: the control's run id, or the words that say who gave it."""

    reading: Reading
    run_id: str = ""
    words: str = "of the frozen control"


@dataclass(frozen=True)
class Case:
    """frozen: the frozen control of the same setting and seed, if there is one."""

    record: RunRecord
    frozen: RunRecord | None

    @property
    def control(self) -> bool:
        return self.record.spec.control != "none"

    def reference(self, quantity: str) -> Reference:
        """The frozen control's figure; one given by hand only where there is no control."""
        if self.frozen:
            absent = Reading(None, f"{quantity} was not measured on the frozen control")
            return Reference(self.frozen.measurements.scalars.get(quantity, absent), self.frozen.run_id)
        given = self.record.measurements.scalars.get(f"frozen_{quantity}", Reading(None, NO_CONTROL))
        if given.value is None:
            return Reference(Reading(None, NO_CONTROL))
        return Reference(given, words=f"frozen, {BY_HAND}")


@dataclass(frozen=True)
class Margins:
    """accuracy − frozen accuracy over seeds, in percentage points. interval: Student-t, 95 %; None for fewer than two.

    seeds: those that count; notes: what a reader must know of them, e.g. which were left out and why.
    """

    mean: float | None
    interval: tuple[float, float] | None
    seeds: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SeedGroup:
    """The seeds of one method in one setting. Worked out once for all of them: a group may be large."""

    cases: tuple[Case, ...]

    @cached_property
    def margins(self) -> Margins:
        accuracies: dict[int, list[float]] = {}
        references: dict[int, float] = {}
        by_hand, left_out = set(), []
        weights: dict[str, int] = {}
        for case in self.cases:
            seed = case.record.spec.seed
            accuracy = case.record.measurements.scalars.get("accuracy", Reading(None, "accuracy was not measured"))
            reference = case.reference("accuracy")
            reason = _uncounted(case, accuracy, reference) or _again(case, weights)
            if reason:
                left_out.append(f"seed {seed} left out: {reason}")
                continue
            accuracies.setdefault(seed, []).append(accuracy.value)
            references[seed] = reference.reading.value
            by_hand |= {seed} if not reference.run_id else set()
        notes = [*shortened(list(dict.fromkeys(left_out)), "left out"), *_remarks(accuracies, by_hand)]
        return _estimated({seed: _mean(several) for seed, several in accuracies.items()}, references, notes)


def shortened(items: Sequence[object], what: str = "") -> list[str]:
    """The first SHOWN as text and the number of the rest: every run of a large group repeats what is said of it."""
    rest = len(items) - SHOWN
    words = [str(item) for item in items[:SHOWN]]
    return [*words, f"{rest} more {what}".strip()] if rest > 0 else words


def _uncounted(case: Case, accuracy: Reading, reference: Reference) -> str:
    """Why a run does not count; empty where it does."""
    if not stands(case.record):
        return "its figures are not those of what is sealed"
    if case.record.status not in COUNTED:
        return f"the run is {case.record.status.replace('_', ' ')}"
    if accuracy.reason:
        return f"its accuracy is N/A ({accuracy.reason})"
    reason = reference.reading.reason
    return f"its control's accuracy is N/A ({reason})" if reason and reference.run_id else reason


def _again(case: Case, weights: dict[str, int]) -> str:
    """Whether these adopted weights have counted already, under another seed; adds them to `weights` where not."""
    file, seed = case.record.spec.weights, case.record.spec.seed
    if not file or weights.setdefault(file, seed) == seed:
        return ""
    return f"it is the weights file of seed {weights[file]} again"


def _remarks(accuracies: dict[int, list[float]], by_hand: set[int]) -> Iterator[str]:
    several = [seed for seed, values in sorted(accuracies.items()) if len(values) > 1]
    if several:  # the same seed again is no further sample
        yield f"the runs of seed {', '.join(shortened(several))} count as one, by their mean"
    if by_hand:
        yield f"the frozen accuracy of seed {', '.join(shortened(sorted(by_hand)))} was {BY_HAND}"


def _estimated(accuracies: dict[int, float], references: dict[int, float], notes: Sequence[str]) -> Margins:
    if not accuracies:
        return Margins(None, None, (), tuple(notes))
    found = paired_difference(
        {seed: 100 * value for seed, value in accuracies.items()},
        {seed: 100 * references[seed] for seed in accuracies},
    )
    ends = (found.interval.low, found.interval.high) if found.interval else None
    interval = tuple(margin_pp(end / 100, 0.0) for end in ends) if ends else None
    mean = margin_pp(found.mean / 100, 0.0)
    remark = (found.remark,) if found.remark and interval else ()
    return Margins(mean, interval, found.seeds, (*notes, *remark))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
