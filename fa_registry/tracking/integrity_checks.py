"""Comparison of a run's recorded files with each other and with the store's tables.

The tables are only an index and prove nothing, because every user with access to the database can edit tags, parameters and
metrics. The recorded files are spec.json, series.parquet, measurements.json and provenance.json. The run contains their digests
(docs/decisions/08).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fa_registry.errors import PluginError, UnknownName
from fa_registry.metrics import REFERENCE_CHECK
from fa_registry.records import NOT_FINITE, Check, Measurements, RunSpec, objection_in
from fa_registry.tracking import schema
from fa_registry.tracking.base import Point, StoredRun, Tracker
from fa_registry.tracking.series_parquet import SeriesRow, points

FILES, TABLES = "files", "tables"  # subjects of a Check
SHOWN = 5  # differences listed in a message; the others are counted
WATCHED = ("loss_train", "penalty", "h_norm", "g_norm")  # metrics that training.loop.has_diverged checks


@dataclass(frozen=True)
class SealedRun:
    """Contents of the recorded files of a finished run.

    `spec` and `measurements` are decoded. `source` is the content of spec.json as written.
    """

    spec: RunSpec
    source: Mapping[str, Any]
    provenance: Mapping[str, Any]
    measurements: Measurements
    rows: Sequence[SeriesRow]

    @property
    def complete(self) -> bool:
        """Whether provenance.json records how the run ended. Releases before 0.3 did not record this."""
        return "status" in self.provenance

    @property
    def charts(self) -> tuple[str, ...]:
        """Names of the third-party metrics that have charts. Runs of older releases have none."""
        return tuple(self.provenance.get(schema.CHARTS, ()))

    @cached_property
    def points(self) -> Sequence[Point]:
        """Points that the tables should contain: some epochs, or every epoch in runs of older releases."""
        logged_epochs = schema.shown_epochs(self.spec.epochs, self.provenance.get("points", 0))
        return [
            point
            for point in points(self.rows, self.charts)
            if point.step in logged_epochs or point.step == self.epochs
        ]

    @cached_property  # used for every row
    def epochs(self) -> int:
        """Last measured epoch, or −1 if no epoch was measured.

        For an adopted run, this is the epoch that the user stated.
        """
        return max((row[0] for row in self.rows), default=-1)

    @cached_property
    def status(self) -> str:
        """Status of the run, computed from its measurements only."""
        if self.epochs < 0:
            return "failed"
        if any(row[0] == self.epochs and row[1] in WATCHED and row[5] == NOT_FINITE for row in self.rows):
            return "diverged"
        return "complete" if self.epochs == self.spec.epochs else schema.STOPPED_EARLY

    @property
    def setting(self) -> str:
        """Name of the setting, as recorded at the end of the run.

        If an older release did not record the name, it is computed from the specification.
        """
        if "setting" in self.provenance:
            return self.provenance["setting"]
        from fa_registry.training.specs import setting_label  # imports torch, which newer runs do not need

        try:
            return setting_label(self.spec)
        except (UnknownName, PluginError):  # the plug-in is not installed here, or broken
            return f"{self.spec.architecture} · {self.spec.dataset}"


def checks(sealed: SealedRun, run: StoredRun) -> tuple[Check, ...]:
    """Compare the recorded files with each other, and the tables with the files. Return both Checks."""
    tables = [*_tags(sealed, run.tags), *_params(sealed, run.params), *_last_values(sealed, run.metrics)]
    ending_text = f"{sealed.status} after epoch {sealed.epochs} of {sealed.spec.epochs}"
    return (
        check(
            FILES,
            list(_among_files(sealed)),
            f"spec, series, measurements and provenance describe the same run: {ending_text}",
        ),
        check(
            TABLES, tables, "status, method, study, parameters and last metrics in the store equal the recorded ones"
        ),
    )


def check(subject: str, differences: Sequence[str], agreement_text: str) -> Check:
    """Return a Check of FILES or TABLES with the agreement text, or with the first five differences."""
    if not differences:
        return Check(subject, "agrees", agreement_text)
    remaining = len(differences) - SHOWN
    remaining_text = [f"and {remaining} more ({len(differences)} in all)"] if remaining > 0 else []
    return Check(subject, "differs", "; ".join([*differences[:SHOWN], *remaining_text]))


def history_check(sealed: SealedRun, tracker: Tracker, run: StoredRun) -> Check:
    """Compare all points in the run's metric tables with the recorded series, one query per metric."""
    expected = {(point.key, point.step): point.value for point in sealed.points}
    keys = {key for key, _ in expected} | {key for key in run.metrics if _is_ours(key, sealed.charts)}
    differences, stored_positions = [], set()
    for point in tracker.history(run.run_id, sorted(keys)):
        position = point.key, point.step
        stored_positions.add(position)
        if not _is_logged(point.value, expected.get(position)):
            differences.append(
                _differs(f"metric {point.key} at epoch {point.step}", point.value, expected.get(position))
            )
    differences += [
        _differs(f"metric {key} at epoch {step}", "missing", expected[key, step])
        for key, step in sorted(expected.keys() - stored_positions)
    ]
    return check(
        TABLES, differences, f"{len(expected)} points of {len(keys)} metrics equal those of the recorded series"
    )


