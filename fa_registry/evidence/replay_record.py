"""Nonce of the reader, and the data of a run with which a replay is compared."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.replay import RecordedEpochs
from fa_registry.evidence.replay_from_seed import ALL
from fa_registry.jsonio import describe_value
from fa_registry.metrics import FIDELITY, Headline, declaration, declared_fields
from fa_registry.protocol.integrity import ONLY_IN_TRAINING, compare, difference_text
from fa_registry.records import Check, Measurements, Reading, RunRecord
from fa_registry.tracking import schema
from fa_registry.tracking.base import Tracker
from fa_registry.tracking.reader import read_provenance
from fa_registry.tracking.series_parquet import SCALAR_SITE, SeriesRow, read_rows

if TYPE_CHECKING:
    from fa_registry.training.run_setup import RunSetup

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


def ranked(nonce: str, *names: object) -> str:
    """Return a pseudorandom sort key: the SHA-256 of the nonce and the names."""
    return hashlib.sha256(" ".join(map(str, (nonce, *names))).encode()).hexdigest()


def recorded_epochs(
    tracker: Tracker,
    record: RunRecord,
    measuring: RemeasureOptions,
    epochs_run: int,
    headline: Headline,
    is_full_replay: bool,
) -> RecordedEpochs:
    """Return the recorded data of the first `epochs_run` epochs of a run, for comparison with a replay.

    Args:
        headline: main metric of the run's task. It is not read from the run: the run could name a metric that it does not have,
            and nothing would be compared.
        is_full_replay: whether the run is replayed completely. Measurements are recomputed only then.
    """
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
        missing = [
            name for name in (*schema.SITE_METRICS, *FIDELITY) if name in measured.sites and name not in logged.sites
        ]
        differences += [f"{name}: not logged" for name in missing]
        # the rows of a series contain no scores of single samples
        sides = {"conventions": conventions, "sample_scores": {}}
        pair = (dataclasses.replace(measurements, **sides) for measurements in (logged, measured))
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
