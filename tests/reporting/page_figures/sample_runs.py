"""Audits whose runs were followed site by site."""

from __future__ import annotations

import math

from fa_registry.records import AuditReport, Reading, RunAudit, Series, SiteSeries
from tests.reporting.report_changes import with_record, with_runs

EPOCHS = (0, 10, 20, 30)


def rising(record, quantity: str) -> SiteSeries:
    """From a tenth of what was measured at the end, site by site."""
    rows = []
    for reading in record.measurements.sites[quantity]:
        known = reading.value is not None
        rows.append(Series(Reading.of(reading.value * (0.1 + 0.03 * at)) if known else reading for at in EPOCHS))
    return SiteSeries(EPOCHS, tuple(rows))


def followed(report: AuditReport, **instead: SiteSeries) -> AuditReport:
    """The report with growth, ‖g‖ and Γ by site in every run; instead: what all runs have of a metric."""

    def follow(run: RunAudit) -> RunAudit:
        made = {name: rising(run.record, name) for name in ("growth", "g_norm_mean_ce", "gamma")}
        return with_record(run, by_site=made | instead)

    return with_runs(report, follow)


def broken(sites: int = 5) -> SiteSeries:
    """Nothing finite after the first epoch."""
    infinite = Reading.of(math.inf)
    return SiteSeries(EPOCHS, (Series([Reading(1.0), infinite, infinite, infinite]),) * sites)
