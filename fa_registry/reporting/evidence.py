"""What an audit held against what is sealed with the runs, one line a subject: built from the checks, whoever made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fa_registry.records import Check, Exclusion, Integrity, RunAudit
from fa_registry.reporting.parts import Listed
from fa_registry.reporting.rows import IntegrityRow

MOST_SAID = 6  # different findings of one subject on a page
MOST_RUNS = 8
WORST_FIRST = ("differs", "not possible", "agrees")


@dataclass(frozen=True)
class EvidenceSaid:
    """What was found alike of several runs. outcome: one of records.CHECK_OUTCOMES."""

    outcome: str
    detail: str
    run_ids: Listed[str]


@dataclass(frozen=True)
class EvidenceRow:
    """One thing that was looked at: in how many runs it agrees, differs, or could not be looked at, and what was found."""

    subject: str
    agree: int
    differ: int
    not_possible: int
    said: Listed[EvidenceSaid]

    @property
    def outcome(self) -> str:
        """The worst of all runs."""
        return "differs" if self.differ else "not possible" if self.not_possible else "agrees"


def evidence(runs: Sequence[RunAudit], excluded: Sequence[Exclusion] = ()) -> tuple[EvidenceRow, ...]:
    """The checks of these runs by subject, in the order in which they were made; those of excluded runs too."""
    subjects: dict[str, list[tuple[Check, str]]] = {}
    for run_id, integrity in _integrities(runs, excluded):
        for check in integrity.checks:
            subjects.setdefault(check.subject, []).append((check, run_id))
    return tuple(_row(subject, several) for subject, several in subjects.items())


def integrity_states(runs: Sequence[RunAudit], excluded: Sequence[Exclusion]) -> list[IntegrityRow]:
    """Every run whose figures were looked at, or whose files are not the recorded ones: such a one is a mismatch too."""
    rows = [_integrity_row(one) for one in excluded if one.kind == "integrity"]
    judged = (run.record for run in runs)
    return [*rows, *(IntegrityRow(one.run_id, one.name, one.integrity.state, one.integrity.details) for one in judged)]


def not_intact(excluded: Iterable[Exclusion]) -> list[Exclusion]:
    """Those that are not judged because something is not what is sealed."""
    return [one for one in excluded if one.kind == "integrity"]


def _integrity_row(one: Exclusion) -> IntegrityRow:
    details = one.integrity.details if one.integrity else (one.reason,)
    return IntegrityRow(one.run_id, one.name, "mismatch", details)


def _integrities(runs: Sequence[RunAudit], excluded: Sequence[Exclusion]) -> Iterator[tuple[str, Integrity]]:
    yield from ((run.record.run_id, run.record.integrity) for run in runs)
    yield from ((one.run_id, one.integrity) for one in excluded if one.integrity)


def _row(subject: str, several: Sequence[tuple[Check, str]]) -> EvidenceRow:
    alike: dict[tuple[str, str], list[str]] = {}
    for check, run_id in several:
        alike.setdefault((check.outcome, check.detail), []).append(run_id)
    ordered = sorted(alike.items(), key=lambda item: WORST_FIRST.index(item[0][0]))
    said = [EvidenceSaid(outcome, detail, Listed.first(MOST_RUNS, ids)) for (outcome, detail), ids in ordered]
    count = {outcome: sum(check.outcome == outcome for check, _ in several) for outcome in WORST_FIRST}
    return EvidenceRow(subject, count["agrees"], count["differs"], count["not possible"], Listed.first(MOST_SAID, said))
