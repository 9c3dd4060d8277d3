"""Combination of each run with its frozen control and with the other seeds of its group.

Instead of a frozen control, an adopted run may have a frozen accuracy that its author stated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import mean

from fa_registry.metrics import DEFAULT, Headline, headline_of
from fa_registry.protocol import last_block
from fa_registry.protocol.answer_intervals import (
    crossed_scores,
    interval_ends,
    mean_interval,
    test_scores,
    with_test_set,
)
from fa_registry.protocol.evidence_rules import control_doubt, not_counted
from fa_registry.protocol.grouping import is_repetition, one_a_seed
from fa_registry.protocol.multiplicity import Family
from fa_registry.protocol.replay_summary import proof_level
from fa_registry.protocol.verdict import is_intact
from fa_registry.records import BIGRAM, FROZEN_LONG, ProofLevel, Reading, RunRecord, SampleScores
from fa_registry.records.configurations import differing_settings
from fa_registry.statistics import (
    CONFIDENCE,
    CROSSED,
    PAIRED,
    Interval,
    look_confidence,
    paired_difference,
    stated_difference,
)

NO_CONTROL = "no frozen control of the same setting and seed"
BY_HAND = "stated by the author when the run was adopted, not measured here"
SEVERAL = "{count} frozen controls of the same setting and seed differ (runs {run_ids}); select one of them with --run"
NOT_PROVEN = "of a frozen control that is not proven ({doubt})"
OTHER_START = "the control has other initial weights than the run of the same seed"
OTHER_SET = (
    "the accuracy {accuracy:.6g} is not a whole number of {samples} test samples, so it was measured on another set"
)
WHOLE = 0.01  # largest allowed deviation of a count from a whole number: accuracies may be stored as float32
SHOWN = 10
COUNTED = ("complete", "diverged")  # without diverged runs, only the better seeds of a method would count


@dataclass(frozen=True)
class ControlReference:
    """Value of a control with which a run is compared.

    `run_id` is the control's run, and `text` describes the origin of the value.
    """

    reading: Reading
    run_id: str = ""
    text: str = "of the frozen control"
    doubt: str = ""
    """why the control's value is not proven; empty if it is proven"""
    scores: SampleScores | None = None
    """scores of the control; None if they are not recorded"""

    @property
    def stated(self) -> bool:
        """Whether the value exists but is not proven by this audit."""
        return self.reading.value is not None and bool(self.doubt or not self.run_id)


