"""Comparison of a run's recorded files with each other and with the store's tables.

The tables are only an index and prove nothing, because every user with access to the database can edit tags, parameters and
metrics. The recorded files are spec.json, series.parquet, measurements.json and provenance.json. The run contains their digests
(docs/decisions/08).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import join_names
from fa_registry.metrics import DECLARED, FIDELITY, REFERENCE_CHECK, SMALL_REFERENCE, VALIDATION, headline_of
from fa_registry.records import NOT_DUE, NOT_FINITE, Check, Measurements, RunSpec, manifest_checks, objection_in
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.records.runs import BEST_VALIDATION
from fa_registry.schema_number import KEY, SCHEMA
from fa_registry.tracking import schema
from fa_registry.tracking.base import Point, StoredRun, Tracker
from fa_registry.tracking.series_parquet import SeriesRow, points

FILES, TABLES = "files", "tables"  # subjects of a Check
SHOWN = 5  # differences listed in a message; the others are counted
ROUNDING = 1e-6  # the scores of a loss are float32
WATCHED = ("loss_train", "penalty", "h_norm", "g_norm")  # metrics that training.loop.has_diverged checks


@dataclass(frozen=True)
class RecordedRun:
    """Contents of the recorded files of a finished run.

    `spec` and `measurements` are decoded. `source` is the content of spec.json as written.
    """

    spec: RunSpec
    source: Mapping[str, Any]
    provenance: Mapping[str, Any]
    measurements: Measurements
    rows: Sequence[SeriesRow]

    @property
    def is_trained_here(self) -> bool:
        """Whether this package trained the run: the run is not adopted, and no user-supplied loop trained it."""
        return not self.spec.weights and OWN_LOOP not in self.provenance

    @property
    def charts(self) -> tuple[str, ...]:
        """Names of the third-party metrics that have charts."""
        return tuple(self.provenance.get(schema.CHARTS, ()))

    @cached_property
    def points(self) -> Sequence[Point]:
        """Points that the tables should contain: those of some epochs, or of every epoch."""
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

    @cached_property
    def final_epoch(self) -> int:
        """Epoch to whose state the final files belong.

        It is computed from the specification and the measurements only.
        """
        if self.spec.recipe.select != BEST_VALIDATION or self.status == "diverged":
            return self.epochs
        headline = headline_of(self.measurements)
        scores = {
            row[0]: headline.sign * row[3]
            for row in self.rows
            if row[1] == f"{headline.name}{VALIDATION}" and row[0] > 0 and row[3] is not None
        }
        return max(scores, key=lambda epoch: (scores[epoch], -epoch), default=self.epochs)

    @property
    def setting(self) -> str:
        """Name of the setting, as recorded at the end of the run."""
        return self.provenance.get("setting", "")


def checks(recorded: RecordedRun, run: StoredRun) -> tuple[Check, ...]:
    """Compare the recorded files with each other, and the tables with the files. Return both Checks."""
    tables = [*_tags(recorded, run.tags), *_params(recorded, run.params), *_last_values(recorded, run.metrics)]
    ending_text = f"{recorded.status} after epoch {recorded.epochs} of {recorded.spec.epochs}"
    return (
        check(
            FILES,
            list(_among_files(recorded)),
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


def history_check(recorded: RecordedRun, tracker: Tracker, run: StoredRun) -> Check:
    """Compare all points in the run's metric tables with the recorded series, one query per metric."""
    expected = {(point.key, point.step): point.value for point in recorded.points}
    keys = {key for key, _ in expected} | _ours(run.metrics, recorded.charts)
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


