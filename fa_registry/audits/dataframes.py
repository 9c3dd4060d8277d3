"""Runs, series and audits as pandas frames.

The attributes of each frame contain the unit and the label of every metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from fa_registry.audits.recorded_verdicts import RecordedVerdict, recorded_verdicts
from fa_registry.errors import IntegrityError
from fa_registry.evidence.third_party import cards
from fa_registry.metrics import Metric, metric_named, metrics_of_cards, metrics_of_report
from fa_registry.records import AuditReport
from fa_registry.reporting.files.csv import audit_table
from fa_registry.reporting.report_values import audit_columns
from fa_registry.reporting.table import frame
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.reader import check_files, check_manifest, read_provenance, training_run
from fa_registry.tracking.series_parquet import SCALAR_SITE, read_rows
from fa_registry.tracking.stores import open_tracker

SHOWN = {metric: name for name, metric in schema.SCALAR_METRICS.items()}
OF_A_RUN = ("run_id", "name", "study", "method", "setting", "seed", "status", "verdict", "proof", "started")
OF_A_ROW = ("epoch", "quantity", "site", "value", "reason")
OF_AN_AUDIT = {"run_id": "run_id", "label": "method"} | {
    name: name for name in ("setting", "seed", "control", "verdict", "proof", "outcome", "integrity")
}


def runs(study: str = "", experiment: str = "", store: str = "") -> pd.DataFrame:
    """Return a frame with one row per run, newest first, from the tables of the store.

    The metrics are rounded to four significant digits; `series` returns exact values. `attrs["units"]` and `attrs["words"]` of
    the frame map each metric column to its unit and its label.

    Args:
        study: Only runs of this study; by default runs of all studies.
        experiment: Only runs of this experiment; by default runs of all experiments.

    >>> fa_registry.runs(study="digits").groupby("method")["growth_max"].max()
    """
    tags = {schema.TAG_KIND: "run"} | ({schema.TAG_STUDY: study} if study else {})
    tracker = open_tracker(store, create=False)
    runs = tracker.search(tags, experiment)
    verdicts = recorded_verdicts(tracker, runs)
    rows = [_of_run(run, verdicts[run.run_id]) for run in runs]
    return _described(pd.DataFrame(rows, columns=[*OF_A_RUN, *SHOWN.values()]), SHOWN.values(), _known())


def series(run_id: str, store: str = "") -> pd.DataFrame:
    """Return a frame with one row per epoch, metric and site of a run, with exact values.

    If a metric has only one value per epoch, column `site` is <NA>. If a value is missing, column `value` is nan and column
    `reason` contains the reason. `attrs["units"]` and `attrs["words"]` of the frame map each metric to its unit and its label.

    Args:
        run_id: Id of the run, or the first characters of the id.

    Raises:
        IntegrityError: The file series.parquet is missing or differs from its recorded digest.

    >>> rows = fa_registry.series("3f2a")
    >>> rows[rows.quantity == "gamma"].pivot(index="epoch", columns="site", values="value")
    """
    tracker = open_tracker(store, create=False)
    run = training_run(tracker, run_id)
    provenance, path = (tracker.artifact(run.run_id, name) for name in (schema.PROVENANCE, schema.SERIES))
    if provenance is None or path is None:
        raise IntegrityError(
            f"run {run.run_id} ({run.name}) has no {schema.SERIES}: the run has not ended, or its files were deleted"
        )
    digests = read_provenance(provenance)["digests"]
    check_manifest(tracker, run, digests)
    check_files(tracker, run.run_id, {schema.SERIES: digests.get(schema.SERIES, "none")})
    frame = pd.DataFrame([row[: len(OF_A_ROW)] for row in read_rows(path)], columns=list(OF_A_ROW))
    frame["site"] = frame["site"].astype("Int64").mask(frame["site"] == SCALAR_SITE)
    return _described(frame, frame["quantity"].unique(), _known())


def audit_frame(report: AuditReport) -> pd.DataFrame:
    """Return a frame with one row per judged run and one column per metric of the audit's table.

    `attrs["units"]` and `attrs["words"]` of the frame map each metric column to its unit and its label.
    """
    metrics = metrics_of_report(report)
    names = [column.name for column in audit_columns(report.runs, card_metrics=metrics)]
    headings = OF_AN_AUDIT | {name: name for name in names}
    return _described(frame(audit_table(report).select(headings)), names, metrics)


def _of_run(run: StoredRun, verdict: RecordedVerdict) -> dict[str, object]:
    seed = schema.seed_of(run.params)
    row = {
        "run_id": run.run_id,
        "name": run.name,
        "study": run.tags.get(schema.TAG_STUDY, ""),
        "method": run.tags.get(schema.TAG_METHOD, ""),
        "setting": run.tags.get(schema.TAG_SETTING, ""),
        "seed": pd.NA if seed is None else seed,
        "status": run.tags.get(schema.TAG_STATUS, ""),
        "verdict": verdict.label,
        "proof": verdict.proof,
        "started": pd.Timestamp(run.started, unit="ms", tz="UTC"),
    }
    return {**row, **{name: run.metrics.get(metric) for metric, name in SHOWN.items()}}


def _known() -> Mapping[str, Metric]:
    """Return the metrics that the installed diagnostics declare, by name."""
    return metrics_of_cards(cards([]))


def _described(frame: pd.DataFrame, names: Iterable[str], metrics: Mapping[str, Metric]) -> pd.DataFrame:
    column_metrics = {name: metric_named(name, metrics) for name in names}
    frame.attrs["units"] = {name: metric.unit for name, metric in column_metrics.items()}
    frame.attrs["words"] = {name: metric.words for name, metric in column_metrics.items()}
    return frame
