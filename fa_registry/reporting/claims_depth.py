"""Claims that compare trained blocks with frozen blocks.

If the comparison is undecided, the claim describes a study that would decide the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fa_registry.metrics import HEADLINES, MARGINS, SUBJECTS, Headline, headline_of, over_seeds
from fa_registry.metrics import MARGIN_SYMBOL as MARGIN
from fa_registry.protocol.answer_intervals import TEST_SAMPLES, sample_interval
from fa_registry.protocol.last_block import CONTROL
from fa_registry.protocol.last_block import STATE as LAST_BLOCK
from fa_registry.protocol.last_block import TEXT as LAST_BLOCK_WORDS
from fa_registry.protocol.rule_evaluation import AT_CHANCE, UNDECIDED
from fa_registry.records import Finding, Reading, RunAudit, UndecidedCause
from fa_registry.reporting.claims_reference import UNDERCUT, author_stated_runs, claim, finding_with, with_state
from fa_registry.reporting.report_values import scalar_metric
from fa_registry.reporting.text.filters import KINDS, between, ci, compact, num, pct
from fa_registry.reporting.view_models import Claim
from fa_registry.statistics import CONFIDENCE, LEAST_SEEDS, level_text, seeds_to_plan, std_factors, wilson_interval
from fa_registry.statistics.intervals import MOST_SEEDS, POWER
from fa_registry.statistics.over_seeds import OverSeeds
from fa_registry.statistics.samples import quantile

DEPTH = SUBJECTS["depth"]
HALF = 0.5  # of the variance: the larger part of the error is the test set's
CLEARS = "CLEARS"


def depth_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Yield the claims from the comparison of the runs with their frozen controls."""
    for state, write in TEXT.items():
        touched = _clear(runs) if state == CLEARS else with_state(runs, state, quantities=DEPTH)
        if touched:
            key, text = write(finding_with(touched[0], state, quantities=DEPTH), touched)
            yield claim(key, text, touched)


def cleared_text(runs: Sequence[RunAudit]) -> str:
    """Return a text about a margin over the frozen control that is above its limit.

    Example: `; the margin is +33.2 pp, …`. Only complete runs whose rule estimates the margin over several seeds count. The text is
    empty if there is no such run.
    """
    clears = _clear(runs)
    if not clears:
        return ""
    finding = finding_with(clears[0], CLEARS, quantities=DEPTH)
    references = ((run, finding_with(run, CLEARS, quantities=DEPTH).reference_run_id) for run in clears)
    over = [run for run, reference_id in references if reference_id not in ("", run.frozen_run_id)]
    reference_text = (
        f"; the trained blocks were compared with the {_headline(clears[0]).symbol} {LAST_BLOCK_WORDS}, because the last block "
        "learns from the exact gradient"
        if over
        else ""
    )
    return reference_text + _interval(finding) + nearest_limit_text(clears, finding)


def _headline(run: RunAudit) -> Headline:
    return headline_of(run.record.measurements)


def _judged(finding: Finding) -> Headline:
    """Return the headline whose main metric or margin is judged by a finding about depth."""
    return MARGINS.get(finding.quantity) or HEADLINES[finding.quantity]


def _margin(finding: Finding) -> str:
    return KINDS[_judged(finding).margin_kind](finding.observed.value)


def _limit(finding: Finding) -> str:
    return f"{compact(finding.threshold)} {_judged(finding).unit}"


def _clear(runs: Sequence[RunAudit]) -> list[RunAudit]:
    complete = (run for run in runs if run.record.status == "complete")
    found = ((run, finding_with(run, CLEARS, quantities=DEPTH)) for run in complete)
    return [run for run, finding in found if finding and finding.interval is not None]


def is_above_frozen(run: RunAudit) -> bool:
    """Return whether a passed rule requires that the run is better than frozen blocks.

    The lower end of the rule's interval must be above 0. If the rule has no interval, its limit must be above 0. Return False if
    the edition skips the comparison with the frozen control.
    """
    passed = [finding for finding in run.findings if finding.quantity in DEPTH and finding.outcome == "pass"]
    return bool(passed) and all(
        finding.interval[0] > 0 if finding.interval else (finding.threshold is not None and finding.threshold > 0)
        for finding in passed
    )


