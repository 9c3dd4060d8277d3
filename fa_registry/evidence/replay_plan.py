"""Choice of the runs that an audit replays completely, and the report of what it replayed.

To replay a run completely means to train its specification a second time, to the end. The choice decides what a verdict shows, so
an author must neither predict nor influence it:

1. Only runs that count in a verdict are candidates. The reader's nonce, which is random by default, orders the runs of a group.
2. One run of every group comes first, controls before methods, then the other frozen controls. Where the audit has another
   configuration than the training, no digest can agree and the replayed weights are judged; there all other runs follow.
3. In this order, every run is taken whose estimated CPU time fits into what is left of the budget. The estimate is the time of the
   first steps as the audit measured them, never a number that the run recorded.
4. A run that does not fit, but kept states of its training, has the epochs after these states replayed. If something is left
   after that, the first run that does not fit gets it and stops after its last epoch within the limit.
5. A chosen run that turns out not to count is replaced: the choice is made again with what is left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fa_registry.errors import pluralise
from fa_registry.evidence.exclusions import RemeasuredRun
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.replay_from_seed import ALL, AUTO
from fa_registry.evidence.replay_record import ranked
from fa_registry.evidence.replayer import ReplayResult
from fa_registry.jsonio import describe_value
from fa_registry.metrics import headline_of
from fa_registry.protocol.grouping import one_a_seed
from fa_registry.protocol.paired_runs import shortened
from fa_registry.protocol.replay_summary import WHOLE
from fa_registry.protocol.verdict import is_intact
from fa_registry.records import Check, Reading, Replay, ReplayedRun, RunRecord, RunSpec, UnfittedRun
from fa_registry.studies.progress import duration
from fa_registry.tracking import schema

SECONDS = {"s": 1, "m": 60, "h": 3600}
BUDGET = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h)?")
# A whole replay stops at its next epoch after this factor times the estimate, plus a constant: the CPU time of a step depends on
# what else the processor does.
TOLERANCE, LEAST_SECONDS = 2.0, 10.0
RESERVE = 1.25  # factor on the estimate in the budget that a page proposes


@dataclass(frozen=True)
class PlannedReplay:
    """One run to replay, with the CPU time in seconds after which its replay ends at the next epoch."""

    cpu_limit: float = math.inf
    fits: bool = True
    """whether the whole training is expected to fit into the limit"""


@dataclass(frozen=True)
class Candidate:
    """One run that would be replayed without a limit, with its place in the order.

    Attributes:
        index: place of the run in its group, by the nonce; 0 is the first.
        replay: the replay of the first steps, which estimates the cost of the rest.
    """

    record: RunRecord
    index: int
    rank: str
    replay: ReplayResult

    @property
    def seconds(self) -> float:
        """Estimated CPU time of the complete replay."""
        return self.replay.epoch_seconds * self.replay.epochs

    @property
    def kept_seconds(self) -> float:
        """Estimated CPU time of the epochs after the kept states; 0 if the run kept no state."""
        return self.replay.epoch_seconds * len(self.record.provenance.get(schema.KEPT_STATES, ()))

    @property
    def order(self) -> tuple[bool, bool, int, str]:
        return (self.index > 0, self.record.spec.control != "frozen", self.index, self.rank)


def asked_budget(value: str | float) -> float:
    """Return the seconds of a budget of CPU time, such as `90s`, `10m`, `2h` or a number of seconds.

    Raises:
        ValueError: if `value` is no such time, or not above 0.
    """
    match = BUDGET.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = float(match[1]) * SECONDS[match[2] or "s"] if match else value
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        raise ValueError(f"expected a CPU time above 0, such as 90s, 10m or 2h, found {describe_value(value)}")
    return float(seconds)


def is_replayable(spec: RunSpec) -> bool:
    """Return whether a specification determines the training.

    It does not for an adopted run and for a run of a user-supplied loop.
    """
    return not spec.weights and not spec.is_tracked


def planned_replays(outcomes: Sequence[RemeasuredRun], measuring: RemeasureOptions) -> dict[str, PlannedReplay]:
    """Return the runs to replay completely, run id → limit.

    The docstring of the module describes the choice.

    Args:
        outcomes: the recomputed runs, oldest first, with the complete replays that were made so far.
    """
    if measuring.trust_logged or measuring.replay not in (AUTO, ALL):
        return {}
    replayed = {outcome.run.run_id for outcome in outcomes if outcome.whole}
    waiting = [each for each in _candidates(outcomes, measuring) if each.record.run_id not in replayed]
    if measuring.replay == ALL:
        return {each.record.run_id: PlannedReplay() for each in waiting}
    left = asked_budget(measuring.replay_budget) - spent_seconds(outcomes)
    planned: dict[str, PlannedReplay] = {}
    for each in waiting:
        if each.seconds <= left:
            left -= each.seconds
            planned[each.record.run_id] = PlannedReplay(TOLERANCE * each.seconds + LEAST_SECONDS)
        elif each.kept_seconds and each.replay.epoch_seconds <= left:
            planned[each.record.run_id] = PlannedReplay(min(left, TOLERANCE * each.kept_seconds), fits=False)
            left -= min(left, each.kept_seconds)
    had_partial = any(outcome.whole and not outcome.whole.is_complete for outcome in outcomes)
    partial = next((each for each in waiting if each.record.run_id not in planned), None)
    if partial and not had_partial and partial.replay.epoch_seconds <= left:
        planned[partial.record.run_id] = PlannedReplay(left, fits=False)
    return planned


def spent_seconds(outcomes: Iterable[RemeasuredRun]) -> float:
    """Return the CPU time of all complete replays in seconds."""
    return sum(outcome.whole.cpu_seconds for outcome in outcomes if outcome.whole)


def unfitted_runs(outcomes: Sequence[RemeasuredRun], measuring: RemeasureOptions) -> tuple[list[UnfittedRun], float]:
    """Return the runs that the budget left out, and a budget in seconds that holds all runs.

    These are the runs that `replay_plan` would replay without a limit.
    """
    if measuring.trust_logged or measuring.replay != AUTO:
        return [], 0.0
    asked = _candidates(outcomes, measuring)
    complete = {outcome.run.run_id for outcome in outcomes if outcome.whole and outcome.whole.is_complete}
    unfitted = [
        UnfittedRun(each.record.run_id, each.record.spec.label, each.record.setting, rounded_up(each.seconds))
        for each in asked
        if each.record.run_id not in complete
    ]
    needed = RESERVE * sum(each.seconds for each in asked)
    return unfitted, rounded_up(needed) if unfitted else 0.0


def rounded_up(seconds: float) -> float:
    """Return a time with two significant digits that is not shorter."""
    if seconds <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return round(math.ceil(seconds / unit - 1e-9) * unit, 9)


def _candidates(outcomes: Sequence[RemeasuredRun], measuring: RemeasureOptions) -> list[Candidate]:
    """Return the runs that would be replayed without a limit, in the order of the plan."""
    groups: dict[str, list[RemeasuredRun]] = {}
    for outcome in outcomes:
        record = outcome.record
        is_finished = record and outcome.first_steps and record.status in schema.FINISHED_STATUSES
        if is_finished and is_replayable(record.spec) and is_intact(record):
            groups.setdefault(record.spec.seeds, []).append(outcome)
    found = (each for group in groups.values() for each in _of_group(group, measuring))
    return sorted(found, key=lambda candidate: candidate.order)


def _of_group(group: Sequence[RemeasuredRun], measuring: RemeasureOptions) -> Iterator[Candidate]:
    """Yield the wanted runs of one group in the order of the nonce, replayed runs first."""
    counted = group if measuring.replay == ALL else one_a_seed(group, lambda outcome: outcome.record).values()

    def place(outcome: RemeasuredRun) -> tuple[bool, str]:
        return (outcome.whole is None, ranked(measuring.nonce, outcome.run.run_id))

    for index, outcome in enumerate(sorted(counted, key=place)):
        is_wanted = index == 0 or outcome.record.spec.control == "frozen" or not outcome.first_steps.exact
        if is_wanted or measuring.replay == ALL:
            yield Candidate(outcome.record, index, place(outcome)[1], outcome.first_steps)


def report_replay(measuring: RemeasureOptions, results: Sequence[RemeasuredRun]) -> Replay:
    """Return the nonce, the budget, and the result of each complete replay."""
    runs = []
    for outcome in results:
        if outcome.whole:
            checks = outcome.record.integrity.checks if outcome.record else ()
            check = next((one for one in checks if one.subject == WHOLE), Check(WHOLE, "not possible"))
            runs.append(ReplayedRun(outcome.run.run_id, check.outcome, check.detail))
    unfitted, needed = unfitted_runs(results, measuring)
    budget = asked_budget(measuring.replay_budget) if measuring.replay == AUTO else None
    return Replay(
        measuring.nonce, str(measuring.replay), tuple(runs), budget=budget, unfitted=tuple(unfitted), needed=needed
    )


def replay_remarks(results: Sequence[RemeasuredRun], replay: Replay) -> Iterator[str]:
    """Yield the report's remarks on the replays.

    They state the share of the steps, what did not fit, and which replays are judged.
    """
    counts = [(outcome.whole or outcome.first_steps) for outcome in results if outcome.whole or outcome.first_steps]
    replays = [each for each in counts if each.steps]
    if replays:
        steps, total = sum(each.steps for each in replays), sum(each.all_steps for each in replays)
        yield (
            f"In {pluralise(len(replays), 'run')}, training steps were replayed from the specification: {steps} of their "
            f"{total} steps ({100 * steps / total:.1f} %)."
        )
    if replay.unfitted:
        longest = {
            each.method: f"{each.method}: one run takes about {duration(each.cpu_seconds)}" for each in replay.unfitted
        }
        yield (
            f"The replay budget of {duration(replay.budget)} of CPU time does not hold the complete replay of "
            f"{pluralise(len(replay.unfitted), 'run')} ({'; '.join(shortened(list(longest.values())))}); "
            f"--replay-budget {budget_text(replay.needed)} holds all that the audit would replay."
        )
    judged = [outcome.record for outcome in results if outcome.record and outcome.record.recorded_result]
    if judged:
        yield (
            f"This machine has another configuration than the training of {pluralise(len(judged), 'run')}: the audit trained "
            f"them again completely and judges the result. Main metric of the second training, and as recorded: "
            f"{'; '.join(shortened([_judged_text(record) for record in judged]))}."
        )


def budget_text(seconds: float) -> str:
    """Return a CPU time, rounded up, as a user types it: `90s`, `10m` or `2h`."""
    for unit, size in (("s", 1), ("m", 60)):
        if seconds <= 90 * size:
            return f"{math.ceil(seconds / size)}{unit}"
    return f"{math.ceil(seconds / 3600)}h"


def _judged_text(record: RunRecord) -> str:
    own = record.measurements.scalars.get(headline_of(record.measurements).name)
    return f"{record.spec.label}, seed {record.spec.seed}: {_value(own)}, {_value(record.recorded_result)}"


def _value(reading: Reading | None) -> str:
    return "N/A" if reading is None or reading.value is None else f"{reading.value:.4f}"
