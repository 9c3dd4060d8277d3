"""What each template receives: one frozen dataclass a template, every field with its help and unit.

The fields are the template's variables, no more and no less; tests/reporting/test_contexts.py holds the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from fa_registry.records import EditionReference, Exclusion, Verdict
from fa_registry.reporting.parts import Blank, Claim, Entry, Estimate, Listed, Metric, SettingFigures, documented
from fa_registry.reporting.rows import (
    Comparison,
    Count,
    Difference,
    FindingRow,
    Footnote,
    IntegrityRow,
    Link,
    ReproductionTable,
    SeedRow,
    SettingRows,
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
    counts: tuple[Count, ...] = documented(
        "verdicts of the method × setting groups, worst first, with their names", "groups"
    )
    waivers: tuple[WaiverRow, ...] = documented(
        "who lets which finding pass, why, until when; expired ones too", "text"
    )
    run_count: int = documented("runs that were judged, controls included", "runs")
    settings: tuple[SettingRows, ...] = documented("the audit table, one part a setting", "see each column")
    shows_stability: bool = documented("whether any run measured it: older ones did not", "yes or no")
    details: bool = documented(
        "whether every seed's numbers stand below the table; else they are in the forms", "yes or no"
    )
    footnotes: tuple[Footnote, ...] = documented("why a number of the audit table is missing", "text")
    figures: Listed[SettingFigures] = documented(
        "trajectories by epoch, with their numbers, of as many settings as the page has room for", "PNG data URI"
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
    integrity: Listed[IntegrityRow] = documented("whether the logged figures stand, run by run, worst first", "runs")
    integrity_counts: tuple[Count, ...] = documented("runs by integrity state", "runs")
    remarks: tuple[str, ...] = documented("what the audit says besides", "text")
    commands: Listed[str] = documented("the command lines that train these runs again", "shell")
    forms: tuple[Link, ...] = documented("the reporting forms, relative to this page", "path")


@dataclass(frozen=True)
class FormContext:
    """form.html.j2 and form.md.j2: the reporting form of one method in one setting."""

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
    equations: str = documented("the equations implemented, from the method's card", "text")
    deviations: tuple[str, ...] = documented("numbered deviations from the source, from the card", "text")
    accuracy: Estimate = documented("test accuracy over seeds, whole test set", "fraction")
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
    claims: tuple[Claim, ...] = documented("what may be claimed and what must be walked back", "text")
    reproduction: ReproductionTable | None = documented(
        "the published figures these runs were compared with; none where the study has no reference.toml",
        "see each figure",
    )
    commands: tuple[str, ...] = documented("the command lines that train these runs again", "shell")
    bibtex: str = documented("citation of exactly what was used", "BibTeX")
    blanks: tuple[Blank, ...] = documented("what only a person can fill, kept over renderings", "Markdown")


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


TEMPLATES: Mapping[str, type] = MappingProxyType(
    {
        "index.html.j2": IndexContext,
        "form.html.j2": FormContext,
        "form.md.j2": FormContext,
        "note.md.j2": NoteContext,
    }
)


def variables(context: IndexContext | FormContext | NoteContext) -> dict[str, Any]:
    """The template's variables: the context's fields, as they are."""
    return {field.name: getattr(context, field.name) for field in fields(context)}