@dataclass(frozen=True)
class RunWithControl:
    """Run with the frozen control of the same setting and seed.

    Args:
        frozen: the control; None if there is no such control, or if several differ.
        rivals: the frozen controls, if several exist and differ.
        last_block: the control that trains only the last block, see `protocol.last_block`.
        shallow: the control without blocks.
        frozen_long: the frozen control with twice the epochs.
    """

    record: RunRecord
    frozen: RunRecord | None
    rivals: tuple[RunRecord, ...] = ()
    last_block: RunRecord | None = None
    shallow: RunRecord | None = None
    frozen_long: RunRecord | None = None

    @property
    def control(self) -> bool:
        return self.record.spec.control != "none"

    @property
    def controls(self) -> tuple[RunRecord, ...]:
        """The controls that the rules use for the verdict on this run; empty if this run is a control."""
        if self.control:
            return ()
        last_block_control = self.last_block if last_block.is_exact_on_top(self.record) else None
        found = (self.frozen, *self.rivals, self.frozen_long, last_block_control, self.shallow)
        return tuple(record for record in found if record)

    @property
    def other_set(self) -> str:
        """Reason why the accuracy was not measured on the complete test set, or an empty string.

        The accuracy times the number of test samples must be a whole number.
        """
        headline, samples = headline_of(self.record.measurements), _test_samples(self)
        share = self.record.measurements.scalars.get(headline.name) if headline.is_share else None
        if not samples or share is None or share.value is None or whole(share.value * samples):
            return ""
        return OTHER_SET.format(accuracy=share.value, samples=samples)

    @cached_property
    def doubt(self) -> str:
        """Reason why the metrics and training of the frozen control are not proven.

        If several frozen controls differ, the reason names these controls. The string is empty if the run is a control or has
        no frozen control.
        """
        if self.control:
            return ""
        if self.rivals:
            run_ids = " and ".join(record.run_id for record in self.rivals)
            return SEVERAL.format(count=len(self.rivals), run_ids=run_ids)
        return self._doubt_of(self.frozen) if self.frozen else ""

    def _doubt_of(self, control: RunRecord) -> str:
        doubt = control_doubt(control, self.record.integrity.state != "verified")
        has_other_start = control.spec.control != "shallow" and _starts_otherwise(control, self.record)
        return "; ".join(filter(None, (doubt, OTHER_START if has_other_start else "")))  # shallow is another network

    def reference(self, quantity: str) -> ControlReference:
        """Return the better value of two controls: the frozen control and the last-block control.

        The last-block control is used only if the credit of the run at site L equals the gradient.
        """
        frozen = self.frozen_reference(quantity)
        trained = last_block.better(frozen.reading, self, quantity)
        if not trained:
            return frozen
        scores = test_scores(self.last_block.measurements)
        return ControlReference(trained, self.last_block.run_id, last_block.TEXT, frozen.doubt, scores)

    def frozen_long_reference(self, metric: str) -> ControlReference | None:
        """Return the value of the control frozen_long, or None without such a control."""
        return self._reference_to(self.frozen_long, FROZEN_LONG, metric)

    def shallow_reference(self, metric: str) -> ControlReference | None:
        """Return the value of the control without blocks, or None without such a control."""
        return self._reference_to(self.shallow, "shallow", metric)

    def _reference_to(self, control: RunRecord | None, name: str, metric: str) -> ControlReference | None:
        reading = control and control.measurements.scalars.get(metric)
        if reading is None or reading.value is None:
            return None
        scores = test_scores(control.measurements)
        return ControlReference(reading, control.run_id, f"of the control {name}", self._doubt_of(control), scores)

    def frozen_reference(self, metric: str) -> ControlReference:
        """Return the frozen control's value, or the author's value if there is no control."""
        if self.rivals:
            return ControlReference(Reading(None, self.doubt))
        if self.frozen:
            absent = Reading(None, f"{metric} was not measured on the frozen control")
            text = NOT_PROVEN.format(doubt=self.doubt) if self.doubt else ControlReference.text
            reading = self.frozen.measurements.scalars.get(metric, absent)
            return ControlReference(
                reading, self.frozen.run_id, text, self.doubt, test_scores(self.frozen.measurements)
            )
        stated_reading = self.record.measurements.scalars.get(f"frozen_{metric}", Reading(None, NO_CONTROL))
        if stated_reading.value is None:
            return ControlReference(Reading(None, NO_CONTROL))
        return ControlReference(stated_reading, text=f"frozen, {BY_HAND}")


@dataclass(frozen=True)
class Margins:
    """Margin over the frozen controls, in the unit of the task's headline.

    For classes, the margin of a seed is its accuracy − the accuracy of its frozen control, in percentage points.

    Args:
        mean: mean over seeds, or None if no seed counts.
        interval: interval of the mean, at least as wide as the resolution of the test set; None for fewer than two seeds.
        df: degrees of freedom of the interval; None if they are not known.
        error_shares: shares of the variance of the mean that only more seeds and only more test samples would remove; None if the
            answers are not recorded.
        seeds: the seeds that count.
        notes: notes for the reader, for example which seeds were left out and why.
        left_out: the seeds that do not count because evidence is missing.
        test: name of the test to which the interval belongs; empty without an interval.
        stated: true if the control of any seed is not proven, or if the author stated the main metric of the control. If true,
            the difference is computed without pairing by seed, see `stated_difference`.
        other_set: whether the accuracy of any seed cannot be that of the complete test set.
        confidence: confidence level of the interval.
        by_seed: mapping from a seed to its margin.
        value: interval of the main metric over seeds, for example of the accuracy as a fraction; None for fewer than two seeds.
        control: the same interval for the frozen controls.
        chance: the main metric of a model that ignores its inputs, or None if it is not recorded or differs between seeds.
        samples: smallest recorded number of test samples, or 0 if a run did not record it.
        headline: the main metric and its margin.
        over_shallow: the same margin over the controls without blocks, if these are better than the frozen controls; else None.
        replayed: mean margin of the seeds whose run and control the audit trained again on another configuration, see
            `RunRecord.recorded_result`; None if there is no such seed, or only such seeds.
        over_frozen_long: the same margin over the controls frozen_long; None if no run that counts has such a control.
    """

    mean: float | None
    interval: tuple[float, float] | None
    seeds: tuple[int, ...]
    notes: tuple[str, ...]
    stated: bool = False
    other_set: bool = False
    confidence: float = CONFIDENCE
    by_seed: Mapping[int, float] = field(default_factory=dict)
    left_out: tuple[int, ...] = ()
    test: str = ""
    value: tuple[float, float] | None = None
    control: tuple[float, float] | None = None
    chance: float | None = None
    samples: int = 0
    headline: Headline = DEFAULT
    df: float | None = None
    error_shares: tuple[float, float] | None = None
    over_shallow: Margins | None = None
    replayed: float | None = None
    over_frozen_long: Margins | None = None

    @property
    def is_test_set_known(self) -> bool:
        """Whether chance is recorded, and the error of the test set is known.

        For an accuracy, the number of test samples determines this error; for another metric, only the scores of the samples do.
        """
        is_error_known = self.samples if self.headline.is_share else self.error_shares or self.interval is None
        return self.chance is not None and bool(is_error_known)

    def contains_chance(self, interval: tuple[float, float]) -> bool:
        """Return whether the main metric may be that of a model that ignores its inputs.

        The interval then contains chance or is worse than chance.
        """
        worst = interval[0] if self.headline.sign > 0 else interval[1]
        return not self.headline.exceeds(worst, self.chance)

    def is_at_chance(self, interval: tuple[float, float]) -> bool:
        """Return whether the whole interval does not exceed chance."""
        best = interval[1] if self.headline.sign > 0 else interval[0]
        return not self.headline.exceeds(best, self.chance)


