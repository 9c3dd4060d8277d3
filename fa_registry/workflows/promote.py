"""The command `promote`: register the weights of an audited run as a model version with its verdict."""

from __future__ import annotations

import dataclasses
import getpass
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fa_registry import jsonio, methods, process_ownership
from fa_registry.errors import IntegrityError, InvalidFields, PromotionRefused, UsageError, join_names, pluralise
from fa_registry.metrics import ACCURACY
from fa_registry.protocol.builtin_editions import DIGEST, FOREIGN, SHIPPED, describe_edition, provenance_of
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport, EditionReference, Reading, RunRecord, RunSpec
from fa_registry.reporting.pages.form_tables import description
from fa_registry.reporting.text.filters import fence, markdown_text, reading
from fa_registry.tracking import models, schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.models import (
    FILES,
    FOLDER,
    ModelRegistry,
    RegisteredVersion,
    folder_name,
    promotion_key,
    verdict_tags,
)
from fa_registry.tracking.reader import expand_run_id, read_record
from fa_registry.training import model_folder
from fa_registry.training.model_folder import ModelCard, Opinion, PromotionOverride
from fa_registry.workflows.audit_proof import check_record
from fa_registry.workflows.audit_publication import verdict_text
from fa_registry.workflows.duplicate_weights import compared
from fa_registry.workflows.editions import load_or_name, signature
from fa_registry.workflows.options import StoreLocation
from fa_registry.workflows.remeasure import remeasure_run
from fa_registry.workflows.reports import recorded_report
from fa_registry.workflows.results import Result
from fa_registry.workflows.second_judgement import judged_again
from fa_registry.workflows.selection import add_unaudited_runs
from fa_registry.workflows.stores import open_tracker


@dataclass(frozen=True, repr=False)
class Promotion(Result):
    """Result of `run_promote`.

    Attributes:
        reference: model reference for `load_model`.
        verdict, edition: the verdict that decided the promotion, and the edition of this verdict.
        promoted: False if the same version existed before.
        verdicts: mapping from the description of each edition of the audit to its verdict.
        aliases: aliases that this promotion set.
        despite: reason why a failed run was promoted; empty if no reason was necessary.
    """

    name: str
    version: str
    reference: str
    run_id: str
    verdict: str
    edition: str
    promoted: bool
    verdicts: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    despite: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines that the command prints."""
        outcome = "promoted" if self.promoted else "already promoted with this verdict"
        yield f"{self.reference}: run {self.run_id} {outcome}, {self.verdict} by edition {self.edition}"
        other_verdicts = [f"{label} by {name}" for name, label in self.verdicts.items() if name != self.edition]
        if other_verdicts:
            yield f"  other editions: {', '.join(other_verdicts)}"
        if self.despite:
            yield f"  promoted despite {self.verdict}: {self.despite}"
        if self.aliases:
            yield f"  aliases: {', '.join(self.aliases)}"
        yield f'to load the model: fa_registry.load_model("{self.reference}")'


def verdicts_by_edition(tracker: Tracker, run: StoredRun, edition: str) -> tuple[str, tuple[Opinion, ...]]:
    """Return the id of the newest audit of `run`, and the verdict of each edition of this audit.

    The verdict of `edition` comes first. If `edition` is empty, the verdict of the audit's leading edition comes first.

    Raises:
        UsageError: the run was never audited, was audited only by other editions, its files changed after the audit, or the audit
            left out other seeds. The message gives the command that audits the run.
        IntegrityError: the audit's report or the run differs from what was recorded.
    """
    audit_run_id, command = run.tags.get(schema.TAG_REPORT, ""), _audit(run, edition)
    if not audit_run_id:
        raise UsageError(f"run {run.run_id} ({run.name}) was never audited; audit the run first: {command}")
    report = recorded_report(tracker, audit_run_id, command)
    index = next((position for position, other in enumerate(report.runs) if other.record.run_id == run.run_id), None)
    if index is None:
        raise IntegrityError(
            f"run {run.run_id}: the tag {schema.TAG_REPORT} names audit {audit_run_id}, but this audit did not judge the run"
        )
    _check_left_out(tracker, run, report, index)
    setting = report.runs[index].record.spec.setting.identity
    if report.runs[index].record.digests != read_record(tracker, run).digests:
        text = f"the files of the run were changed after audit {audit_run_id}"
        raise UsageError(f"run {run.run_id}: {text}; audit the run again: {command}")
    opinions = [Opinion(report.edition, report.runs[index].verdict, report.runs[index].findings)]
    for other in report.opinions:
        judgement = other.judgements[index]
        opinions.append(Opinion(other.edition, judgement.verdict, judgement.findings))
    for other in report.runs:
        if other.record.spec.setting.identity == setting:
            _check_record(tracker, audit_run_id, other.record)
    deciding = _deciding(run, [opinion.edition for opinion in opinions], edition)
    for opinion in opinions:
        if provenance_of(opinion.edition) == SHIPPED:
            _check_opinion(run, opinion, report, index)
    # the other opinions keep their order
    return audit_run_id, tuple(sorted(opinions, key=lambda opinion: opinion.edition != deciding))


def _check_left_out(tracker: Tracker, run: StoredRun, report: AuditReport, index: int) -> None:
    """Raise UsageError if the audit left out complete runs of the same method and setting.

    The store is searched again, because runs may have been trained after the audit, and its report could have been edited.
    """
    spec = report.runs[index].record.spec
    related = tuple(other for other in report.runs if other.record.spec.setting.identity == spec.setting.identity)
    judged = [tracker.get(other.record.run_id) for other in related]
    found = add_unaudited_runs(tracker, dataclasses.replace(report, runs=related), judged).left_out
    if missing := [other for other in found if other.spec.seeds == spec.seeds or other.spec.control == "frozen"]:
        labels = [f"seed {other.spec.seed} of {other.spec.method_label} (run {other.run_id})" for other in missing]
        count, names = pluralise(len(missing), "complete run"), join_names(labels, SHOWN)
        raise UsageError(
            f"run {run.run_id} ({run.name}): the store has {count} of the same method and setting that audit "
            f"{run.tags[schema.TAG_REPORT]} did not judge: {names}; audit all of them together first"
        )


def _audit(run: StoredRun, edition: str) -> str:
    """Return the `audit` command for the run's study, or for the run if it belongs to no study."""
    study = run.tags.get(schema.TAG_STUDY, "")
    selection = ["--study", study] if study else ["--run", run.run_id]
    arguments = ["fa-registry", "audit", *selection, *(["--edition", edition] if edition else [])]
    return f"`{shlex.join(arguments)}`"