def _missing_records(recorded: RecordedRun) -> Iterator[str]:
    """Yield what every run records and these files lack.

    A forged run cannot claim that it did not record a fact.
    """
    spec, provenance, conventions = recorded.spec, recorded.provenance, recorded.measurements.conventions
    is_own_loop = OWN_LOOP in provenance
    trained = manifest_checks.TRAINED if recorded.is_trained_here else ()
    plugins = {"methods": spec.method, "architectures": spec.architecture, "datasets": spec.dataset}
    plugins = {"methods": spec.method} if is_own_loop else plugins
    codes = provenance.get("code", {})
    files = [schema.FINAL]
    if recorded.is_trained_here and recorded.epochs > 0 and schema.recorded_early_step(provenance["digests"]) is None:
        files.append("the state after the first steps")
    for name, missing in {
        schema.SPEC: [*jsonio.encode(spec).keys() - recorded.source.keys()],
        f"recipe in {schema.SPEC}": [
            *jsonio.encode(spec.recipe).keys() - recorded.source.get("recipe", vars(spec.recipe)).keys()
        ],
        schema.PROVENANCE: [field for field in manifest_checks.RECORDED if field not in provenance]
        + [field for field in trained if not provenance.get(field)],
        f"code in {schema.PROVENANCE}": [name for name in map("/".join, plugins.items()) if name not in codes],
        f"digests in {schema.PROVENANCE}": [file for file in files if file not in provenance["digests"]],
        f"conventions in {schema.MEASUREMENTS}": [
            field
            for field in (*manifest_checks.MEASURED, *(() if is_own_loop else manifest_checks.MEASURED_HERE))
            if field not in conventions
        ],
    }.items():
        if missing:
            yield f"{name} lacks {join_names(sorted(missing))}, which every run records"


def _among_files(recorded: RecordedRun) -> Iterator[str]:
    yield from _missing_records(recorded)
    provenance, spec = recorded.provenance, recorded.spec
    epochs_run = 0 if spec.weights else recorded.epochs  # an adopted run was not trained here
    if provenance.get("epochs_run", epochs_run) != epochs_run:
        stated = provenance["epochs_run"]
        yield f"{schema.PROVENANCE} contains the number of epochs {stated}, but {schema.SERIES} ends at epoch {epochs_run}"
    if provenance.get("status", recorded.status) != recorded.status:
        ending = f"ends at epoch {recorded.epochs} of {spec.epochs} with finite values"
        ending = f"diverges at epoch {recorded.epochs}" if recorded.status == "diverged" else ending
        yield f"{schema.PROVENANCE} contains the status {provenance['status']}, but {schema.SERIES} {ending}"
    if provenance.get(KEY, SCHEMA) != SCHEMA:
        yield f"{schema.PROVENANCE} contains the schema number {provenance[KEY]}, but the run has the number {SCHEMA}"
    selected = recorded.final_epoch if spec.recipe.select == BEST_VALIDATION else None
    if provenance.get(schema.SELECTED) != selected:
        stated, found = ("none" if epoch is None else epoch for epoch in (provenance.get(schema.SELECTED), selected))
        yield f"{schema.PROVENANCE} contains the selected epoch {stated}, but by {schema.SERIES} it is {found}"
    chain = provenance.get(schema.EPOCH_CHAIN, ())
    if recorded.is_trained_here and len(chain) != recorded.epochs + 1:
        yield f"{schema.PROVENANCE} contains {len(chain)} digests of states, but {schema.SERIES} ends at epoch {recorded.epochs}"
    if recorded.epochs > spec.epochs:
        yield f"{schema.SERIES} ends at epoch {recorded.epochs}, but the number of epochs in {schema.SPEC} is {spec.epochs}"
    known_epochs = {row[0] for row in recorded.rows}
    missing = [] if spec.weights else [str(epoch) for epoch in range(recorded.epochs) if epoch not in known_epochs]
    if missing:
        yield f"{schema.SERIES} has no epoch {', '.join(missing[:SHOWN])}{' …' if len(missing) > SHOWN else ''}"
    yield from _sample_scores(recorded.measurements)
    yield from _due(recorded)
    # The final measurement uses more samples than the measurement of an epoch, so a value of the epoch may become N/A.
    # It also has the float64 pass, which may show that the value of an epoch is noise.
    is_due = not recorded.is_trained_here or spec.is_due(recorded.final_epoch)
    is_withdrawn = not is_due or bool(objection_in(recorded.measurements))
    for metric, site, value in (row[1:4] for row in recorded.rows if row[0] == recorded.final_epoch):
        final = _final_figure(recorded.measurements, metric, site)
        is_explained = (
            metric == REFERENCE_CHECK or (metric in FIDELITY and not is_due) or (is_withdrawn and final == (None,))
        )
        label = f"{metric}[{site}]" if site >= 0 else metric
        if final is None and metric in DECLARED:
            yield f"{schema.MEASUREMENTS} lacks {label}, which {schema.SERIES} contains after epoch {recorded.final_epoch}"
        elif final is not None and final[0] != value and not is_explained:
            yield (
                f"{schema.MEASUREMENTS} contains {label} = {final[0]!r}, but {schema.SERIES} contains {value!r} after epoch "
                f"{recorded.final_epoch}"
            )