@dataclass(frozen=True)
class SeedGroup:
    """All seeds of one method in one setting, with cached results.

    `look` is the number of the current interim analysis; 1 is the first audit of this seed set. `look_confidence` computes the
    confidence level of the intervals from this number.
    """

    cases: tuple[RunWithControl, ...]
    look: int = 1
    family: Family | None = field(default=None, compare=False, repr=False)
    """the groups of the setting that are decided together; None if the group is judged alone"""

    @cached_property
    def counted(self) -> Mapping[int, RunWithControl]:
        """Mapping from each seed to the run that counts. A second run of a seed is not a further sample."""
        return one_a_seed(self.cases, lambda case: case.record)

    def superseded_by(self, case: RunWithControl) -> RunRecord | None:
        """Return the run that counts instead of the run of `case`.

        The result is None if the run of `case` counts, or has the same result as the run that counts.
        """
        counted_run = self.counted[case.record.spec.seed].record
        is_same_result = counted_run is case.record or (
            counted_run.status == case.record.status and is_repetition(counted_run, case.record)
        )
        return None if is_same_result else counted_run

    def proof_of(self, case: RunWithControl) -> ProofLevel:
        """Return the level of proof of the verdict on a run.

        All runs that count have one level. A run that does not count has the level of its training and of its controls.
        """
        is_counted = self.counted[case.record.spec.seed] is case
        return self._counted_proof if is_counted else proof_level([case.record], case.controls)

    @cached_property
    def _counted_proof(self) -> ProofLevel:
        counted = self.counted.values()
        controls = (control for case in counted for control in case.controls)
        return proof_level((case.record for case in counted), controls)

    @cached_property
    def margins(self) -> Margins:
        """Margin over the controls, with the counted seeds, the mean over these seeds and its interval."""
        headline = headline_of(self.cases[0].record.measurements)
        observed: dict[int, float] = {}
        references: dict[int, ControlReference] = {}
        left_out: dict[int, str] = {}
        weights: dict[str, int] = {}
        for seed, case in self.counted.items():
            absent = Reading(None, f"{headline.name} was not measured")
            reading = case.record.measurements.scalars.get(headline.name, absent)
            reference = case.reference(headline.name)
            if reason := _uncounted(case, headline, reading, reference) or _again(case, weights):
                left_out[seed] = reason
            else:
                observed[seed], references[seed] = reading.value, reference
        cases = [self.counted[seed] for seed in observed]
        samples = min(map(_test_samples, cases), default=0)
        scores = {seed: test_scores(self.counted[seed].record.measurements) for seed in observed}
        frozen = {case.record.spec.seed: case.frozen_reference(headline.name) for case in cases}
        margins = _estimated(headline, observed, scores, references, samples, self.confidence)
        doubts = [f"seed {case.record.spec.seed}: {case.other_set}" for case in cases if case.other_set]
        notes = (
            *shortened([f"seed {seed} left out: {reason}" for seed, reason in left_out.items()], "left out"),
            *shortened(list(self._repeated()), "seeds with several runs"),
            *shortened(list(_stated(headline, references))),
            *last_block.remarks([seed for seed, one in references.items() if one.text == last_block.TEXT], headline),
            *shortened(doubts),
            *margins.notes,
        )
        return dataclasses.replace(
            margins,
            notes=notes,
            left_out=tuple(sorted(left_out)),
            other_set=bool(doubts),
            value=mean_interval(headline, observed, scores.values(), samples, self.confidence),
            control=mean_interval(
                headline,
                {seed: reference.reading.value for seed, reference in frozen.items()},
                [reference.scores for reference in frozen.values()],
                samples,
                self.confidence,
            ),
            chance=_only({chance_of(case.record) for case in cases}),
            over_shallow=self._over(RunWithControl.shallow_reference, headline, observed, scores, samples)
            if _is_below_shallow(cases, headline, self.confidence)
            else None,
            replayed=_replayed(cases, margins.by_seed),
            over_frozen_long=self._over(RunWithControl.frozen_long_reference, headline, observed, scores, samples),
        )

    def _over(
        self,
        reference: Callable[[RunWithControl, str], ControlReference | None],
        headline: Headline,
        observed: Mapping[int, float],
        scores: Mapping[int, SampleScores | None],
        samples: int,
    ) -> Margins | None:
        """Return the margins over the controls of one kind, or None if no run has such a control."""
        found = {seed: reference(self.counted[seed], headline.name) for seed in observed}
        references = {seed: reference for seed, reference in found.items() if reference}
        observed = {seed: observed[seed] for seed in references}
        return _estimated(headline, observed, scores, references, samples, self.confidence) if references else None

    @property
    def confidence(self) -> float:
        """Confidence level of the intervals at this interim analysis."""
        return look_confidence(self.look)

    def _repeated(self) -> Iterator[str]:
        """Yield a sentence about each seed with several runs: which run counts."""
        superseded_runs: dict[int, list[str]] = {}
        for case in self.cases:
            if self.counted[case.record.spec.seed] is not case:
                superseded_runs.setdefault(case.record.spec.seed, []).append(
                    f"{case.record.run_id} ({case.record.status})"
                )
        for seed, run_ids in sorted(superseded_runs.items()):
            yield f"{not_counted(self.counted[seed].record)}; these runs do not count: {', '.join(shortened(run_ids))}"


