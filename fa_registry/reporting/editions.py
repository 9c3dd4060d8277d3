"""What the editions say of the same runs, side by side, and where they differ the findings that make the difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fa_registry.protocol.grouping import Group
from fa_registry.protocol.shipped import DIGEST, FOREIGN, SHIPPED, edition_words, standing
from fa_registry.protocol.verdict import combined
from fa_registry.quantities import Known, held, kind_of, subject_of
from fa_registry.records import AuditReport, EditionReference, Finding, Judgement, RunAudit, Scalar, Verdict
from fa_registry.reporting.filters import na, reading
from fa_registry.reporting.findings import SEVERITY
from fa_registry.reporting.naming import group_label
from fa_registry.reporting.parts import Listed
from fa_registry.reporting.rows import ChangedEdition, ComparedRow, Difference, EditionChange

OUTCOME_WORDS = {
    "pass": "passes",
    "warn": "warns",
    "fail": "fires",
    "error": "crashed",
    "not_applicable": "could not be judged",
    "skipped": "was skipped",
    "waived": "is waived",
}
MOST_CHANGES = 60  # of an edition, on the page; a file of one's own differs in every word of every rule
NOWHERE = "—"
SAME_FINDINGS = "The same findings: the editions draw different verdicts from them."
NOT_JUDGED = Verdict("incomplete", "not judged")
Judged = tuple[EditionReference, Sequence[Finding]]  # an edition and what it found in the runs of one group


@dataclass(frozen=True)
class Opinions:
    """The editions of a report, the leading one first, and by run id what each says of it. known: the report's quantities."""

    editions: tuple[EditionReference, ...]
    judgements: tuple[Mapping[str, RunAudit | Judgement], ...]
    known: Known

    @classmethod
    def of(cls, report: AuditReport) -> Opinions:
        leading = {run.record.run_id: run for run in report.runs}
        others = tuple({one.run_id: one for one in opinion.judgements} for opinion in report.opinions)
        editions = (report.edition, *(opinion.edition for opinion in report.opinions))
        return cls(editions, (leading, *others), held(report.cards))

    def compared(self, group: Group, href: str) -> ComparedRow:
        """One method in one setting by every edition; it differs where two editions' outcomes do."""
        ids = [run.record.run_id for run in group.runs]
        known = [[by_run[run_id] for run_id in ids if run_id in by_run] for by_run in self.judgements]
        verdicts = tuple(combined(one.verdict for one in judged) if judged else NOT_JUDGED for judged in known)
        found = [
            (edition, [finding for one in judged for finding in one.findings])
            for edition, judged in zip(self.editions, known, strict=True)
        ]
        differ = len({verdict.outcome for verdict in verdicts}) > 1
        return ComparedRow(
            group_label(group), group.setting, href, verdicts, tuple(differences(found, self.known)) if differ else ()
        )

    def others(self, group: Group) -> list[tuple[EditionReference, tuple[RunAudit, ...]]]:
        """Every further edition with the group's runs as it judges them; without those it does not judge."""
        return [
            (
                edition,
                tuple(_as_judged(run, by_run[run.record.run_id]) for run in group.runs if run.record.run_id in by_run),
            )
            for edition, by_run in zip(self.editions[1:], self.judgements[1:], strict=True)
        ]


def _as_judged(run: RunAudit, judgement: RunAudit | Judgement) -> RunAudit:
    return dataclasses.replace(run, findings=judgement.findings, verdict=judgement.verdict)


def changed_editions(editions: Iterable[EditionReference]) -> Iterator[ChangedEdition]:
    """Every edition that is not a shipped one as it is, with what it changes: rule, field, shipped value, this value."""
    for edition in editions:
        if standing(edition) != SHIPPED or edition.overrides:
            known = () if standing(edition) == FOREIGN else edition.differences
            rows = [EditionChange(one.rule, one.field, _value(one.shipped), _value(one.this)) for one in known]
            yield ChangedEdition(edition, _why_changed(edition), Listed.first(MOST_CHANGES, rows))


def _why_changed(edition: EditionReference) -> str:
    """What a reader must know before the table; nothing of it is read from the reference where a digest can tell."""
    if standing(edition) == SHIPPED:
        return "thresholds were overridden when it was asked for"
    if standing(edition) == FOREIGN:
        return f"its digest {edition.digest[:DIGEST]} is none of this installation's, so what it asks for is not known here"
    if edition.shipped is None:
        return "a release judged by it that did not record what it is based on"
    if not edition.based_on:
        return "its rules are its own, and it shares none with a shipped edition"
    return f"it is a user's own file, and differs from {edition.based_on} in {len(edition.differences)} points"


def _value(value: Scalar | None) -> str:
    """A threshold to its last digit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == "":
        return NOWHERE
    return value if isinstance(value, str) else f"{value:.12g}"


def differences(found: Sequence[Judged], known: Known) -> Iterator[Difference]:
    """One for every subject (scale, reference, depth, …) that two editions do not judge alike."""
    subjects = dict.fromkeys(subject_of(finding.quantity) for _, findings in found for finding in findings)
    told = False
    for subject in subjects:
        about = [(edition, [one for one in all_of if subject_of(one.quantity) == subject]) for edition, all_of in found]
        if len({_decides(findings) for _, findings in about}) > 1:
            told = True
            yield Difference(subject, tuple(_clause(edition, findings, known) for edition, findings in about))
    if not told:
        yield Difference("verdict", (SAME_FINDINGS,))


def _decides(findings: Iterable[Finding]) -> str:
    """The most severe outcome that the verdict looks at."""
    outcomes = [finding.outcome for finding in findings if finding.gating]
    return min(outcomes, key=SEVERITY.index, default="pass")


def _clause(edition: EditionReference, findings: Sequence[Finding], known: Known) -> str:
    """What one edition says of the subject: its most severe finding, with the seeds that share its state."""
    if not findings:
        return f"{edition_words(edition)} does not judge it."
    worst = min(findings, key=lambda one: (not one.gating, SEVERITY.index(one.outcome)))
    alike = [one for one in findings if (one.rule, one.outcome, one.state) == (worst.rule, worst.outcome, worst.state)]
    of_rule = sum(one.rule == worst.rule for one in findings)
    share = f" ({len(alike)} of {of_rule} seeds)" if of_rule > 1 else ""
    word = f"{worst.state}, {OUTCOME_WORDS[worst.outcome]}" if worst.state else OUTCOME_WORDS[worst.outcome]
    gate = "" if worst.gating else ", but does not gate"
    return (
        f"{edition_words(edition)}: {worst.rule} {worst.title} {word}{gate}, required {worst.required}, "
        f"observed {_observed(alike, known)}{share}."
    )


def _observed(alike: Sequence[Finding], quantities: Known) -> str:
    """The figure, or the least and the largest where the seeds have several."""
    known = sorted((one.observed for one in alike if one.observed.value is not None), key=lambda one: one.value)
    if not known:
        missing = alike[0].observed
        return missing.reason if missing.not_finite else f"{na(missing)} ({missing.reason})"
    ends = dict.fromkeys(reading(one, kind_of(alike[0].quantity, quantities)) for one in (known[0], known[-1]))
    return " to ".join(ends)