def _check_record(tracker: Tracker, audit_run_id: str, record: RunRecord) -> None:
    """Raise IntegrityError if the audit's report and the run have different metrics."""
    integrity = check_record(tracker, tracker.get(record.run_id), record)
    if integrity.state == "mismatch":
        raise IntegrityError(
            f"audit {audit_run_id}: run {record.run_id} ({record.name}): {'; '.join(integrity.details)}; audit the run again"
        )


def _check_opinion(run: StoredRun, opinion: Opinion, report: AuditReport, index: int) -> None:
    """Raise IntegrityError if the report's thresholds or verdict are not those of the built-in edition.

    The metrics in the report are judged again.
    """
    overrides = {code: float(threshold) for code, threshold in opinion.edition.overrides.items()}
    edition = load_edition(opinion.edition.name, overrides)
    limits = {rule.code: [condition.threshold for condition in rule.conditions] for rule in edition.rules}
    changed_thresholds = [
        f"{finding.rule} at {finding.threshold:g}"
        for finding in opinion.findings
        if finding.threshold is not None and finding.threshold not in limits.get(finding.rule, ())
    ]
    if changed_thresholds:
        raise IntegrityError(
            f"run {run.run_id}: the newest audit names edition {signature(opinion.edition)} but used other thresholds: "
            f"{', '.join(changed_thresholds)}; audit the run again"
        )
    recomputed_verdict = judged_again(report, opinion.edition)[index].verdict
    if recomputed_verdict != opinion.verdict:
        raise IntegrityError(
            f"run {run.run_id}: the newest audit reports {opinion.verdict.label} by edition {signature(opinion.edition)}, "
            f"but judging the metrics in the report again by this edition gives {recomputed_verdict.label}"
        )