def seeds_needed(finding: Finding) -> tuple[int | None, int | None]:
    """Return the smallest and the largest number of new seeds that decide.

    A study of so many seeds decides the comparison with power POWER.

    The calculation assumes the mean of this finding, the error of its test set, and the 80 % interval of its spread over seeds. A
    number is None if more than MOST_SEEDS seeds are needed, or if the finding has no interval.
    """
    if finding.interval is None or finding.threshold is None or finding.observed.value is None or finding.seeds < 2:
        return None, None
    half_width = (finding.interval[1] - finding.interval[0]) / 2
    error = half_width / quantile(finding.df or finding.seeds - 1, finding.confidence or CONFIDENCE)
    test_set = error_of_test_set(finding)
    spread = error * math.sqrt((1 - test_set) * finding.seeds)
    distance = abs(finding.observed.value - finding.threshold)
    if not distance or not spread:
        return None, None
    factors = std_factors(finding.seeds)
    low, high = (seeds_to_plan(distance, factor * spread, error * math.sqrt(test_set)) for factor in factors)
    return low, high


def _undercut(finding: Finding, runs: Sequence[RunAudit]) -> tuple[str, str]:
    return "undercut", _undercut_text(finding, runs) + nearest_limit_text(runs, finding) + author_stated_runs(
        runs, DEPTH
    )


def _undercut_text(finding: Finding, runs: Sequence[RunAudit]) -> str:
    if not finding.interval:
        return "Depth is not shown to help: the trained blocks do not beat frozen random blocks by the required margin"
    low, high = finding.interval
    answer = "Depth helps by less than required" if low > 0 else "Depth is not shown to help"
    if high < 0:
        answer = "Depth does not help"
    accuracy = _accuracy(runs).mean.value
    both = ""
    references = ((run, finding_with(run, UNDERCUT, quantities=DEPTH).reference_run_id) for run in runs)
    of_frozen = all(reference_id in ("", run.frozen_run_id) for run, reference_id in references)
    headline = _judged(finding)
    if accuracy is not None and finding.quantity == headline.margin and finding.seeds == len(runs) and of_frozen:
        frozen = accuracy - finding.observed.value / headline.scale
        both = f"the {headline.symbol} is {pct(accuracy)}, that of the frozen control is {pct(frozen)}; "
    return (
        f"{answer}: {both}the {MARGIN} over the frozen control is {_margin(finding)} ({_estimate(finding)}; "
        f"required: at least {_limit(finding)}){_why_level(finding)}"
    )


def _estimate(finding: Finding) -> str:
    """Return the interval of a margin with its test: `95 % interval … over 3 seeds, paired t test`."""
    test = f", {finding.test}" if finding.test else ""
    level, ends = level_text(finding.confidence or CONFIDENCE), between(finding.interval, _judged(finding).margin_kind)
    return f"{level} interval {ends} over {finding.seeds} seeds{test}"


def _accuracy(runs: Sequence[RunAudit]) -> OverSeeds:
    """Return the mean of a share of the test samples over seeds; N/A for other metrics."""
    headline = _headline(runs[0])
    absent = Reading(None, f"the {headline.symbol} is no share of the test samples")
    readings = (
        (run.record.spec.seed, scalar_metric(run.record, headline.name) if headline.is_share else absent)
        for run in runs
    )
    return over_seeds(readings, headline.name)


def _at_chance(finding: Finding, runs: Sequence[RunAudit]) -> tuple[str, str]:
    headline = _headline(runs[0])
    return "at chance", (
        f"The {headline.symbol} does not {headline.beats} chance, so no learning may be claimed, regardless of the comparison "
        "with frozen blocks"
    )


def _cleared(finding: Finding, runs: Sequence[RunAudit]) -> tuple[str, str]:
    """Return (key, text) of a margin above its limit.

    If the limit is below 0, the trained blocks may still be worse than frozen blocks.
    """
    low, high = finding.interval
    details = cleared_text(runs)
    if low > 0:
        return "beats frozen", f"The trained blocks beat frozen random blocks{details}"
    if high < 0:
        text = "The trained blocks are worse than frozen random blocks, but by no more than the limit allows"
        return "within limit", text + details
    return "within limit", (
        "The trained blocks are not worse than frozen random blocks by more than the limit allows, but it is not shown that the "
        f"trained blocks are better{details}"
    )


def _interval(finding: Finding) -> str:
    if not finding.interval:
        return ""
    return f"; the {MARGIN} is {_margin(finding)}, {_estimate(finding)}; the limit is {_limit(finding)}{_why_level(finding)}"


