"""The command `promote`: register the weights of an audited run as a model version with its verdict."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fa_registry.audits.proof import check_record
from fa_registry.audits.publication import verdict_text
from fa_registry.audits.recorded_verdicts import auditing
from fa_registry.audits.reports import recorded_report
from fa_registry.audits.second_judgement import check_verdicts, judged_again
from fa_registry.audits.selection import add_unaudited_runs
from fa_registry.errors import IntegrityError, PromotionRefused, UsageError, join_names
from fa_registry.evidence.duplicate_weights import compared
from fa_registry.evidence.remeasure import remeasure_run
from fa_registry.protocol.builtin_editions import DIGEST, FOREIGN, SHIPPED, describe_edition, provenance_of
from fa_registry.protocol.rules import load_edition
from fa_registry.provenance import login_name
from fa_registry.records import FROZEN_LONG, AuditReport, EditionReference, Judgement, RunAudit, RunRecord, RunSpec
from fa_registry.reporting.results import Result
from fa_registry.studies.editions import signature
from fa_registry.studies.options import StoreLocation
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.models import ModelRegistry, recorded_tags
from fa_registry.tracking.reader import check_files, read_record, training_run
from fa_registry.tracking.run_state import RunState
from fa_registry.tracking.stores import open_tracker

Opinion = tuple[EditionReference, RunAudit | Judgement]  # an edition, and what it finds about the run
ADOPTED = "adopted"  # the alias of a run that was trained elsewhere
NEEDS_REASON = ("fail", "incomplete")  # missing evidence is never a pass
SHOWN = 6  # largest number of left-out runs in a message


@dataclass(frozen=True, repr=False)
class Promotion(Result):
    """Result of `run_promote`: the version, its verdicts, and the aliases that were set."""

    name: str
    version: str
    reference: str
    run_id: str
    verdict: str
    proof: str
    edition: str
    promoted: bool
    verdicts: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    despite: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines that the command prints."""
        outcome = "promoted" if self.promoted else "already promoted with this verdict"
        yield f"{self.reference}: run {self.run_id} {outcome}, {self.verdict} · {self.proof} by edition {self.edition}"
        others = ", ".join(f"{label} by {name}" for name, label in self.verdicts.items() if name != self.edition)
        facts = {"other editions": others, "promoted despite": self.despite, "aliases": ", ".join(self.aliases)}
        yield from (f"  {fact}: {text}" for fact, text in facts.items() if text)
        yield f'to load the model: fa_registry.load_model("{self.reference}")'


def run_promote(
    run: str,
    name: str = "",
    edition: str = "",
    despite: str | None = None,
    author: str = "",
    location: StoreLocation = StoreLocation(),
) -> Promotion:
    """Register the files of an audited run as a model version whose tags contain the verdicts.

    First, the metrics of the run are recomputed as in `verify`. See the command `promote` for the arguments.
    """
    tracker = open_tracker(location.store, create=False, write=True)
    stored = training_run(tracker, run)
    opinions = audited_verdicts(tracker, stored, edition)
    check_override(stored, opinions[0], despite)
    record = verified(tracker, stored, location.root)  # slow, therefore after the cheap checks
    tags = version_tags(record, opinions, (despite or "").strip(), author)
    name = name or model_name(record.spec, record.setting)
    registry, aliases = ModelRegistry(tracker.uri), version_aliases(opinions[0], bool(record.spec.weights))
    same_name = [version for version in registry.versions_of(record.run_id) if version.name == name]
    existing = next((version for version in same_name if tags.items() <= version.tags.items()), None)
    audit = {schema.TAG_REPORT: stored.tags[schema.TAG_REPORT]}
    version = existing or registry.register(name, record.run_id, {**tags, **audit})
    # an existing version does not get the alias again, because a newer version may have it; a killed promotion set none
    aliases = () if existing and aliases[0] in registry.aliases(name) else aliases
    registry.set_aliases(version, aliases)
    return Promotion(
        name=name,
        version=str(version.version),
        reference=f"models:/{name}/{version.version}",
        run_id=record.run_id,
        verdict=opinions[0][1].verdict.label,
        proof=opinions[0][1].verdict.proof,
        edition=describe_edition(opinions[0][0]),
        promoted=existing is None,
        verdicts={describe_edition(reference): judged.verdict.label for reference, judged in opinions},
        aliases=aliases,
        despite=tags.get(schema.TAG_DESPITE, ""),
    )


