"""Comparison of the runs of one specification.

Training on a CPU is deterministic. If the same code trained two runs of one specification on the same data and configuration, the
final weights are equal bit by bit. Otherwise at least one of the two runs is not the result of its specification.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from fa_registry.errors import RegistryError
from fa_registry.metrics import Headline, headline_of
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import REPETITIONS, Check, RunRecord
from fa_registry.records.configurations import differing_settings
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import compared_values, read_record, runs_by_spec
from fa_registry.tracking.run_state import RunState

SHOWN = 3
# Largest difference of the main metric of two runs that rounding explains. On another configuration, rounding separates two honest
# trainings as much as another seed does. On digits, the standard deviation over seeds is at most .026 of accuracy (dfa+pen). The
# limit has not been calibrated for any other main metric.
SAME_RESULT = 0.1


def with_repetitions(tracker: Tracker, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Add a check to each record whose specification has runs with different final weights.

    The whole store is searched, so that a run that the audit did not select is compared too. The check names these runs. The
    order of the records does not change.
    """
    identities = dict.fromkeys(record.spec.identity for record in records if not record.spec.weights)
    run_ids = {record.run_id for record in records}
    repeated = _repeated(tracker, compared_values(tracker, schema.TAG_SPEC, identities, run_ids))
    return [_checked(record, repeated.get(record.spec.identity, ())) for record in records]


def _repeated(tracker: Tracker, identities: Sequence[str]) -> Mapping[str, Sequence[RunRecord]]:
    """Return the finished runs, as recorded, of each specification that has several of them."""
    finished = {
        identity: [run for run in runs if RunState(run).is_finished]
        for identity, runs in runs_by_spec(tracker, identities).items()
    }
    return {identity: list(_recorded(tracker, runs)) for identity, runs in finished.items() if len(runs) > 1}


def _recorded(tracker: Tracker, runs: Sequence[StoredRun]) -> Iterator[RunRecord]:
    for run in runs:
        with contextlib.suppress(RegistryError):  # an unreadable run is no evidence about another run
            yield read_record(tracker, run)


def _checked(record: RunRecord, repetitions: Sequence[RunRecord]) -> RunRecord:
    # the record contains this machine's configuration, its recorded counterpart that of the training
    own = next((one for one in repetitions if one.run_id == record.run_id), None)
    check = own and repetition_check(own, [one for one in repetitions if one is not own])
    return dataclasses.replace(record, integrity=with_checks(record.integrity, [check])) if check else record


def repetition_check(run: RunRecord, others: Sequence[RunRecord]) -> Check | None:
    """Compare a run with other runs of its specification, all as recorded.

    Returns:
        None if all final weights are equal. "differs" if a run must have equal weights and has others. Otherwise "agrees" or
        "not possible", depending on whether rounding can explain the largest difference of the main metric.
    """
    others = [other for other in others if _result(other) != _result(run)]
    contradicting = [other for other in others if must_repeat_bits(run, other)]
    if contradicting:
        return _check("differs", run, contradicting, "the same code trained them on the same data and configuration")
    if not others:
        return None
    headline = headline_of(run.measurements)
    is_explained = all(_is_near(headline, run, other) for other in others)
    reason = "it is not known that equal bits are required"
    return _check("agrees" if is_explained else "not possible", run, others, reason)


def must_repeat_bits(first: RunRecord, second: RunRecord) -> bool:
    """Return whether two runs of one specification must have equal final weights.

    Both were trained on a CPU by this package, and code, data and configuration are recorded and equal.
    """
    configurations = [run.measurements.conventions for run in (first, second)]
    if any(
        OWN_LOOP in run.provenance or run.measurements.conventions.get("device") != "cpu" for run in (first, second)
    ):
        return False
    codes = [run.provenance.get("code", {}) for run in (first, second)]
    shared = codes[0].keys() & codes[1].keys()  # an entry that only one run has is no other code of the other run
    is_same_code = bool(shared) and all(codes[0][name] == codes[1][name] for name in shared)
    data = [run.provenance.get("dataset_digest", "") for run in (first, second)]
    return is_same_code and data[0] == data[1] != "" and not differing_settings(*configurations)


def _result(run: RunRecord) -> tuple[str, str]:
    """Return the status and the digest of the final weights; it is empty if some are not finite."""
    return run.status, run.provenance.get("final_weights", "")


def _is_near(headline: Headline, first: RunRecord, second: RunRecord) -> bool:
    values = [_main_metric(headline, run) for run in (first, second)]
    return None not in values and abs(values[0] - values[1]) <= SAME_RESULT


def _main_metric(headline: Headline, run: RunRecord) -> float | None:
    reading = run.measurements.scalars.get(headline.name)
    return reading.value if reading else None


def _check(outcome: str, run: RunRecord, others: Sequence[RunRecord], reason: str) -> Check:
    headline = headline_of(run.measurements)
    values = {one.run_id: _main_metric(headline, one) for one in (run, *others)}
    texts = {run_id: "N/A" if value is None else f"{value:.4f}" for run_id, value in values.items()}
    named = [f"run {other.run_id} ({headline.symbol} {texts[other.run_id]})" for other in others[:SHOWN]]
    named += [f"{len(others) - SHOWN} more runs"] if len(others) > SHOWN else []
    detail = (
        f"this run ({headline.symbol} {texts[run.run_id]}) and {', '.join(named)} have the same specification but different "
        f"final weights; {reason}"
    )
    return Check(REPETITIONS, outcome, detail, others=tuple(other.run_id for other in others))