def _why_level(finding: Finding) -> str:
    """Return a sentence with the number of the interim analysis. The text is empty for the first audit."""
    if finding.look < 2:
        return ""
    return f". The confidence level is that of interim analysis {finding.look}, because earlier audits judged other sets of seeds"


# Cause of an undecided comparison → sentences about it, without the final full stop.
CAUSES: Mapping[UndecidedCause, str] = MappingProxyType(
    {
        "too few seeds": f"At least {LEAST_SEEDS} seeds decide. Fix the number first; added seeds are judged more strictly",
        "seeds left out": "Seeds without a comparable control are left out, and the finding names them",
        "control unproven": "Only a control that the audit proves to be frozen decides the comparison",
        "control at chance": "The frozen control itself is at chance, so a margin over it does not show that depth helps",
        "control below shallow": (
            "The frozen control is worse than the control without blocks (shallow), and the margin over shallow does not confirm "
            "that over the frozen control"
        ),
        "depends on the length of training": (
            "The frozen control with twice the epochs (frozen_long) does not give the same answer, so the answer depends on the "
            "length of training. Longer runs of method and control would decide"
        ),
        "test set unknown": "Chance or the number of test samples is not recorded",
        "outlier": "One seed is far from the others, and the finding names it. Report its margin, and train more seeds",
        "several methods": (
            "The interval would decide this method alone, but not together with the other methods of the setting (Holm's procedure)"
        ),
        "replay on the other side": (
            "The seeds that the audit trained again on this machine are on the other side of the limit, so the recorded results of "
            "the other seeds decide nothing"
        ),
        "accuracy at chance": "The interval of the run's main metric contains chance",
    }
)


# The same for runs of a user-supplied loop, where the author's next step differs.
OWN_LOOP_CAUSES: Mapping[UndecidedCause, str] = MappingProxyType(
    {
        "too few seeds": (
            f"An interval needs at least {LEAST_SEEDS} seeds. Next, fix their number; for each, run the loop with "
            "`track(…, seed=…)`, with and without `control=True`, and repeat the audit"
        ),
        "control unproven": (
            "The audit cannot train the control of a user's loop again, so only a method decides: `fa-registry new method NAME`"
        ),
        "test set unknown": "Chance and the number of test samples are not recorded; pass `test_labels=` to `track`",
    }
)


def _undecided(finding: Finding, runs: Sequence[RunAudit]) -> tuple[str, str]:
    estimate = f"{_estimate(finding)}; " if finding.interval else ""
    seeds = "" if finding.interval else " of one seed"
    causes = {**CAUSES, **OWN_LOOP_CAUSES} if runs[0].record.spec.is_tracked else CAUSES
    reasons = [causes[cause] for cause in finding.undecided if cause in causes] or [_seeds_advice(finding)]
    text = (
        f"Undecided: the {MARGIN} over frozen random blocks{seeds} is {_margin(finding)} "
        f"({estimate}required: {_limit(finding)}){_why_level(finding)}"
    )
    details = nearest_limit_text(runs, finding) + author_stated_runs(runs, DEPTH)
    return "undecided", ". ".join([text, *reasons]) + details


def _seeds_advice(finding: Finding) -> str:
    """Return a sentence about the number of seeds that would decide the margin."""
    low, high = seeds_needed(finding)
    if low is None:
        reason = (
            "the test set is too small" if error_of_test_set(finding) > HALF else "the mean is so close to the limit"
        )
        return f"Not even {num(MOST_SEEDS)} new seeds would decide, because {reason}"
    number = f"{low} to {high}" if high and high > low else f"{low}" if high else f"at least {low}"
    return (
        f"A new study of {number} new seeds would decide with {POWER:.0%} power at this mean; {finding.seeds} seeds show the "
        "spread only roughly. Fix the number first; added seeds are judged more strictly"
    )


def error_of_test_set(finding: Finding) -> float:
    """Return the share of the margin's variance that more seeds do not reduce; 0 if it is not known."""
    return finding.error_shares[1] if finding.error_shares else 0.0