def audited_verdicts(tracker: Tracker, run: StoredRun, edition: str) -> list[Opinion]:
    """Return what each edition of the newest audit finds about the run, the deciding edition first.

    Raises:
        UsageError: the run was not trained to its end, no audit by `edition` judged its present files, or the audit left out
            complete runs of the same method and setting.
        IntegrityError: the audit's record does not follow from the files of the runs and from the editions.
    """
    audit_id, command = auditing(run), audit_command(run, edition)
    if not RunState(run).is_finished:
        status = RunState(run).status or "not set"
        raise UsageError(f"run {run.run_id} ({run.name}): expected a finished training run, found the status {status}")
    if not audit_id:
        raise UsageError(f"run {run.run_id} ({run.name}) was never audited; audit the run first: {command}")
    report = recorded_report(tracker, audit_id, command)
    index = next((at for at, judged in enumerate(report.runs) if judged.record.run_id == run.run_id), None)
    if index is None:
        reasons = [f"excluded the run: {other.reason}" for other in report.excluded if other.run_id == run.run_id]
        found = next(iter(reasons), "did not judge the run")
        raise IntegrityError(f"run {run.run_id}: audit {audit_id} {found}; audit the run again: {command}")
    record = report.runs[index].record
    if record.digests != read_record(tracker, run).digests:
        raise UsageError(f"run {run.run_id}: its files were changed after the audit; audit the run again: {command}")
    check_audit(tracker, run, report, record.spec, command)
    check_second_training(tracker, report, index, command)
    opinions: list[Opinion] = [(report.edition, report.runs[index])]
    opinions += [(opinion.edition, opinion.judgements[index]) for opinion in report.opinions]
    deciding = deciding_edition(run, [reference for reference, _ in opinions], edition)
    return sorted(opinions, key=lambda opinion: opinion[0] != deciding)  # the others keep their order


def check_audit(tracker: Tracker, run: StoredRun, report: AuditReport, spec: RunSpec, command: str) -> None:
    """Compare the audit of a run with all runs of its setting in the store, and judge these runs again.

    Raises:
        UsageError: the audit left out complete runs of the same method, which may have been trained after the audit.
        IntegrityError: verdicts do not follow from records, or records do not follow from files.
    """
    judged = tuple(other for other in report.runs if other.record.spec.setting.identity == spec.setting.identity)
    stored = [tracker.get(other.record.run_id) for other in judged]
    left_out = add_unaudited_runs(tracker, replace(report, runs=judged), stored).left_out
    if missing := [
        other for other in left_out if other.spec.seeds == spec.seeds or other.spec.control in ("frozen", FROZEN_LONG)
    ]:
        labels = [f"seed {other.spec.seed} of {other.spec.method_label} (run {other.run_id})" for other in missing]
        raise UsageError(
            f"run {run.run_id} ({run.name}): audit {run.tags[schema.TAG_REPORT]} did not judge all complete runs of the same "
            f"method and setting, but left out {join_names(labels, SHOWN)}; audit all of them together first"
        )
    pairs = zip(stored, (other.record for other in judged), strict=True)
    checks = {f"run {record.run_id}": check_record(tracker, other, record) for other, record in pairs}
    # True: if another release made the audit and judged otherwise, the audit has to be repeated too
    for subject, check in {**checks, "audit": check_verdicts(report, True)}.items():
        if check.state == "mismatch":
            raise IntegrityError(f"{subject}: {'; '.join(check.details)}; audit the run again: {command}")


def check_second_training(tracker: Tracker, report: AuditReport, index: int, command: str) -> None:
    """Judge the recorded weights too, if the audit judged second trainings on another machine.

    Such a training cannot be compared with the files of the run. So the recorded weights must have the same outcome.

    Raises:
        IntegrityError: by a built-in edition, the recorded weights have another outcome.
    """
    if not any(judged.record.recorded_result for judged in report.runs):
        return
    runs = tuple(replace(judged, record=_recorded_weights(tracker, judged.record)) for judged in report.runs)
    for reference, judged in [
        (report.edition, report.runs),
        *((one.edition, one.judgements) for one in report.opinions),
    ]:
        if provenance_of(reference) == SHIPPED:
            found = judged_again(replace(report, runs=runs), reference)[index].verdict
            if found.outcome != judged[index].verdict.outcome:
                raise IntegrityError(
                    f"the audit judged a second training on another machine, {judged[index].verdict.label}; the recorded weights "
                    f"are {found.label} by edition {reference.name}. Audit the run on the configuration of its training: {command}"
                )


def _recorded_weights(tracker: Tracker, record: RunRecord) -> RunRecord:
    if record.recorded_result is None:
        return record
    return replace(
        record,
        measurements=read_record(tracker, tracker.get(record.run_id)).measurements,
        recorded_result=None,
    )


def audit_command(run: StoredRun, edition: str) -> str:
    """Return the `audit` command for the run's study, or for the run if it belongs to no study."""
    study = run.tags.get(schema.TAG_STUDY, "")
    selection = ["--study", study] if study else ["--run", run.run_id]
    return f"`{shlex.join(['fa-registry', 'audit', *selection, *(['--edition', edition] if edition else [])])}`"