def _due(recorded: RecordedRun) -> Iterator[str]:
    """Yield the epochs whose fidelity is recorded although not due, or is due and recorded as not due.

    Otherwise the author of a run could leave out an epoch at which a rule would not fire.
    """
    if recorded.is_trained_here:
        last = max((row[2] for row in recorded.rows), default=0)
        small = {
            row[0]
            for row in recorded.rows
            if row[1:3] == ("g_norm_mean_ce", last) and row[3] is not None and row[3] < SMALL_REFERENCE
        }
        wrong = {
            row[0]
            for row in recorded.rows
            if (row[5] == NOT_DUE) != (row[1] in FIDELITY and not (recorded.spec.is_due(row[0]) or row[0] in small))
        }
        if wrong:
            epochs = ", ".join(map(str, sorted(wrong)[:SHOWN]))
            yield f"{schema.SERIES} contains fidelity at other epochs than every run, as at epoch {epochs}"


def _sample_scores(measurements: Measurements) -> Iterator[str]:
    """Yield how the scores of single samples contradict their metric, which is their mean."""
    for name, scores in measurements.sample_scores.items():
        value = measurements.scalars[name].value if name in measurements.scalars else None
        size = "test_samples" if name == headline_of(measurements).name else "eval_samples"
        samples, mean = measurements.conventions.get(size), float(scores.scores().mean())
        if scores.samples != samples:
            yield f"{schema.MEASUREMENTS} contains {scores.samples} scores for {name}, but {size} = {samples}"
        elif value is None or not math.isclose(mean, value, rel_tol=ROUNDING, abs_tol=ROUNDING):
            yield f"{schema.MEASUREMENTS} contains scores of mean {mean!r}, but {name} = {value!r}"


def _final_figure(measurements: Measurements, metric: str, site: int) -> tuple[float | None] | None:
    if site < 0:
        reading = measurements.scalars.get(metric)
    else:
        row = measurements.sites.get(metric, ())
        reading = row[site] if site < len(row) else None
    return None if reading is None else (reading.value,)


def _tags(recorded: RecordedRun, tags: Mapping[str, str]) -> Iterator[str]:
    expected = {schema.TAG_STATUS: recorded.status, schema.TAG_ADOPTED: "true" if recorded.spec.weights else ""}
    expected |= {tag: recorded.provenance.get(name, "") for tag, name in schema.REPEATED_TAGS.items()}
    expected[schema.TAG_HEADLINE] = schema.headline_tag(headline_of(recorded.measurements)).get(schema.TAG_HEADLINE, "")
    for tag, value in expected.items():
        if tags.get(tag, "") != value:
            yield _differs(f"tag {tag}", repr(tags.get(tag, "")), repr(value))


def _params(recorded: RecordedRun, params: Mapping[str, str]) -> Iterator[str]:
    expected = schema.params(recorded.spec)
    for name in sorted(expected.keys() | {name for name in params if name.startswith(schema.PARAM)}):
        if params.get(name) != expected.get(name):
            yield _differs(f"parameter {name}", repr(params.get(name)), repr(expected.get(name)))


def _last_values(recorded: RecordedRun, metrics: Mapping[str, float]) -> Iterator[str]:
    # points are in order of epochs, so the last point of each key remains
    expected = {point.key: point.value for point in recorded.points}
    for key in sorted(expected.keys() | _ours(metrics, recorded.charts)):
        if not _is_logged(metrics.get(key), expected.get(key)):
            yield _differs(f"metric {key}", metrics.get(key, "missing"), expected.get(key))


def _is_logged(stored: float | None, exact: float | None) -> bool:
    """Return whether a stored value equals the exact value or the rounded value."""
    return stored == exact or (stored is not None and exact is not None and stored == schema.shown(exact))


def _ours(keys: Iterable[str], extra_metrics: Sequence[str]) -> set[str]:
    """Return those metrics of a store that the training code of fa_registry writes."""
    by_site, scalars = {*schema.SITE_KEYS.values(), *extra_metrics}, set(schema.scalar_metrics(extra_metrics).values())
    return {key for key in keys if key in scalars or key.partition(schema.SITE_MARK)[0] in by_site}


def _differs(subject: str, stored: object, recorded: object) -> str:
    return f"{subject} is {stored} in the store, but the recorded files contain {'no value' if recorded is None else recorded}"