def _deciding(run: StoredRun, candidates: list[EditionReference], edition: str) -> EditionReference:
    """Return the edition whose verdict decides whether the run may be promoted.

    An edition with changed thresholds cannot decide. An edition that has the name of a built-in edition but another digest
    cannot decide either, because the report in the store could have been edited.
    """
    problems: list[str] = []
    loaded = load_or_name(edition, problems) if edition else None
    if problems:
        raise InvalidFields("promote", problems)
    request = loaded.reference if loaded else None
    for candidate in candidates:
        is_requested = request is None or (candidate.name, candidate.digest) == (request.name, request.digest)
        if is_requested and not candidate.overrides and provenance_of(candidate) != FOREIGN:
            return candidate
    names = ", ".join(signature(reference) for reference in candidates)
    expected = f"edition {signature(request)}" if request else "any edition with unchanged thresholds"
    raise UsageError(
        f"run {run.run_id} ({run.name}): expected an audit by {expected}, but the newest audit of the run used {names}; "
        f"audit the run first: {_audit(run, edition)}"
    )


def run_promote(
    run: str,
    name: str = "",
    edition: str = "",
    despite: str | None = None,
    author: str = "",
    location: StoreLocation = StoreLocation(),
) -> Promotion:
    """Register a run's final weights as a model version, with card, feedback and specification.

    Before anything is written, all metrics of the run are recomputed as in `verify`. If a metric or a file differs from what was
    recorded, nothing is written.

    Args:
        run: run id, or the first characters of it.
        name: name of the registered model. If empty, the name is made from method and setting.
        edition: edition whose verdict decides whether the run may be promoted. If empty, the leading edition of the newest audit
            decides.
        despite: reason to promote a run whose verdict is FAIL or INCOMPLETE.
        author: person who gives the reason `despite`. If empty, the user's login name is used.

    Raises:
        InvalidFields: lists all invalid arguments.
        UsageError: the run is not finished, was not audited, or needs a reason `despite`.
        IntegrityError: a file or a metric differs from what was recorded.
        StoreError: the store cannot be used.
    """
    check_text(name, despite)
    tracker = open_tracker(location.store, create=False, write=True)
    stored = tracker.get(expand_run_id(tracker, run))
    check_finished(stored)
    audit_run_id, opinions = verdicts_by_edition(tracker, stored, edition)
    deciding = opinions[0]
    reason = check_override(stored, deciding, despite, author)
    record = verified(tracker, stored, location.root)  # slow, therefore after the cheap checks
    card = _card(record, opinions, audit_run_id, reason)
    name = name or model_name(record.spec, record.setting)
    registry, key = ModelRegistry(tracker.uri), promotion_key(card)
    versions = registry.versions(name)
    existing_version = next((other for other in versions if other.tags.get(models.TAG_PROMOTION) == key), None)
    version = existing_version or _register(tracker, registry, record, card, name)
    # an existing version does not get the alias of the verdict again, because a newer version may have the alias now
    main_alias = verdict_alias(deciding, bool(record.spec.weights))
    origin_aliases = [ADOPTED] if record.spec.weights else []
    # after a killed promotion, no version has the alias
    is_alias_taken = existing_version and any(main_alias in other.aliases for other in versions)
    new_aliases = () if is_alias_taken else tuple(dict.fromkeys([main_alias, *origin_aliases]))
    for alias in new_aliases:
        registry.set_alias(version, alias)
    return Promotion(
        name=name,
        version=version.version,
        reference=version.reference,
        run_id=record.run_id,
        verdict=deciding.verdict.label,
        edition=describe_edition(deciding.edition),
        promoted=existing_version is None,
        verdicts={describe_edition(opinion.edition): opinion.verdict.label for opinion in opinions},
        aliases=new_aliases,
        despite=reason.reason if reason else "",
    )


