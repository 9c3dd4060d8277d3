"""From one group of runs to its reporting form, and from one run to its note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fa_registry.protocol.grouping import Group
from fa_registry.records import AuditReport, Reading, RunAudit
from fa_registry.reporting.blanks import blanks
from fa_registry.reporting.build_index import COLUMNS, finding_row, finding_rows
from fa_registry.reporting.claims import claims, fires
from fa_registry.reporting.contexts import FormContext, NoteContext
from fa_registry.reporting.identification import NOT_RECORDED, card, identification, words
from fa_registry.reporting.naming import command, group_label
from fa_registry.reporting.parts import Cell, Metric, Number, SeedValue, SiteRow, SiteTable
from fa_registry.reporting.readings import (
    SITE_KINDS,
    Frozen,
    estimate,
    integrity_row,
    over_seeds,
    scalar,
    seed_row,
    site_row,
)

SCOPES = (("deep", "sites 1..L"), ("all", "sites 0..L"))
REDUCTIONS = ("mean", "median")
WORDS = {"growth": ("OK", "EXPLODED"), "g_norm": ("OK", "AT FLOOR"), "g_norm_mean_ce": ("OK", "AT FLOOR")}
EXACT = {"all": "every site", "last": "the last site L", "none": "none"}
HEADLINE_WORDS = (
    "test accuracy",
    "‖h_L‖₂",
    "‖g_L‖ of the mean CE",
    "largest growth",
    "frozen accuracy",
    "margin over frozen",
    "Γ (gamma_deep_mean)",
)


def form_context(group: Group, report: AuditReport, written: Mapping[str, str]) -> FormContext:
    """The form of one group. written: what people filled into its blanks before."""
    rows = tuple(seed_row(run, Frozen.of(report)) for run in group.runs)
    method = card(report, "methods", group.runs[0].record.spec.method)
    return FormContext(
        title=f"{group_label(group)} — {group.setting}",
        method=group_label(group),
        setting=group.setting,
        edition=report.edition,
        verdict=group.verdict,
        seeds=rows,
        identification=identification(group, report),
        equations=words(method.get("equations")),
        deviations=tuple(method.get("deviations", ())),
        accuracy=over_seeds(rows, lambda row: row.accuracy),
        frozen=over_seeds(rows, lambda row: row.frozen),
        margin=over_seeds(rows, lambda row: row.margin),
        gamma=over_seeds(rows, lambda row: row.gamma),
        aggregates=tuple(_aggregates(group.runs)),
        gamma_sites=gamma_table(group.runs),
        exact_sites=EXACT.get(str(method.get("exact_sites")), NOT_RECORDED),
        diagnostics=tuple(diagnostics_table(run) for run in group.runs),
        findings=tuple(finding_rows(group)),
        claims=claims(group.runs),
        commands=tuple(command(run.record.spec) for run in group.runs),
        bibtex=str(method.get("bibtex", "")),
        blanks=blanks(written),
    )


def note_context(run: RunAudit, report: AuditReport) -> NoteContext:
    """The short form of one run, judged alone."""
    record = run.record
    row = seed_row(run, Frozen.of(report))
    headline = tuple(
        Metric(name, label, over_seeds([row], lambda row, name=name: getattr(row, name)))
        for name, label in zip(COLUMNS, HEADLINE_WORDS, strict=True)
    )
    return NoteContext(
        method=record.spec.method_label,
        setting=record.setting,
        seed=record.spec.seed,
        run_id=record.run_id,
        status=record.status,
        edition=report.edition,
        verdict=run.verdict,
        headline=headline,
        findings=tuple(finding_row(finding, run, record.spec.method_label, record.setting) for finding in run.findings),
        claims=claims([run]),
        integrity=integrity_row(record),
    )


def _aggregates(runs: Sequence[RunAudit]) -> Iterator[Metric]:
    for scope, sites in SCOPES:
        for over_sites in REDUCTIONS:
            for over_samples in REDUCTIONS:
                name = f"gamma_{scope}_{over_sites}_{over_samples}"
                yield _metric(name, f"{over_sites} over {sites} of the {over_samples} over samples", runs)
    yield _metric("gamma_spread", "largest minus smallest aggregate", runs)


def _metric(name: str, label: str, runs: Sequence[RunAudit]) -> Metric:
    values = [
        SeedValue(run.record.spec.seed, Number(scalar(run.record, name), "cos", (run.record.run_id,))) for run in runs
    ]
    return Metric(name, label, estimate("cos", values))


def gamma_table(runs: Sequence[RunAudit]) -> SiteTable:
    """Γ: sites down, seeds across. Always there, N/A and why where Γ has no value."""
    columns = tuple((f"seed {run.record.spec.seed}", run.record.run_id) for run in runs)
    cells = [[Cell(number) for number in _column(run, "gamma", "cos")] for run in runs]
    return _table("Γ per site and seed", "", columns, cells, "gamma")


def diagnostics_table(run: RunAudit) -> SiteTable:
    """All site quantities of one run. OK, EXPLODED and AT FLOOR stand only at the site that a finding names."""
    columns = tuple((name, unit) for name, (_, unit) in SITE_KINDS.items())
    cells = []
    for name, (kind, _) in SITE_KINDS.items():
        column = [Cell(number) for number in _column(run, name, kind)]
        for finding in run.findings:
            judged = finding.quantity == name and finding.outcome in ("pass", "fail") and name in WORDS
            if judged and finding.site is not None and finding.site < len(column):
                number = column[finding.site].number
                column[finding.site] = Cell(number, WORDS[name][fires(finding)], fires(finding))
        cells.append(column)
    caption = f"seed {run.record.spec.seed}, {run.record.status}, {run.verdict.label}"
    return _table(caption, run.record.run_id, columns, cells, "this quantity")


def _column(run: RunAudit, name: str, kind: str) -> list[Number]:
    return [Number(reading, kind, (run.record.run_id,)) for reading in site_row(run.record, name)]


def _table(
    caption: str, run_id: str, columns: tuple[tuple[str, str], ...], cells: Sequence[Sequence[Cell]], what: str
) -> SiteTable:
    """Columns of unequal length are filled up with N/A: a run that broke early has fewer sites."""
    height = max((len(column) for column in cells), default=0)
    absent = Cell(Number(Reading(None, f"{what} was not measured at this site"), "num", (run_id,) if run_id else ()))
    rows = tuple(
        SiteRow(site, tuple(column[site] if site < len(column) else absent for column in cells))
        for site in range(height)
    )
    reasons = dict.fromkeys(
        f"{name}: {row.cells[index].number.reading.reason}"
        for index, (name, _) in enumerate(columns)
        for row in rows
        if row.cells[index].number.reading.reason
    )
    return SiteTable(caption, run_id, columns, rows, tuple(reasons))
