"""Analyses of many judged runs, one module per analysis.

An analysis reads recorded metrics and measures no network.
"""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.analyses.base import (  # noqa: F401 - names of this package
    Analyser,
    Analysis,
    AnalysisCell,
    AnalysisColumn,
    AnalysisTable,
)
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.plugin_registry import Catalog
from fa_registry.protocol.rules import Edition, load_edition
from fa_registry.records import AuditReport

CATALOG = Catalog("analyses", "analysis", Analyser)
NOTHING = "no trained method is among the runs"


@dataclass(frozen=True)
class Answers:
    """The analyses of one report that belong on the first page of its audit.

    Args:
        found: the analyses with a result, in the order of their rank.
        left_out: for each other analysis, the tuple (title, reason).
    """

    found: tuple[Analysis, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


def ranked() -> list[Analyser]:
    """Return the built-in analyses that the first page of an audit may show, sorted by their rank.

    Third-party analyses are left out, so the page does not depend on what else is installed.
    """
    return sorted((one for one in CATALOG.built_in().values() if one.rank), key=lambda one: one.rank)


def answers_of(report: AuditReport) -> Answers:
    """Apply the ranked analyses to a report, by the edition that judged it."""
    edition = _edition(report) if any(run.record.spec.control == "none" for run in report.runs) else NOTHING
    if isinstance(edition, str):
        return Answers(left_out=tuple((analyser.title, edition) for analyser in ranked()))
    found, left_out = [], []
    for analyser in ranked():
        analysis = analyser.run(report, edition)
        if reason := analyser.silence(analysis):
            left_out.append((analyser.title, reason))
        else:
            found.append(analysis)
    return Answers(tuple(found), tuple(left_out))


def _edition(report: AuditReport) -> Edition | str:
    """Return the audit's first edition, or the reason why it cannot be used."""
    reference = report.edition
    try:
        edition = load_edition(reference.name, {name: float(value) for name, value in reference.overrides.items()})
    except (UnknownName, InvalidFields, ValueError) as error:
        return f"the edition of this audit, {reference.name}, cannot be read by this installation: {error}"
    if (edition.name, edition.digest) != (reference.name, reference.digest):
        digest = reference.digest[:12]
        return f"the edition {reference.name} of this installation is not the edition of this audit (sha256 {digest}…)"
    return edition
