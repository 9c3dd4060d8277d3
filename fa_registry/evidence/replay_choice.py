"""Random choice of the runs that an audit replays completely, and the data to compare with a replay.

To replay a run completely means to train its specification a second time, to the end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_registry.errors import RegistryError, pluralise
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.replay import RecordedEpochs
from fa_registry.evidence.replay_from_seed import ALL, AUTO
from fa_registry.jsonio import describe_value
from fa_registry.metrics import Headline, declaration, declared_fields
from fa_registry.protocol.grouping import one_a_seed
from fa_registry.protocol.integrity import ONLY_IN_TRAINING, compare, difference_text
from fa_registry.protocol.replay_summary import WHOLE
from fa_registry.protocol.verdict import is_intact
from fa_registry.records import Check, Measurements, Reading, Replay, ReplayedRun, RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import read_provenance, read_spec
from fa_registry.tracking.series_parquet import SCALAR_SITE, SeriesRow, read_rows

if TYPE_CHECKING:
    from fa_registry.evidence.exclusions import RemeasuredRun
    from fa_registry.training.run_setup import RunSetup

LOG = logging.getLogger(__name__)
NONCE = re.compile(r"[0-9a-fA-F]{1,64}")
ROWS = 5  # number of epochs of a completely replayed run whose measurements are recomputed with `replay="auto"`


def drawn_nonce() -> str:
    """Return 64 random bits as hexadecimal digits, so authors cannot predict which runs are replayed."""
    return secrets.token_hex(8)


def asked_nonce(typed: str) -> str:
    """Return the nonce that the user typed, or a random nonce if `typed` is empty.

    Raises:
        ValueError: `typed` is not a hexadecimal number of 1 to 64 digits.
    """
    if typed and not NONCE.fullmatch(typed):
        raise ValueError(
            f"expected 1 to 64 hexadecimal digits, e.g. the nonce of an earlier audit, found {typed[:80]!r}"
        )
    return typed.lower() or drawn_nonce()


def with_chosen(tracker: Tracker, runs: Sequence[StoredRun], measuring: RemeasureOptions) -> RemeasureOptions:
    """Choose the runs to replay completely, and return the options with these runs and with the nonce.

    The nonce determines the random choice and is logged. If the runs were chosen before, `measuring` is returned unchanged.
    """
    if measuring.whole is not None:
        return measuring
    measuring = dataclasses.replace(measuring, nonce=asked_nonce(measuring.nonce))
    selected_ids = chosen_runs(tracker, runs, measuring)
    if selected_ids:
        LOG.info(
            "%s chosen to be trained again completely; to choose the same runs in another audit, use --nonce %s",
            pluralise(len(selected_ids), "run"),
            measuring.nonce,
        )
    return dataclasses.replace(measuring, whole=selected_ids)


def chosen_runs(tracker: Tracker, runs: Sequence[StoredRun], measuring: RemeasureOptions) -> frozenset[str]:
    """Return the ids of the runs that the audit replays completely.

    With `replay="all"`, the audit replays all runs. With `replay="auto"`, the audit replays one run per group and all frozen
    controls. Among several runs of a seed, only the newest is a candidate, because the others do not count. Adopted runs and
    runs of user-supplied loops are never replayed. With any other value, or if `trust_logged` is set, the result is empty.

    Args:
        runs: the runs of the audit, oldest first.
    """
    if measuring.trust_logged or measuring.replay not in (AUTO, ALL):
        return frozenset()
    read = ((run.run_id, _spec(tracker, run)) for run in runs)
    specs = {run_id: spec for run_id, spec in read if spec and _is_replayable(spec)}
    if measuring.replay == ALL:
        return frozenset(specs)
    newest = {(spec.seeds, spec.seed): run_id for run_id, spec in specs.items()}
    return _drawn({run_id: specs[run_id] for run_id in newest.values()}, measuring.nonce)


def further_runs(records: Sequence[RunRecord], measuring: RemeasureOptions) -> frozenset[str]:
    """Return the ids of further runs to replay, because a chosen run does not count in the verdict.

    A run may be the newest of its seed and not count, for example because its files were changed. The result contains frozen
    controls that count and one run of every group of which no run that counts was chosen.

    Args:
        records: the recomputed runs, oldest first.
    """
    if measuring.trust_logged or measuring.replay != AUTO:
        return frozenset()
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        if _is_replayable(record.spec) and is_intact(record) and record.status in schema.FINISHED_STATUSES:
            groups.setdefault(record.spec.seeds, []).append(record)
    counted = [record for group in groups.values() for record in one_a_seed(group, lambda record: record).values()]
    return _drawn({record.run_id: record.spec for record in counted}, measuring.nonce, measuring.whole or frozenset())


def _is_replayable(spec: RunSpec) -> bool:
    return not spec.weights and not spec.is_tracked


def _drawn(counted: Mapping[str, RunSpec], nonce: str, already: Set[str] = frozenset()) -> frozenset[str]:
    """Return all frozen controls and one pseudorandom run of each group.

    Runs in `already` are omitted, and so are groups that have such a run.
    """
    first: dict[str, str] = {}
    for run_id in sorted(counted, key=lambda run_id: (run_id not in already, ranked(nonce, run_id))):
        first.setdefault(counted[run_id].seeds, run_id)
    frozen = (run_id for run_id, spec in counted.items() if spec.control == "frozen")
    return frozenset(first.values()).union(frozen) - already


def ranked(nonce: str, *names: object) -> str:
    """Return a pseudorandom sort key: the SHA-256 of the nonce and the names."""
    return hashlib.sha256(" ".join(map(str, (nonce, *names))).encode()).hexdigest()


def recorded_epochs(
    tracker: Tracker, record: RunRecord, measuring: RemeasureOptions, epochs_run: int, headline: Headline
) -> RecordedEpochs:
    """Return the recorded data of the first `epochs_run` epochs of a run, for comparison with a replay.

    Args:
        headline: main metric of the run's task. It is not read from the run: the run could name a metric that it does not have,
            and nothing would be compared.
    """
    is_full_replay = record.run_id in (measuring.whole or ())
    provenance = read_provenance(tracker.artifact(record.run_id, schema.PROVENANCE))
    order = lambda epoch: ranked(measuring.nonce, record.run_id, epoch)  # noqa: E731
    count = 0 if not is_full_replay else epochs_run + 1 if measuring.replay == ALL else ROWS
    rows = sorted(range(epochs_run + 1), key=order)[:count]
    row_differs = RecordedEpochs.row_differs
    if is_full_replay:
        logged = logged_rows(read_rows(tracker.artifact(record.run_id, schema.SERIES)))
        row_differs = partial(_differences, logged, record.measurements.conventions)
    states = {}
    for epoch in sorted(provenance.get(schema.KEPT_STATES, ()), key=order):
        names = schema.kept_state(epoch), schema.after_kept_state(epoch)
        paths = [tracker.artifact(record.run_id, name) for name in names if name in record.digests]
        if len(paths) == len(names) and all(paths) and 0 < epoch < epochs_run:
            states[epoch] = (paths[0], record.digests[names[0]], paths[1], record.digests[names[1]])
    return RecordedEpochs(
        tuple(provenance.get(schema.EPOCH_CHAIN, ())),
        row_differs,
        frozenset(rows),
        states,
        record.measurements.scalars.get(headline.name),
        record.measurements.conventions,
        {epoch: int(order(epoch)[-8:], 16) for epoch in rows if epoch < epochs_run},
    )


def fact_checks(record: RunRecord, setup: RunSetup, exact: bool) -> Iterator[Check]:
    """Yield a failed check for each recorded fact that differs from the run's specification.

    Both facts decide what the audit compares: the main metric is compared and judged, and only runs with the same digest of the
    data must have equal weights.

    Args:
        exact: whether this machine has the run's configuration. On another machine, the data may have other bits.
    """
    recorded, expected = declared_fields(record.measurements.conventions), declaration(setup.task.headline)
    if differing := [name for name in sorted({*recorded, *expected}) if recorded.get(name) != expected.get(name)]:
        values = {name: (describe_value(recorded.get(name)), describe_value(expected.get(name))) for name in differing}
        texts = (f"{name}: the run recorded {found}, its task {own}" for name, (found, own) in values.items())
        yield Check("main metric", "differs", "; ".join(texts))
    digest = record.provenance.get("dataset_digest", "")
    if exact and digest != setup.splits.digest:
        text = f"the run recorded the digest {describe_value(digest)}; the digest of the data set is {setup.splits.digest!r}"
        yield Check("data digest", "differs", text)


def replay_remark(results: Sequence[RemeasuredRun]) -> Iterator[str]:
    """Yield the report's remark on the number of replayed training steps, if any step was replayed."""
    replays = [outcome.redrawn for outcome in results if outcome.redrawn and outcome.redrawn.steps]
    if replays:
        steps, total = sum(replay.steps for replay in replays), sum(replay.of for replay in replays)
        yield (
            f"In {pluralise(len(replays), 'run')}, training steps were replayed from the specification: {steps} of their "
            f"{total} steps ({100 * steps / total:.1f} %)."
        )