def _starts_otherwise(control: RunRecord, record: RunRecord) -> bool:
    """Return whether the initial weights of two runs differ on equal configurations."""
    start, own = (one.provenance.get("initial_weights") for one in (control, record))
    configurations = (one.measurements.conventions for one in (control, record))
    return bool(start and own and start != own and not differing_settings(*configurations))


def shortened(items: Sequence[object], description: str = "") -> list[str]:
    """Return the first SHOWN items as text, then the number of further items followed by `description`."""
    hidden_count = len(items) - SHOWN
    text = [str(item) for item in items[:SHOWN]]
    return [*text, f"{hidden_count} more {description}".strip()] if hidden_count > 0 else text


def _uncounted(case: RunWithControl, headline: Headline, reading: Reading, reference: ControlReference) -> str:
    """Return the reason why a run does not count; empty if the run counts."""
    if not is_intact(case.record):
        return "the metrics of the run do not match its recorded files"
    if case.record.status not in COUNTED:
        return f"the run is {case.record.status.replace('_', ' ')}"
    if headline_of(case.record.measurements) != headline:
        return f"its main metric is the {headline_of(case.record.measurements).symbol}, not the {headline.symbol}"
    if reading.reason:
        return f"the {headline.symbol} is N/A ({reading.reason})"
    reason = reference.reading.reason
    return f"the {headline.symbol} of the control is N/A ({reason})" if reason and reference.run_id else reason


def _again(case: RunWithControl, weights: dict[str, int]) -> str:
    """Return a reason if another seed already uses the run's weights file, else an empty string.

    A new weights file is added to `weights`.
    """
    file, seed = case.record.spec.weights, case.record.spec.seed
    if not file or weights.setdefault(file, seed) == seed:
        return ""
    return f"its run has the same weights file as seed {weights[file]}, which already counts"


def _stated(headline: Headline, references: Mapping[int, ControlReference]) -> Iterator[str]:
    """Yield sentences about the main metrics of controls that this audit did not prove."""
    by_reason: dict[str, list[int]] = {}
    for seed, reference in sorted(references.items()):
        if reference.stated:
            by_reason.setdefault(reference.doubt, []).append(seed)
    for doubt, seeds in by_reason.items():
        seed_text = ", ".join(shortened(seeds))
        if doubt:
            yield f"the frozen control of seed {seed_text} is not proven, so its {headline.symbol} is only stated: {doubt}"
        else:
            yield f"the frozen {headline.symbol} of seed {seed_text} was {BY_HAND}"