def _card(
    record: RunRecord, opinions: tuple[Opinion, ...], audit_run_id: str, despite: PromotionOverride | None
) -> ModelCard:
    method = methods.CATALOG.get(record.spec.method).card
    return ModelCard(
        method=record.spec.label,
        setting=record.setting,
        control=record.spec.control,
        run_id=record.run_id,
        run_name=record.name,
        identity=record.spec.identity,
        accuracy=record.measurements.scalars.get(ACCURACY.name, Reading(None, "not measured")),
        opinions=opinions,
        audit_run_id=audit_run_id,
        integrity=record.integrity,
        # a file without a recorded digest is no evidence
        digests={name: record.digests[artifact] for name, artifact in FILES.items() if artifact in record.digests},
        despite=despite,
        feedback=record.feedback,
        provenance=record.provenance,
        citation=method.citation,
        bibtex=method.bibtex,
    )


def _register(
    tracker: Tracker, registry: ModelRegistry, record: RunRecord, card: ModelCard, name: str
) -> RegisteredVersion:
    """Upload the version's files to the run, and register them as a model version.

    An MLflow server accepts only versions whose files are artifacts of a run.
    """
    with process_ownership.temp_dir("fa_registry-promote-") as upload:
        folder = upload / FOLDER / "card"
        _copy(tracker, card, folder)
        text = model_card_text(card, name)
        (folder / model_folder.CARD_TEXT).write_bytes(text.encode("utf-8", errors="backslashreplace"))
        text_digests = {model_folder.CARD_TEXT: jsonio.file_digest(folder / model_folder.CARD_TEXT)}
        full_card = dataclasses.replace(card, digests={**card.digests, **text_digests})
        (folder / model_folder.CARD).write_text(jsonio.pretty(full_card), encoding="utf-8")
        digest = jsonio.file_digest(folder / model_folder.CARD)
        tags = {models.TAG_CARD: digest, **_tags(card, record.spec)}
        path = f"{FOLDER}/{folder_name(promotion_key(card), digest)}"
        folder.rename(upload / path)
        tracker.upload(card.run_id, upload)
    return registry.register(name, card.run_id, path, tags, text)


def _copy(tracker: Tracker, card: ModelCard, folder: Path) -> None:
    """Copy the run's files into `folder`; raise IntegrityError if a file is missing or has another digest."""
    paths = {name: tracker.artifact(card.run_id, FILES[name]) for name in card.digests}
    missing = [FILES[name] for name, path in paths.items() if path is None]
    if missing:
        raise IntegrityError(f"run {card.run_id}: {', '.join(missing)}: expected a file, found none")
    copied = model_folder.fill_folder(folder, paths)
    changed = [FILES[name] for name, digest in copied.items() if digest != card.digests[name]]
    if changed:
        raise IntegrityError(f"run {card.run_id}: {', '.join(changed)}: the content differs from the recorded digest")


def _tags(card: ModelCard, spec: RunSpec) -> dict[str, str]:
    deciding = card.opinions[0]
    tags = {
        **verdict_tags(card),
        schema.TAG_VERDICT: verdict_text(deciding.verdict, deciding.edition),
        models.TAG_EDITION: f"{describe_edition(deciding.edition)}, sha256 {deciding.edition.digest}",
        models.TAG_RUN: card.run_id,
        schema.TAG_REPORT: card.audit_run_id,
        schema.TAG_SPEC: card.identity,
        models.TAG_METHOD: spec.method_label,
        schema.TAG_SETTING: card.setting,
        models.TAG_INTEGRITY: card.integrity.state,
        models.TAG_WEIGHTS: card.digests[model_folder.NETWORK],
        models.TAG_FEEDBACK: card.digests.get(model_folder.FEEDBACK, ""),
        models.TAG_CONTROL: "" if card.control == "none" else card.control,
        models.TAG_DESPITE: card.despite.reason if card.despite else "",
        models.TAG_AUTHOR: card.despite.author if card.despite else "",
        models.TAG_PROMOTION: promotion_key(card),
    }
    return {tag: value for tag, value in tags.items() if value}


# Checks before anything is written: whether a run may be promoted, and under which name.


# MLflow refuses / and :, and MLflow's queries cannot escape a quote
NAME = re.compile(r"[A-Za-z0-9][\w.+=() -]{0,199}", re.ASCII)
ADOPTED = "adopted"  # the alias of a run that was trained elsewhere
NEEDS_REASON = ("fail", "incomplete")  # missing evidence is never a pass
SPEAKS_AGAINST = ("fail", "error", "not_applicable")
SHOWN = 6  # largest number of left-out runs in a message
MAX_REASON = 1000  # characters; the description of a version begins with the reason and also contains the verdict