def _stated(finding: Finding, runs: Sequence[RunAudit]) -> tuple[str, str]:
    headline = _judged(finding)
    side = "above" if headline.sign > 0 else "below"
    target, control_text = (
        f"a {headline.frozen_metric.label} stated by the author",
        "trained by fa_registry for each seed",
    )
    if finding.reference_run_id:
        target, control_text = (
            f"the {headline.symbol} of a frozen control that is not proven to be frozen",
            "proven to be frozen for each seed by the audit",
        )
    return "stated", (
        f"The {headline.symbol} of the trained blocks is {side} {target}; the margin is as large as {finding.rule} requires, with "
        "each seed judged separately. This does not show that the trained blocks beat frozen random blocks. A frozen control of "
        f"the same setting, {control_text}, would decide the comparison"
    )


def _last_block(finding: Finding, runs: Sequence[RunAudit]) -> tuple[str, str]:
    """Return (key, text) of the claim that the margin may come from the last block only."""
    return "last block", (
        f"The trained blocks beat frozen random blocks{_interval(finding)}. However, the last block learns from the exact "
        "gradient, so its training is possibly the only cause, and depth utility of the other blocks must not be claimed. The "
        f"control {CONTROL} by bp, which trains only the last block, would show the effect of the last block for each seed"
    )


@dataclass(frozen=True)
class Sampling:
    """Mean accuracy over seeds with the error of the test set; all values are fractions.

    Args:
        accuracy: The mean accuracy over seeds.
        samples: Number of test samples.
        over_samples: Wilson's interval of the mean accuracy for `samples` test samples.
    """

    accuracy: OverSeeds
    samples: int
    over_samples: tuple[float, float]

    @property
    def half(self) -> float:
        """Half the width of the interval over test samples, in percentage points."""
        return 50 * (self.over_samples[1] - self.over_samples[0])


def sampling(runs: Sequence[RunAudit]) -> Sampling | None:
    """Return the mean accuracy with its intervals over seeds and test samples.

    Return None if a run has no accuracy or did not record the size of its test set, or if the sizes differ.
    """
    accuracy = _accuracy(runs)
    sizes = {run.record.measurements.conventions.get(TEST_SAMPLES) for run in runs}
    size = sizes.pop() if len(sizes) == 1 else None
    if accuracy.n < accuracy.of or not accuracy.n or not size:
        return None
    wilson = wilson_interval(min(1.0, max(0.0, accuracy.mean.value)), size)
    return Sampling(accuracy, size, (wilson.low, wilson.high))


def sampled(runs: Sequence[RunAudit]) -> str:
    """Return the accuracy with its intervals as `. The accuracy is 93.1 %, …`, or "" if they are unknown."""
    estimate = sampling(runs)
    if estimate is None:
        return ""
    value = f". The {_headline(runs[0]).symbol} is {pct(estimate.accuracy.mean.value)}"
    samples = f"{estimate.samples:,} test samples"
    if interval := sample_interval([run.record for run in runs], _headline(runs[0]).name):
        return f"{value}, with a 95 % interval of {ci(interval)} over {estimate.accuracy.n} seeds and {samples}"
    interval = ci(estimate.over_samples)
    return f"{value}, for one seed, with a 95 % interval of {interval} from the sampling of {samples} only (Wilson)"


def nearest_limit_text(runs: Sequence[RunAudit], finding: Finding) -> str:
    """Return a warning if the margin is closer to its limit than the sampling error, or "" otherwise.

    The sampling error is half the width of Wilson's interval of the accuracy. If the sampling error is unknown, or the interval of
    the margin contains it, the text is empty.
    """
    estimate = None if finding.error_shares else sampling(runs)
    headline = _headline(runs[0])
    if estimate is None or finding.quantity != headline.margin or None in (finding.threshold, finding.observed.value):
        return ""
    distance = abs(finding.observed.value - finding.threshold)
    if distance >= estimate.half:
        return ""
    return (
        f". The {MARGIN} is only {distance:.1f} pp from the limit, but the sampling error of {estimate.samples:,} test samples is "
        f"± {estimate.half:.1f} pp of the {headline.symbol} (Wilson, 95 %). With another test set of this size, the margin "
        "might be on the other side of the limit"
    )


# State of a finding about depth → function that returns the key and the text of its claim.
TEXT: Mapping[str, Callable[[Finding, Sequence[RunAudit]], tuple[str, str]]] = MappingProxyType(
    {
        UNDERCUT: _undercut,
        AT_CHANCE: _at_chance,
        CLEARS: _cleared,
        "STATED": _stated,
        LAST_BLOCK: _last_block,
        UNDECIDED: _undecided,
    }
)