def _estimated(
    headline: Headline,
    observed: Mapping[int, float],
    scores: Mapping[int, SampleScores | None],
    references: Mapping[int, ControlReference],
    samples: int,
    confidence: float,
) -> Margins:
    """Return the margins with mean, interval and test; other fields have their default values."""
    if not observed:
        return Margins(None, None, (), (), confidence=confidence, headline=headline)
    seeds, stated = tuple(sorted(observed)), any(reference.stated for reference in references.values())
    factor = headline.sign * headline.scale
    method_values = {seed: factor * observed[seed] for seed in seeds}
    control_values = {seed: factor * references[seed].reading.value for seed in seeds}
    crossed = None
    if stated:
        step = headline.resolution(samples)
        difference = stated_difference(method_values.values(), control_values.values(), step, confidence)
    else:
        difference = paired_difference(method_values, control_values, confidence)
        crossed = crossed_scores(
            [scores[seed] for seed in seeds], [references[seed].scores for seed in seeds], confidence
        )
    name = difference.test if stated else PAIRED
    if crossed:
        half_width = headline.scale * (crossed.interval.high - crossed.interval.low) / 2
        interval = Interval(difference.mean - half_width, difference.mean + half_width, confidence, "crossed")
        name = CROSSED
    else:
        sides = (method_values.values(), control_values.values())
        interval, name = with_test_set(difference.interval, name, headline, sides, samples)
    remark = crossed.remark if crossed else difference.remark
    ends = interval_ends(interval, headline.half_sample(samples))
    return Margins(
        mean=round(difference.mean, 9),
        interval=ends,
        df=crossed.df if crossed else None if stated or not ends else float(len(seeds) - 1),
        error_shares=(crossed.seed_share, crossed.sample_share) if crossed else None,
        seeds=seeds,
        notes=(remark,) if remark and ends else (),
        stated=stated,
        confidence=confidence,
        by_seed={seed: headline.difference(observed[seed], references[seed].reading.value) for seed in seeds},
        test=name if ends else "",
        samples=samples,
        headline=headline,
    )


def _replayed(cases: Sequence[RunWithControl], by_seed: Mapping[int, float]) -> float | None:
    """Return the mean margin of the seeds whose replayed weights are judged.

    The result is None if these are no seeds or all seeds.
    """
    replayed = [
        by_seed[case.record.spec.seed]
        for case in cases
        if case.record.recorded_result and (case.frozen is None or case.frozen.recorded_result)
    ]
    return mean(replayed) if 0 < len(replayed) < len(cases) else None


def _is_below_shallow(cases: Sequence[RunWithControl], headline: Headline, confidence: float) -> bool:
    """Return whether the frozen controls are worse than those without blocks, by the whole interval.

    Frozen blocks that are worse than no blocks harm the network, so a margin over this control alone does not show that training
    the blocks helps.
    """
    pairs = [(case.frozen, case.shallow) for case in cases if case.frozen and case.shallow]
    sides = ([test_scores(record.measurements) for record in side] for side in zip(*pairs, strict=True))
    crossed = crossed_scores(*sides, confidence=confidence) if pairs else None
    return crossed is not None and (crossed.interval.high if headline.sign > 0 else -crossed.interval.low) < 0


def _only(values: set[float | None]) -> float | None:
    """Return the only value of a set, or None if there are several values or none."""
    return values.pop() if len(values) == 1 else None


def _test_samples(case: RunWithControl) -> int:
    """Return the size of the run's test set, or 0 if it is not recorded."""
    return case.record.measurements.conventions.get("test_samples") or 0


def chance_of(record: RunRecord) -> float | None:
    """Return the main metric of a model that ignores its inputs, or None if the run did not record it."""
    measurements = record.measurements
    return headline_of(measurements).chance(measurements.conventions)


def common_chance(records: Iterable[RunRecord]) -> float:
    """Return the main metric of a model that guesses, or NaN if it is unknown or not unique."""
    chance = _only({chance_of(record) for record in records})
    return math.nan if chance is None else chance


def common_bigram(records: Iterable[RunRecord]) -> float:
    """Return the bigram entropy of the training text, or NaN if it is unknown or not unique."""
    entropy = _only({record.measurements.conventions.get(BIGRAM) for record in records})
    return math.nan if entropy is None else entropy


def whole(count: float) -> bool:
    """Return whether a number of samples is a whole number, except for rounding errors."""
    return abs(count - round(count)) <= WHOLE