def check_text(name: str, despite: str | None) -> None:
    """Raise InvalidFields if the name of the model or the reason is invalid."""
    problems = []
    if name and not NAME.fullmatch(name):
        problems.append(
            f"name: expected at most 200 letters, digits, spaces and _.+=()-, beginning with a letter or digit, found {name!r}"
        )
    if despite is not None and not despite.strip():
        problems.append("despite (--override-reason): expected a reason, found none")
    if despite and len(despite) > MAX_REASON:
        problems.append(f"despite (--override-reason): expected at most {MAX_REASON} characters, found {len(despite)}")
    if problems:
        raise InvalidFields("promote", problems)


def check_finished(run: StoredRun) -> None:
    """Raise UsageError if the run is not a training run that was trained to its end."""
    status = run.tags.get(schema.TAG_STATUS, "not set")
    if run.tags.get(schema.TAG_KIND) != "run":
        raise UsageError(f"run {run.run_id} ({run.name}) is not a training run and has no weights to promote")
    if status not in schema.FINISHED_STATUSES:
        raise UsageError(
            f"run {run.run_id} ({run.name}): {schema.TAG_STATUS}: expected {' or '.join(schema.FINISHED_STATUSES)}, "
            f"found {status}; only a run that was trained to its end can be promoted"
        )


def verified(tracker: Tracker, run: StoredRun, data_root: Path | None = None) -> RunRecord:
    """Return the run's record with recomputed metrics.

    If this machine cannot recompute metrics, for example because it has no GPU, the recorded metrics are accepted. The model
    card then states `unverifiable`.

    Raises:
        IntegrityError: a file or a metric differs from what was recorded.
    """
    measured, _ = remeasure_run(tracker, run, data_root=data_root)
    (record,) = compared(tracker, [measured])
    if record.status not in schema.FINISHED_STATUSES:
        raise IntegrityError(
            f"run {run.run_id} ({run.name}): expected a finished run, found status {record.status} in its recorded files"
        )
    if record.integrity.state == "mismatch":
        raise IntegrityError(f"run {run.run_id} ({run.name}): {'; '.join(record.integrity.details)}")
    return record


def check_override(run: StoredRun, opinion: Opinion, reason: str | None, author: str) -> PromotionOverride | None:
    """Return the reason and author for promoting a failed run, or None if no reason is necessary.

    Args:
        opinion: the verdict that decides whether the run may be promoted.
        reason: the reason that the user gave; None if the user gave no reason.
        author: author of the reason. If empty, the user's login name is used.

    Raises:
        PromotionRefused: a reason is necessary but missing.
        UsageError: a reason was given but is not necessary.
    """
    verdict = opinion.verdict
    if reason is None:
        if verdict.outcome in NEEDS_REASON:
            edition = describe_edition(opinion.edition)
            gating = (finding for finding in opinion.findings if finding.gating)
            objections = (f"\n  - {finding.sentence}" for finding in gating if finding.outcome in SPEAKS_AGAINST)
            raise PromotionRefused(
                f"run {run.run_id} ({run.name}) has the verdict {verdict.label} by edition {edition} and is not promoted. "
                'To promote the run nevertheless, give a reason, which is stored with the model: --override-reason "reason"'
                + "".join(objections)
            )
        return None
    if verdict.outcome not in NEEDS_REASON:
        text = f"has the verdict {verdict.label}, which needs no reason; omit --override-reason"
        raise UsageError(f"run {run.run_id} ({run.name}) {text}")
    return PromotionOverride(reason.strip(), author or _user())


def verdict_alias(deciding: Opinion, adopted: bool = False) -> str:
    """Return the alias for the deciding verdict, e.g. `pass`.

    If the edition is not built in, the alias also contains the edition's name and digest, e.g. `pass-lenient-1a2b3c4d`. The
    alias of an adopted run begins with `adopted`, unless the promotion needs a reason.
    """
    outcome, edition = deciding.verdict.outcome, deciding.edition
    outcome = ADOPTED if adopted and outcome not in NEEDS_REASON else outcome
    if provenance_of(edition) == SHIPPED:
        return outcome
    name = re.sub(r"[^a-z0-9_]+", "-", edition.name.lower()).strip("-")[:100]
    return "-".join(part for part in (outcome, name, edition.digest[:DIGEST]) if part)