def _among_files(sealed: SealedRun) -> Iterator[str]:
    provenance, spec = sealed.provenance, sealed.spec
    epochs_run = 0 if spec.weights else sealed.epochs  # an adopted run was not trained here
    if provenance.get("epochs_run", epochs_run) != epochs_run:
        recorded = provenance["epochs_run"]
        yield f"{schema.PROVENANCE} contains the number of epochs {recorded}, but {schema.SERIES} ends at epoch {epochs_run}"
    if provenance.get("status", sealed.status) != sealed.status:
        ending = f"ends at epoch {sealed.epochs} of {spec.epochs} with finite values"
        ending = f"diverges at epoch {sealed.epochs}" if sealed.status == "diverged" else ending
        yield f"{schema.PROVENANCE} contains the status {provenance['status']}, but {schema.SERIES} {ending}"
    if sealed.epochs > spec.epochs:
        yield f"{schema.SERIES} ends at epoch {sealed.epochs}, but the number of epochs in {schema.SPEC} is {spec.epochs}"
    known_epochs = {row[0] for row in sealed.rows}
    missing = [] if spec.weights else [str(epoch) for epoch in range(sealed.epochs) if epoch not in known_epochs]
    if missing:
        yield f"{schema.SERIES} has no epoch {', '.join(missing[:SHOWN])}{' …' if len(missing) > SHOWN else ''}"
    # The final measurement uses more samples than the measurement of an epoch, so a value of the epoch may become N/A.
    is_withdrawn = bool(objection_in(sealed.measurements))
    for metric, site, value in (row[1:4] for row in sealed.rows if row[0] == sealed.epochs):
        final = _final_figure(sealed.measurements, metric, site)
        is_explained = metric == REFERENCE_CHECK or (is_withdrawn and final == (None,))
        if final is not None and final[0] != value and not is_explained:
            label = f"{metric}[{site}]" if site >= 0 else metric
            yield f"{schema.MEASUREMENTS} contains {label} = {final[0]!r}, but {schema.SERIES} ends with {value!r}"


def _final_figure(measurements: Measurements, metric: str, site: int) -> tuple[float | None] | None:
    if site < 0:
        reading = measurements.scalars.get(metric)
    else:
        row = measurements.sites.get(metric, ())
        reading = row[site] if site < len(row) else None
    return None if reading is None else (reading.value,)


def _tags(sealed: SealedRun, tags: Mapping[str, str]) -> Iterator[str]:
    expected = {schema.TAG_STATUS: sealed.status}
    expected |= {
        tag: sealed.provenance[name] for tag, name in schema.REPEATED_TAGS.items() if name in sealed.provenance
    }
    if sealed.complete:
        expected[schema.TAG_ADOPTED] = "true" if sealed.spec.weights else ""
    for tag, value in expected.items():
        if tags.get(tag, "") != value:
            yield _differs(f"tag {tag}", repr(tags.get(tag, "")), repr(value))


def _params(sealed: SealedRun, params: Mapping[str, str]) -> Iterator[str]:
    expected = schema.params(sealed.spec)
    for name in sorted(expected.keys() | {name for name in params if name.startswith(schema.PARAM)}):
        stored = params.get(name)
        if stored is None and not _names(sealed.source, name.removeprefix(schema.PARAM)):
            continue
        if stored != expected.get(name):
            yield _differs(f"parameter {name}", repr(stored), repr(expected.get(name)))


def _names(source: Mapping[str, Any], path: str) -> bool:
    first, _, remainder = path.partition("/")
    return first in source and (not remainder or remainder in source[first])


def _last_values(sealed: SealedRun, metrics: Mapping[str, float]) -> Iterator[str]:
    # points are in order of epochs, so the last point of each key remains
    expected = {point.key: point.value for point in sealed.points}
    for key in sorted(expected.keys() | {key for key in metrics if _is_ours(key, sealed.charts)}):
        is_in_both = key in metrics and key in expected
        # older releases had other metrics
        if not _is_logged(metrics.get(key), expected.get(key)) and (is_in_both or sealed.complete):
            yield _differs(f"metric {key}", metrics.get(key, "missing"), expected.get(key))


def _is_logged(stored: float | None, exact: float | None) -> bool:
    """Return whether a stored value equals the exact value or the rounded value."""
    return stored == exact or (stored is not None and exact is not None and stored == schema.shown(exact))


def _is_ours(key: str, extra_metrics: Sequence[str]) -> bool:
    """Return whether the training code of fa_registry writes this metric."""
    by_site = (*schema.SITE_KEYS.values(), *extra_metrics)
    return key in schema.scalar_metrics(extra_metrics).values() or key.partition(schema.SITE_MARK)[0] in by_site


def _differs(subject: str, stored: object, recorded: object) -> str:
    return f"{subject} is {stored} in the store, but the recorded files contain {'no value' if recorded is None else recorded}"