def report_replay(measuring: RemeasureOptions, results: Sequence[RemeasuredRun]) -> Replay:
    """Return the nonce and the result of each completely replayed run, for the report."""
    runs = []
    for outcome in results:
        if outcome.chosen:
            checks = outcome.record.integrity.checks if outcome.record else ()
            check = next((one for one in checks if one.subject == WHOLE), Check(WHOLE, "not possible"))
            runs.append(ReplayedRun(outcome.run.run_id, check.outcome, check.detail))
    return Replay(measuring.nonce, str(measuring.replay), tuple(runs))


def _differences(
    logged_by_epoch: Mapping[int, Measurements], conventions: Mapping[str, Any], epoch: int, measured: Measurements
) -> str:
    """Return the differences between recomputed and logged metrics at one epoch; empty if there are none.

    The recomputed metrics `measured` are all metrics or only the losses.
    """
    logged = logged_by_epoch.get(epoch, Measurements({}, {}))
    losses = {name: reading for name, reading in measured.scalars.items() if name in ONLY_IN_TRAINING}
    differences = [
        f"{name}: logged {_text(logged.scalars.get(name))}, recomputed {_text(reading)}"
        for name, reading in losses.items()
        if logged.scalars.get(name) != reading
    ]
    if measured.sites:
        missing = [name for name in schema.SITE_METRICS if name in measured.sites and name not in logged.sites]
        differences += [f"{name}: not logged" for name in missing]
        pair = (dataclasses.replace(measurements, conventions=conventions) for measurements in (logged, measured))
        differences += difference_text(compare(*pair).differences)
    return "; ".join(differences)