def model_name(spec: RunSpec, setting: str) -> str:
    """Return a model name of the labels of method and setting, valid in MLflow and in a shell.

    Example: `dfa-pen-0.01--resmlp-256x4-digits-30-epochs`.
    """
    return f"{_slug(spec.method_label)}--{_slug(setting)}"[:200].rstrip("-.")


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's uid may have no name
        raise UsageError(
            "author: expected the name of the person who gives the reason, but this user has no login name; use --author NAME"
        ) from error


# The card of a promoted model in Markdown. All text that does not come from this package is escaped.


PROVENANCE = (
    "commit",
    "dirty",
    "versions",
    "hardware",
    "threads",
    "dataset_digest",
    "parameters",
    "epochs_run",
    "origin",
)


def model_card_text(card: ModelCard, name: str) -> str:
    """Return the card of the model `name` in Markdown; the reason to promote a failed run comes first."""
    lines = [*_head(card), "", *_facts(card, name)]
    for opinion in card.opinions:
        lines += ["", *_opinion(opinion)]
    lines += ["", "## Files (SHA-256)", "", *(f"- {name}: {digest}" for name, digest in card.digests.items())]
    provenance = {name: card.provenance[name] for name in PROVENANCE if name in card.provenance}
    lines += ["", "## Provenance", "", *_mapping(provenance)]
    if card.feedback:
        lines += ["", "## Feedback", "", *_mapping(card.feedback)]
    lines += ["", "## Citation", "", markdown_text(card.citation or "none recorded")]
    return "\n".join([*lines, *(["", fence(card.bibtex)] if card.bibtex else [])]) + "\n"


def _head(card: ModelCard) -> Iterator[str]:
    deciding = card.opinions[0]
    label = markdown_text(deciding.verdict.label)
    if card.despite:
        author, reason = markdown_text(card.despite.author), markdown_text(card.despite.reason)
        yield f"**Promoted despite {label}** by {author}: {reason}"
        yield ""
    control = f"**{markdown_text(card.control)} control** · " if card.control != "none" else ""
    edition = markdown_text(f"{describe_edition(deciding.edition)}, sha256 {deciding.edition.digest[:DIGEST]}")
    yield f"{control}**{label}** by edition {edition} · {markdown_text(card.method)} · {markdown_text(card.setting)}"
    other_verdicts = [f"{other.verdict.label} by {describe_edition(other.edition)}" for other in card.opinions[1:]]
    if other_verdicts:
        yield ""
        yield f"Other editions: {markdown_text('; '.join(other_verdicts))}"


def _facts(card: ModelCard, name: str) -> Iterator[str]:
    details = "; ".join(card.integrity.details)
    reason = f": {markdown_text(card.accuracy.reason)}" if card.accuracy.reason else ""
    yield f"- test accuracy: {reading(card.accuracy, 'pct')}{reason} (run {markdown_text(card.run_id)})"
    yield f"- run: {markdown_text(card.run_name)}; audit run {markdown_text(card.audit_run_id)}"
    yield f"- metrics {markdown_text(card.integrity.state)}: {markdown_text(details)}"
    yield f"- specification: {card.identity}"
    yield f'- to load the model: fa\\_registry.load\\_model("models:/{markdown_text(name)}/VERSION")'


def _opinion(opinion: Opinion) -> Iterator[str]:
    modified = " (modified)" if opinion.edition.overrides else ""
    yield f"## {markdown_text(opinion.verdict.label)} by {markdown_text(describe_edition(opinion.edition))}{modified}"
    yield ""
    yield f"Edition sha256 {opinion.edition.digest}"
    yield ""
    for finding in opinion.findings:
        gates = "" if finding.gating else ", does not count for the verdict"
        yield f"- {markdown_text(finding.outcome)}{gates}: {markdown_text(finding.sentence)}"
    if not opinion.findings:
        yield "- No rule judged this run."


def _mapping(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield f"- {markdown_text(name)}: {markdown_text(description(value))}"