def deciding_edition(run: StoredRun, candidates: list[EditionReference], edition: str) -> EditionReference:
    """Return the edition whose verdict decides.

    An edition with changed thresholds never decides. Neither does one with a built-in name and another digest.
    """
    asked = load_edition(edition).reference if edition else None
    for candidate in candidates:
        is_asked = asked is None or (candidate.name, candidate.digest) == (asked.name, asked.digest)
        if is_asked and not candidate.overrides and provenance_of(candidate) != FOREIGN:
            return candidate
    expected = f"edition {signature(asked)}" if asked else "any edition with unchanged thresholds"
    raise UsageError(
        f"run {run.run_id} ({run.name}): expected an audit by {expected}, but the newest audit of the run used "
        f"{', '.join(map(signature, candidates))}; audit the run first: {audit_command(run, edition)}"
    )


def check_override(run: StoredRun, opinion: Opinion, reason: str | None) -> None:
    """Raise PromotionRefused if a reason is missing, and UsageError if it is not necessary."""
    edition, judged = opinion
    verdict = (
        f"run {run.run_id} ({run.name}) has the verdict {judged.verdict.full_label} by {describe_edition(edition)}"
    )
    is_needed = judged.verdict.outcome in NEEDS_REASON
    if reason is not None and not reason.strip():
        raise UsageError("despite (--override-reason): expected a reason, found none")
    if is_needed and reason is None:
        objections = [
            one.sentence for one in judged.findings if one.gating and (one.outcome == "fail" or one.is_missing)
        ]
        advice = 'To promote it nevertheless, give a reason, which is stored with the model: --override-reason "reason"'
        raise PromotionRefused("\n  - ".join([f"{verdict} and is not promoted. {advice}", *objections]))
    if reason is not None and not is_needed:
        raise UsageError(f"{verdict}, which needs no reason; omit --override-reason")


def verified(tracker: Tracker, run: StoredRun, data_root: Path | None = None) -> RunRecord:
    """Return the run's record with recomputed metrics.

    The metrics are the recorded ones if this machine cannot recompute them. Raise IntegrityError if a file or a metric differs from
    what was recorded.
    """
    (record,) = compared(tracker, [remeasure_run(tracker, run, data_root=data_root)[0]])
    if record.status not in schema.FINISHED_STATUSES:
        raise IntegrityError(f"run {run.run_id} ({run.name}): its recorded files have the status {record.status}")
    if record.integrity.state == "mismatch":
        raise IntegrityError(f"run {run.run_id} ({run.name}): {'; '.join(record.integrity.details)}")
    feedback = {name: digest for name, digest in record.digests.items() if name == schema.FEEDBACK}
    check_files(tracker, run.run_id, {schema.FINAL: record.digests.get(schema.FINAL, "none"), **feedback})
    return record


def version_tags(record: RunRecord, opinions: list[Opinion], despite: str, author: str) -> dict[str, str]:
    """Return the tags of the version: verdicts, edition, digests, and the reason if one is needed."""
    deciding, judged = opinions[0]
    tags = {
        **{schema.verdict_tag(reference): one.verdict.label for reference, one in opinions},
        schema.TAG_VERDICT: verdict_text(judged.verdict, deciding),
        schema.TAG_PROOF: judged.verdict.proof,
        schema.TAG_EDITION: f"{describe_edition(deciding)}, sha256 {deciding.digest}",
        schema.TAG_RUN: record.run_id,
        schema.TAG_METHOD: record.spec.method_label,
        schema.TAG_SETTING: record.setting,
        schema.TAG_INTEGRITY: record.integrity.state,
        schema.TAG_CONTROL: "" if record.spec.control == "none" else record.spec.control,
        schema.TAG_DESPITE: despite,
        schema.TAG_AUTHOR: (author or login_name()) if despite else "",
        **recorded_tags(record),
    }
    return {tag: value for tag, value in tags.items() if value}


def version_aliases(deciding: Opinion, is_adopted: bool) -> tuple[str, ...]:
    """Return the aliases of a version; the first one is that of the deciding verdict.

    For example `pass`, or `pass-lenient-1a2b3c4d` if the edition is not built in. Every adopted run has the alias `adopted`, which
    replaces the verdict unless the promotion needs a reason.
    """
    edition, outcome = deciding[0], deciding[1].verdict.outcome
    label = ADOPTED if is_adopted and outcome not in NEEDS_REASON else outcome
    if provenance_of(edition) != SHIPPED:
        label = "-".join(filter(None, (label, _slug(edition.name, "_")[:100], edition.digest[:DIGEST])))
    return (label, ADOPTED) if is_adopted and label != ADOPTED else (label,)


def model_name(spec: RunSpec, setting: str) -> str:
    """Return a name valid in MLflow and in a shell, such as `dfa-pen-0.01--resmlp-256x4-digits-30-epochs`."""
    return f"{_slug(spec.method_label, '.')}--{_slug(setting, '.')}"[:200].rstrip("-.")


def _slug(text: str, kept: str) -> str:
    return re.sub(rf"[^a-z0-9{re.escape(kept)}]+", "-", text.lower()).strip(f"-{kept}")