def logged_rows(rows: Iterable[SeriesRow]) -> Mapping[int, Measurements]:
    """Return the logged metrics of a run by epoch.

    The rows of the run's series are (epoch, metric, site, value, reason, kind).
    """
    sites: dict[int, dict[str, dict[int, Reading]]] = {}
    scalars: dict[int, dict[str, Reading]] = {}
    for epoch, metric, site, value, reason, kind in rows:
        reading = Reading(value, reason, kind)
        if site == SCALAR_SITE:
            scalars.setdefault(epoch, {})[metric] = reading
        else:
            sites.setdefault(epoch, {}).setdefault(metric, {})[site] = reading
    ordered = {
        epoch: {name: tuple(values[site] for site in sorted(values)) for name, values in metrics.items()}
        for epoch, metrics in sites.items()
    }
    return {epoch: Measurements(ordered.get(epoch, {}), scalars.get(epoch, {})) for epoch in sites | scalars}


def _text(reading: Reading | None) -> str:
    return "nothing" if reading is None else repr(reading.value) if reading.value is not None else reading.reason


def _spec(tracker: Tracker, run: StoredRun) -> RunSpec | None:
    try:
        path: Path | None = tracker.artifact(run.run_id, schema.SPEC)
        return read_spec(path) if path else None
    except (RegistryError, OSError):
        return None
