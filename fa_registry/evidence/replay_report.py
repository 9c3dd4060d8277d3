"""What the replays of an audit were, for its report: the record, and remarks for the reader."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fa_registry.errors import pluralise
from fa_registry.evidence.exclusions import RemeasuredRun
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.replay_from_seed import AUTO
from fa_registry.evidence.replay_plan import asked_budget, unfitted_runs
from fa_registry.metrics import headline_of
from fa_registry.protocol.paired_runs import shortened
from fa_registry.protocol.replay_summary import WHOLE
from fa_registry.records import Check, Reading, Replay, ReplayedRun, RunRecord
from fa_registry.studies.progress import duration


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
