"""What each template receives: one frozen dataclass a template, every field with its help and unit.

The fields are the template's variables, no more and no less; tests/reporting/test_contexts.py holds the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from fa_registry.records import EditionReference, Exclusion, OtherRun, Verdict
from fa_registry.reporting.citations import Bibliography
from fa_registry.reporting.claims_sampling import Sampling
from fa_registry.reporting.compare_parts import CompareContext
from fa_registry.reporting.evidence import EvidenceRow
from fa_registry.reporting.headline import Headline
from fa_registry.reporting.page_analyses import PageAnalyses
from fa_registry.reporting.parts import Blank, Claim, Entry, Estimate, Listed, Metric, SettingFigures, documented
from fa_registry.reporting.pitfalls_words import Pitfall
from fa_registry.reporting.reproduction_rows import ReproductionTable
from fa_registry.reporting.rows import (
    ChangedEdition,
    Comparison,
    Count,
    Difference,
    FindingRow,
    Footnote,
    IntegrityRow,
    JudgedBy,
    Link,
    SeedRow,
    SettingRows,
    SettingTable,
    WaiverRow,
)
from fa_registry.reporting.tables import FirstFire, QuantityTable, ScalarTable, SiteTable


@dataclass(frozen=True)
class IndexContext:
    """index.html.j2: the whole audit on one page."""

    title: str = documented("the audit's title", "text")
    selection: str = documented("how the runs were chosen", "text")
    edition: EditionReference = documented("which rules judged, by name and digest", "record")
    overrides: tuple[Entry, ...] = documented(
        "thresholds changed on the command line, those of another edition under its name; any makes it 'modified'",
        "text",
    )
    changed_editions: tuple[ChangedEdition, ...] = documented(
        "editions that are not shipped ones as they are, each with its differences to the one it is based on", "text"
    )
    headline: Headline = documented("the verdicts in one sentence, and the rules that fire", "methods × settings")
    counts: tuple[Count, ...] = documented(
        "verdicts of the method × setting groups, worst first, with their short names", "groups"
    )
    waivers: tuple[WaiverRow, ...] = documented(
        "who lets which finding pass, why, until when; expired ones too", "text"
    )
    run_count: int = documented("runs that were judged, controls included", "runs")
    settings: tuple[SettingRows, ...] = documented("the audit table, one part a setting", "see each column")
    means: str = documented("which mean over seeds each column is", "text")
    shows_stability: bool = documented("whether any run measured it: older ones did not", "yes or no")
    details: bool = documented(
        "whether every seed's numbers stand below the table; else they are in the forms", "yes or no"
    )
    footnotes: tuple[Footnote, ...] = documented("why a number of the audit table is missing", "text")
    figures: Listed[SettingFigures] = documented(
        "each setting's trajectories, accuracies, Γ and growth by site, with their numbers, as many as the page has room for",
        "PNG data URI",
    )
    analyses: PageAnalyses = documented(
        "questions asked of all runs together, and why others were not", "see each table"
    )
    findings: Listed[FindingRow] = documented(
        "every finding but the passed ones, most severe first, seeds judged alike together", "see `required`"
    )
    passed: int = documented("findings that passed", "findings")
    comparison: Comparison | None = documented("what every edition says of every method; none where one judged", "text")
    reproduction: ReproductionTable | None = documented(
        "every published figure of the study with its outcome; none where it has no reference.toml", "see each figure"
    )
    excluded: Listed[Exclusion] = documented(
        "selected runs that cannot be judged, why, and the traceback of one that broke", "runs"
    )
    unaudited: Listed[OtherRun] | None = documented(
        "runs of the judged methods and settings that the store holds and this audit left out; none where nobody looked",
        "runs",
    )
    integrity: Listed[IntegrityRow] = documented("whether the logged figures stand, run by run, worst first", "runs")
    evidence: tuple[EvidenceRow, ...] = documented(
        "what was held against what is sealed with the runs, one line a subject: how many agree, differ, were not possible",
        "runs",
    )
    not_intact: Listed[Exclusion] = documented(
        "selected runs that are not judged because something is not what is sealed with them", "runs"
    )
    integrity_counts: tuple[Count, ...] = documented("runs by integrity state", "runs")
    remarks: tuple[str, ...] = documented("what the audit says besides", "text")
    commands: Listed[str] = documented("the command lines that train these runs again", "shell")
    forms: tuple[Link, ...] = documented("the reporting forms, relative to this page", "path")


@dataclass(frozen=True)
class FormContext:
    """form.html.j2, form.md.j2 and form.tex.j2: the reporting form of one method in one setting."""

    title: str = documented("method and setting", "text")
    method: str = documented("the method's label", "text")
    setting: str = documented("the setting's readable name", "text")
    edition: EditionReference = documented("which rules judged", "record")
    verdict: Verdict = documented("of all seeds together", "record")
    opinions: tuple[tuple[EditionReference, Verdict], ...] = documented(
        "every edition with its verdict of all seeds together, the leading one first", "record"
    )
    differences: tuple[Difference, ...] = documented("where the editions differ, and by which findings", "text")
    seeds: tuple[SeedRow, ...] = documented(
        "one row a seed: run, status, verdict and headline numbers", "see each column"
    )
    identification: tuple[Entry, ...] = documented("method, architecture, data, recipe, machine: what was run", "text")
    evidence: tuple[EvidenceRow, ...] = documented(
        "what was held against what is sealed with the runs, one line a subject: how many agree, differ, were not possible",
        "runs",
    )
    equations: str = documented("the equations implemented, from the method's card", "text")
    deviations: tuple[str, ...] = documented("numbered deviations from the source, from the card", "text")
    accuracy: Estimate = documented("test accuracy over seeds, whole test set", "fraction")
    sampling: Sampling | None = documented(
        "what the size of the test set leaves open of the accuracy: Wilson's 95 % interval; none where the size is not known",
        "fraction",
    )
    frozen: Estimate = documented("the frozen controls' accuracy, paired by seed", "fraction")
    margin: Estimate = documented("accuracy − frozen accuracy, paired by seed", "percentage points")
    depth: tuple[FindingRow, ...] = documented("what the leading edition says of that margin", "percentage points")
    gamma: Estimate = documented("Γ by its named aggregation, gamma_deep_mean", "cosine")
    aggregates: tuple[Metric, ...] = documented("Γ by every aggregation, and their spread", "cosine")
    gamma_sites: SiteTable = documented("Γ of every site and seed, always shown", "cosine")
    exact_sites: str = documented("sites whose credit is exact by construction, so that Γ = 1 says nothing", "text")
    diagnostics: tuple[QuantityTable, ...] = documented("every site quantity by seed and site", "see each quantity")
    scalars: ScalarTable = documented("what a run has one number of: stability, drift, …", "see each quantity")
    first_fires: tuple[FirstFire, ...] = documented("the epoch at which a rule first fired, seed by seed", "epoch")
    findings: tuple[FindingRow, ...] = documented(
        "every rule's judgement, seeds judged alike together", "see `required`"
    )
    others: tuple[JudgedBy, ...] = documented("what every further edition says, rule by rule", "see `required`")
    excluded: tuple[Exclusion, ...] = documented(
        "selected runs of this method in this setting that were not judged, and why: they stand beside the headline",
        "runs",
    )
    claims: tuple[Claim, ...] = documented("what may be claimed and what must be walked back", "text")
    pitfalls: tuple[Pitfall, ...] = documented(
        "the checklist of known pitfalls, each answered from the records with its evidence", "text"
    )
    reproduction: ReproductionTable | None = documented(
        "the published figures these runs were compared with; none where the study has no reference.toml",
        "see each figure",
    )
    commands: tuple[str, ...] = documented(
        "the lines that train these runs and their frozen controls from their commits again, and audit them", "shell"
    )
    bibliography: Bibliography = documented(
        "citations of exactly what was used: method, architecture, data, diagnostics that judged, editions, this software",
        "BibTeX",
    )
    blanks: tuple[Blank, ...] = documented("what only a person can fill, kept over renderings", "Markdown")


@dataclass(frozen=True)
class AuditTableContext:
    """audit_table.tex.j2: the audit table for a paper, one LaTeX table a setting."""

    selection: str = documented("how the runs were chosen", "text")
    edition: EditionReference = documented("which rules judged, by name and digest", "record")
    tables: tuple[SettingTable, ...] = documented("method by column, one table a setting", "see each column")
    means: str = documented("which mean over seeds each column is", "text")
    shows_stability: bool = documented("whether any run measured it: older ones did not", "yes or no")


@dataclass(frozen=True)
class NoteContext:
    """note.md.j2: the short form that stands in the run's description in MLflow."""

    method: str = documented("the method's label", "text")
    setting: str = documented("the setting's readable name", "text")
    seed: int = documented("the run's seed", "integer")
    run_id: str = documented("the run", "id")
    status: str = documented("complete, diverged or failed", "text")
    edition: EditionReference = documented("which rules judged", "record")
    verdict: Verdict = documented("of this run alone", "record")
    headline: tuple[Metric, ...] = documented("the run's headline numbers", "see each metric")
    findings: tuple[FindingRow, ...] = documented("every rule's judgement of this run", "see `required`")
    claims: tuple[Claim, ...] = documented("what may be claimed from this run alone", "text")
    integrity: IntegrityRow = documented("whether the logged figures stand", "text")
    form: str = documented("the run's reporting form in MLflow's pages; empty where there is none", "address")
    audit: str = documented("the whole audit in MLflow's pages; empty where there is none", "address")


