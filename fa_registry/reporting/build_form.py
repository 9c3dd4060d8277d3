"""From one group of runs to its reporting form, and from one run to its note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fa_registry.protocol.grouping import Group
from fa_registry.protocol.verdict import combined
from fa_registry.quantities import SUBJECTS, Known, held, quantity_of
from fa_registry.records import AuditReport, EditionReference, RunAudit
from fa_registry.reporting import reproducing, reproduction
from fa_registry.reporting.blanks import blanks
from fa_registry.reporting.citations import bibliography
from fa_registry.reporting.claims import claims
from fa_registry.reporting.claims_sampling import sampling
from fa_registry.reporting.contexts import FormContext, NoteContext
from fa_registry.reporting.diagnostics_tables import first_fires, gamma_table, scalar_table, site_tables
from fa_registry.reporting.evidence import evidence
from fa_registry.reporting.findings import finding_rows
from fa_registry.reporting.identification import NOT_RECORDED, card, identification, is_exact, words
from fa_registry.reporting.naming import group_label
from fa_registry.reporting.parts import Metric
from fa_registry.reporting.pitfalls import pitfalls
from fa_registry.reporting.readings import Frozen, column_estimate, integrity_row, scalar_estimate, seed_row
from fa_registry.reporting.rows import FindingRow, JudgedBy, Link
from fa_registry.reporting.sources import Sources

SCOPES = (("deep", "sites 1..L"), ("all", "sites 0..L"))
REDUCTIONS = ("mean", "median")
EXACT = {"all": "every site", "last": "the last site L", "none": "none"}
HEADLINE = (  # of a note: column of the seed's row, words
    ("accuracy", "test accuracy"),
    ("h_norm", "‖h_L‖₂"),
    ("g_norm", "‖g_L‖ of the mean CE"),
    ("growth", "largest growth"),
    ("frozen", "frozen accuracy"),
    ("margin", "margin over frozen"),
    ("gamma", "Γ (gamma_deep_mean)"),
)


def form_context(group: Group, link: Link, sources: Sources, written: Mapping[str, str]) -> FormContext:
    """The form of one group. written: what people filled into its blanks before."""
    report = sources.report
    rows = tuple(seed_row(run, sources.frozen) for run in group.runs)
    method = card(report, "methods", group.runs[0].record.spec.method)
    findings = finding_rows(group.runs, group_label(group), group.setting, sources.known)
    compared = sources.opinions.compared(group, link.href)
    others = sources.opinions.others(group)
    excluded = sources.excluded.of_group(group)
    found = [one for judged in (group.runs, *(runs for _, runs in others)) for run in judged for one in run.findings]
    return FormContext(
        title=f"{group_label(group)} — {group.setting}",
        method=group_label(group),
        setting=group.setting,
        edition=report.edition,
        verdict=group.verdict,
        opinions=tuple(zip(sources.opinions.editions, compared.verdicts, strict=True)),
        differences=compared.why,
        seeds=rows,
        identification=identification(group, report),
        evidence=evidence(group.runs, excluded),
        equations=words(method.get("equations")),
        deviations=tuple(method.get("deviations", ())),
        accuracy=column_estimate(rows, "accuracy"),
        sampling=sampling(group.runs),
        frozen=column_estimate(rows, "frozen"),
        margin=column_estimate(rows, "margin"),
        depth=tuple(_depth(findings, group.runs)),
        gamma=column_estimate(rows, "gamma"),
        aggregates=tuple(aggregates(group.runs)),
        gamma_sites=gamma_table(group.runs),
        exact_sites=EXACT.get(str(method.get("exact_sites")), NOT_RECORDED),
        diagnostics=site_tables(group.runs, report),
        scalars=scalar_table(group.runs, report),
        first_fires=first_fires(group.runs),
        findings=findings,
        others=tuple(_judged_by(edition, runs, group, sources.known) for edition, runs in others),
        claims=claims(group.runs, excluded, exact=is_exact(method)),
        excluded=excluded,
        pitfalls=pitfalls(group, sources),
        reproduction=reproduction.table(report.reproduction, [run.record.run_id for run in group.runs]),
        commands=reproducing.lines(group.runs, report, sources.frozen),
        bibliography=bibliography(group.runs, found, report),
        blanks=blanks(written),
    )


def note_context(
    run: RunAudit, report: AuditReport, frozen: Frozen, form: str = "", audit: str = "", alone: bool = True
) -> NoteContext:
    """The short form of one run, judged alone. form, audit: addresses of these pages in MLflow. alone: without other seeds."""
    record = run.record
    row = seed_row(run, frozen)
    told = claims([run], alone=alone, exact=is_exact(card(report, "methods", record.spec.method)))
    headline = tuple(Metric(name, label, column_estimate([row], name)) for name, label in HEADLINE)
    return NoteContext(
        method=record.spec.label,
        setting=record.setting,
        seed=record.spec.seed,
        run_id=record.run_id,
        status=record.status,
        edition=report.edition,
        verdict=run.verdict,
        headline=headline,
        findings=finding_rows([run], record.spec.label, record.setting, held(report.cards)),
        claims=tuple(claim for claim in told if claim.kind != "note"),  # explained in the form
        integrity=integrity_row(record),
        form=form,
        audit=audit,
    )


def _judged_by(edition: EditionReference, runs: Sequence[RunAudit], group: Group, known: Known) -> JudgedBy:
    verdict = combined(run.verdict for run in runs)
    return JudgedBy(edition, verdict, finding_rows(runs, group_label(group), group.setting, known))


def _depth(findings: Sequence[FindingRow], runs: Sequence[RunAudit]) -> Iterator[FindingRow]:
    """What is said of the margin over frozen, to stand beside it: once for all seeds where the rule judges over them."""
    rules = {one.rule for run in runs for one in run.findings if one.quantity in SUBJECTS["depth"]}
    return (row for row in findings if row.rule in rules and row.state)


def aggregates(runs: Sequence[RunAudit]) -> Iterator[Metric]:
    """Γ by every aggregation over sites and samples, and how far they lie apart."""
    for scope, sites in SCOPES:
        for over_sites in REDUCTIONS:
            for over_samples in REDUCTIONS:
                name = f"gamma_{scope}_{over_sites}_{over_samples}"
                yield _metric(name, f"{over_sites} over {sites} of the {over_samples} over samples", runs)
    yield _metric("gamma_spread", "largest minus smallest aggregate", runs)


def _metric(name: str, label: str, runs: Sequence[RunAudit]) -> Metric:
    return Metric(name, label, scalar_estimate(runs, quantity_of(name)))
