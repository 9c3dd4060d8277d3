"""What the newest audit said of one run, read back from the audit's own report and checked against its recorded digest."""

from __future__ import annotations

from fa_registry.commands.editions import load_or_name, signature
from fa_registry.commands.report import recorded_report
from fa_registry.errors import IntegrityError, InvalidFields, UsageError
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.grouping import seeds_key
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.shipped import FOREIGN, SHIPPED, standing
from fa_registry.records import AuditReport, EditionReference
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import read_record
from fa_registry.training.model_folder import Opinion


def opinions(tracker: Tracker, run: StoredRun, edition: str) -> tuple[str, tuple[Opinion, ...]]:
    """The id of the newest audit of `run`, and what each of its editions says; `edition` first (else the audit's leading one).

    Raises UsageError with the command to type where the run was never audited, by other editions alone, or before its files
    became what they are; IntegrityError where the audit's report, or the run, is not what was recorded.
    """
    audit_run_id = run.tags.get(schema.TAG_REPORT, "")
    if not audit_run_id:
        raise UsageError(f"run {run.run_id} ({run.name}) was never audited; judge it first: {_audit(run, edition)}")
    report = recorded_report(tracker, audit_run_id, _audit(run, edition))
    place = next((at for at, one in enumerate(report.runs) if one.record.run_id == run.run_id), None)
    if place is None:
        raise IntegrityError(
            f"run {run.run_id}: the tag {schema.TAG_REPORT} names audit {audit_run_id}, which did not judge it"
        )
    if report.runs[place].record.digests != read_record(tracker, run).digests:
        raise UsageError(
            f"run {run.run_id}: audit {audit_run_id} judged other files than it has now; judge it again: {_audit(run, edition)}"
        )
    said = [Opinion(report.edition, report.runs[place].verdict, report.runs[place].findings)]
    for other in report.opinions:
        judgement = other.judgements[place]
        said.append(Opinion(other.edition, judgement.verdict, judgement.findings))
    deciding = _deciding(run, [one.edition for one in said], edition)
    for one in said:
        _check_limits(run, one)
        _check_verdict(run, one, report, place)
    return audit_run_id, tuple(sorted(said, key=lambda one: one.edition != deciding))  # sorted keeps the others' order


def _deciding(run: StoredRun, judged_by: list[EditionReference], edition: str) -> EditionReference:
    """Which edition's verdict decides. One with changed thresholds is not the edition: it can be told, it cannot decide.

    Nor can one that has a shipped edition's name and another digest: an audit's report can be changed in the store.
    """
    wanted = _reference(edition) if edition else None
    whole = [one for one in judged_by if not one.overrides and standing(one) != FOREIGN]
    found = next((one for one in whole if _is(one, wanted)), None)
    if found is None:
        names = ", ".join(signature(one) for one in judged_by)
        raise UsageError(
            f"run {run.run_id} ({run.name}): expected a verdict by edition {signature(wanted) if wanted else 'as published'}, "
            f"its newest audit judged by {names}; judge it first: {_audit(run, edition)}"
        )
    return found


def _check_limits(run: StoredRun, opinion: Opinion) -> None:
    """Raise IntegrityError where a shipped edition's verdict rests on limits that it does not have."""
    if standing(opinion.edition) != SHIPPED:
        return
    asked = load_edition(
        opinion.edition.name, {name: float(limit) for name, limit in opinion.edition.overrides.items()}
    )
    limits = {rule.code: [condition.threshold for condition in rule.conditions] for rule in asked.rules}
    wrong = [
        f"{one.rule} at {one.threshold:g}"
        for one in opinion.findings
        if one.threshold is not None and one.threshold not in limits.get(one.rule, ())
    ]
    if wrong:
        raise IntegrityError(
            f"run {run.run_id}: its newest audit names edition {signature(opinion.edition)} and judged by other limits: "
            f"{', '.join(wrong)}"
        )


def _check_verdict(run: StoredRun, opinion: Opinion, report: AuditReport, place: int) -> None:
    """Raise IntegrityError where a shipped edition, asked again about the report's own figures, says something else of the run."""
    if standing(opinion.edition) != SHIPPED:
        return
    limits = {name: float(limit) for name, limit in opinion.edition.overrides.items()}
    looks = {
        seeds_key(one.record.spec): max([finding.look for finding in one.findings], default=1) for one in report.runs
    }
    records = [one.record for one in report.runs]
    again = judge_all(records, load_edition(opinion.edition.name, limits), report.waivers, looks)[place].verdict
    if again != opinion.verdict:
        raise IntegrityError(
            f"run {run.run_id}: its newest audit says {opinion.verdict.label} by edition {signature(opinion.edition)}, and its own "
            f"figures are {again.label} by it"
        )


def _is(one: EditionReference, wanted: EditionReference | None) -> bool:
    """Of the same name and rules; of any where none is wanted."""
    return wanted is None or (one.name, one.digest) == (wanted.name, wanted.digest)


def _reference(edition: str) -> EditionReference:
    problems: list[str] = []
    loaded = load_or_name(edition, problems)
    if loaded is None:
        raise InvalidFields("promote", problems)
    return loaded.reference


def _audit(run: StoredRun, edition: str) -> str:
    """The command that judges the run, with its frozen control and its other seeds where it is of a study."""
    study = run.tags.get(schema.TAG_STUDY, "")
    chosen = f"--study {study}" if study else f"--run {run.run_id}"
    return f"`fa-registry audit {chosen}" + (f" --edition {edition}`" if edition else "`")