@dataclass(frozen=True)
class ExcludedNoteContext:
    """excluded_note.md.j2: what stands in the description of a run that an audit could not judge."""

    verdict: str = documented("NOT JUDGED, and the kind of reason", "text")
    reason: str = documented("why the run could not be judged", "text")
    run_id: str = documented("the run", "id")
    edition: EditionReference = documented("which rules judged the others", "record")
    audit: str = documented("the whole audit in MLflow's pages; empty where there is none", "address")


@dataclass(frozen=True)
class AuditNoteContext:
    """audit_note.md.j2: what an audit found, in the descriptions of its own run and of the study's in MLflow."""

    edition: EditionReference = documented("which rules judged", "record")
    selection: str = documented("how the runs were chosen", "text")
    counts: tuple[Count, ...] = documented("verdicts of the method × setting groups, worst first", "groups")
    run_count: int = documented("runs that were judged, controls included", "runs")
    excluded: int = documented("selected runs that could not be judged", "runs")
    audit: str = documented("the whole audit in MLflow's pages; empty where there is none", "address")
    table: str = documented("the table of all runs in MLflow's pages; empty where there is none", "address")
    forms: Listed[Link] = documented(
        "the reporting forms, worst verdict first, by address in MLflow's pages", "address"
    )


TEMPLATES: Mapping[str, type] = MappingProxyType(
    {
        "index.html.j2": IndexContext,
        "form.html.j2": FormContext,
        "form.md.j2": FormContext,
        "form.tex.j2": FormContext,
        "audit_table.tex.j2": AuditTableContext,
        "compare.html.j2": CompareContext,
        "note.md.j2": NoteContext,
        "excluded_note.md.j2": ExcludedNoteContext,
        "audit_note.md.j2": AuditNoteContext,
    }
)


def variables(context: Any) -> dict[str, Any]:
    """The template's variables: the fields of the context, any page's, as they are."""
    return {field.name: getattr(context, field.name) for field in fields(context)}
