"""Claims about depth: whether trained blocks beat frozen ones, and if that is open, how many seeds would decide it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.claims_words import by_author, claim, finding_with, with_state
from fa_registry.reporting.filters import between, compact, num, pp
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.quantities import SUBJECTS
from fa_registry.statistics.samples import quantile

MOST_SEEDS = 1000  # beyond it the mean lies on the limit, for every purpose
DEPTH = SUBJECTS["depth"]


def depth_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """What the comparison with the frozen control allows to say."""
    undercut = with_state(runs, "UNDERCUT", quantities=DEPTH)
    if undercut:
        yield claim("not", _undercut(undercut[0]) + _interval(undercut) + by_author(undercut, DEPTH), runs, undercut)
    clears = [run for run in with_state(runs, "CLEARS", quantities=DEPTH) if _over_seeds(run) and _is_whole(run)]
    if clears:
        yield claim("may", f"The trained blocks beat frozen random ones{_interval(clears)}", runs, clears)
    stated = with_state(runs, "STATED", quantities=DEPTH)
    if stated:
        yield claim("open", _stated(finding_with(stated[0], "STATED", quantities=DEPTH)), runs, stated)
    for state, what in (("UNDECIDED", _undecided), ("PROVISIONAL", _provisional)):
        touched = with_state(runs, state, quantities=DEPTH)
        if touched:
            words = what(finding_with(touched[0], state, quantities=DEPTH)) + by_author(touched, DEPTH)
            yield claim("open", words, runs, touched)


def seeds_needed(finding: Finding) -> int | None:
    """How many seeds would put the whole interval on one side of the limit, were mean and spread to stay as they are.

    None where that cannot be said: without an interval, or with more than MOST_SEEDS.
    """
    if finding.interval is None or finding.threshold is None or finding.observed.value is None or finding.seeds < 2:
        return None
    half = (finding.interval[1] - finding.interval[0]) / 2
    spread = half * math.sqrt(finding.seeds) / quantile(finding.seeds - 1)
    distance = abs(finding.observed.value - finding.threshold)
    enough = (n for n in range(finding.seeds + 1, MOST_SEEDS + 1) if quantile(n - 1) * spread / math.sqrt(n) < distance)
    return next(enough, None)


def _undercut(run: RunAudit) -> str:
    """Below the limit is not always below the frozen blocks: that is where the interval lies about 0."""
    low, high = finding_with(run, "UNDERCUT", quantities=DEPTH).interval or (-math.inf, math.inf)
    if high < 0:
        return "The trained blocks do worse than frozen random ones: training them may not be credited"
    if low > 0:
        return (
            "The trained blocks beat frozen random ones, but by less than the limit: their training may not be credited"
        )
    return "The trained blocks are not shown to beat frozen random ones: training them may not be credited"


def _is_whole(run: RunAudit) -> bool:
    """A run that diverged or broke off supports no claim, whatever its last accuracy is."""
    return run.record.status == "complete"


def _over_seeds(run: RunAudit) -> bool:
    return finding_with(run, "CLEARS", quantities=DEPTH).interval is not None


def _interval(runs: Sequence[RunAudit]) -> str:
    """The margin with its interval, where the rule judges one over seeds."""
    finding = next((one for one in runs[0].findings if one.quantity in DEPTH and one.interval), None)
    if finding is None:
        return ""
    return (
        f"; the margin is {pp(finding.observed.value)}, 95 % interval {between(finding.interval, 'pp')} over "
        f"{finding.seeds} seeds, the limit {compact(finding.threshold)} pp"
    )


def _undecided(finding: Finding) -> str:
    needed = seeds_needed(finding)
    if finding.stated:  # more seeds do not narrow what one stated number leaves open
        how = "Frozen controls trained here, one a seed, would pair it"
    elif needed is None:
        how = f"At this mean and spread not even {num(MOST_SEEDS)} seeds would decide it: the mean lies too near the limit"
    else:
        how = f"More seeds would decide it: at this mean and spread about {needed} would put it on one side"
    return (
        f"Whether the trained blocks beat frozen random ones is undecided: the margin is {pp(finding.observed.value)}, and "
        f"its 95 % interval, {between(finding.interval, 'pp')} over {finding.seeds} seeds, holds the limit of "
        f"{compact(finding.threshold)} pp. {how}"
    )


def _stated(finding: Finding) -> str:
    """Above a figure that nobody here measured: it opens a question and settles none."""
    seen = (
        f"by {pp(finding.observed.value)}, 95 % interval {between(finding.interval, 'pp')} over {finding.seeds} seeds, "
        "not paired by seed"
        if finding.interval
        else f"by what {finding.rule} asks for, each seed judged by itself"
    )
    return (
        f"The trained blocks stand above a frozen accuracy stated by the author, {seen}: that they beat frozen random ones is "
        "not shown. A frozen control of the same setting, trained here for each seed, would decide it"
    )


def _provisional(finding: Finding) -> str:
    return (
        f"Whether the trained blocks beat frozen random ones is provisional: the margin of one seed, "
        f"{pp(finding.observed.value)} where {compact(finding.threshold)} pp are asked for, has no interval. A second seed "
        "with its frozen control gives a first one; three are customary"
    )
