"""Whether a run may be promoted, and as what: everything that refuses a promotion before anything is written."""

from __future__ import annotations

import getpass
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from fa_registry.commands.evidence import gather
from fa_registry.commands.same_weights import compared
from fa_registry.errors import IntegrityError, InvalidFields, UsageError
from fa_registry.protocol.shipped import DIGEST, SHIPPED, edition_words, standing
from fa_registry.records import RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.training.model_folder import Despite, Opinion

NAME = re.compile(
    r"[A-Za-z0-9][\w.+=() -]{0,199}", re.ASCII
)  # MLflow refuses / and :, its queries cannot escape a quote
ALIAS = re.compile(r"[\w-]{1,200}", re.ASCII)
RESERVED = re.compile(r"latest|v\d+", re.IGNORECASE)  # by MLflow
VERDICT_ALIASES = ("pass", "warn", "fail", "incomplete", "control")
NEEDS_REASON = ("fail", "incomplete")  # missing evidence is never a pass
SPEAKS_AGAINST = ("fail", "error", "not_applicable")
MAX_REASON = 1000  # characters, so that a description that begins with it holds the verdict too


def check_words(name: str, aliases: Sequence[str], despite: str | None) -> None:
    """Raise InvalidFields for whatever was typed that no run could make right, all at once."""
    problems = []
    if name and not NAME.fullmatch(name):
        problems.append(
            f"name: expected at most 200 letters, digits, blanks and _.+=()-, a letter or digit first, found {name!r}"
        )
    for alias in aliases:
        if not ALIAS.fullmatch(alias) or RESERVED.fullmatch(alias):
            problems.append(f"alias: expected letters, digits, _ and -, and neither latest nor v3, found {alias!r}")
    if despite is not None and not despite.strip():
        problems.append("despite: expected a reason, found none")
    if despite and len(despite) > MAX_REASON:
        problems.append(f"despite: expected at most {MAX_REASON} characters, found {len(despite)}")
    if problems:
        raise InvalidFields("promote", problems)


def check_finished(run: StoredRun) -> None:
    """Raise UsageError unless the run was trained to its end."""
    status = run.tags.get(schema.TAG_STATUS, "not set")
    if run.tags.get(schema.TAG_KIND) != "run":
        raise UsageError(f"run {run.run_id} ({run.name}) is no training run: it has no weights to promote")
    if status not in schema.FINISHED_STATUSES:
        raise UsageError(
            f"run {run.run_id} ({run.name}): {schema.TAG_STATUS}: expected {' or '.join(schema.FINISHED_STATUSES)}, "
            f"found {status}; only a run that was trained to its end is promoted"
        )


def verified(tracker: Tracker, run: StoredRun, data_root: str) -> RunRecord:
    """The run's record, measured again; IntegrityError where a file is not the recorded one or a figure comes out otherwise.

    Figures that this machine cannot give again (a GPU's, on one without) are let pass: the card says `unverifiable`.
    """
    (record,) = compared(tracker, [gather(tracker, run, data_root=Path(data_root) if data_root else None)])
    if record.status not in schema.FINISHED_STATUSES:
        raise IntegrityError(f"run {run.run_id} ({run.name}): its sealed files say {record.status}")
    if record.integrity.state == "mismatch":
        raise IntegrityError(f"run {run.run_id} ({run.name}): {'; '.join(record.integrity.details)}")
    return record


def justified(run: StoredRun, opinion: Opinion, reason: str | None, author: str) -> Despite | None:
    """The reason to keep; UsageError where one is needed and not given, or given and not needed."""
    verdict = opinion.verdict
    if reason is None:
        if verdict.outcome in NEEDS_REASON:
            by = edition_words(opinion.edition)
            against = [one for one in opinion.findings if one.gating and one.outcome in SPEAKS_AGAINST]
            raise UsageError(
                f"run {run.run_id} ({run.name}) is {verdict.label} by edition {by} and is not promoted; "
                'if it shall be all the same, say why: --despite "reason", which is kept with the model'
                + "".join(f"\n  - {finding.sentence}" for finding in against)
            )
        return None
    if verdict.outcome not in NEEDS_REASON:
        raise UsageError(
            f"run {run.run_id} ({run.name}) is {verdict.label}: there is nothing to promote it despite of; leave --despite out"
        )
    return Despite(reason.strip(), author or _user())


def check_aliases(aliases: Sequence[str], deciding: Opinion) -> None:
    """Raise InvalidFields for an alias that names another verdict than the model's, or one that no shipped edition gave."""
    verdict, own = deciding.verdict, standing(deciding.edition) != SHIPPED
    lies = [
        alias for alias in aliases if alias.lower() in VERDICT_ALIASES and (own or alias.lower() != verdict.outcome)
    ]
    if lies:
        by = f" by {edition_words(deciding.edition)}" if own else ""
        problems = [f"alias: {alias!r} is a verdict, and this run is {verdict.label}{by}" for alias in lies]
        raise InvalidFields("promote", problems)


def verdict_alias(deciding: Opinion) -> str:
    """The alias that a verdict gives: its outcome, `pass`, by a shipped edition; else `pass-lenient-1a2b3c4d`."""
    outcome, edition = deciding.verdict.outcome, deciding.edition
    if standing(edition) == SHIPPED:
        return outcome
    name = re.sub(r"[^a-z0-9_]+", "-", _ascii(edition.name)).strip("-")[:100]
    return "-".join(part for part in (outcome, name, edition.digest[:DIGEST]) if part)


def model_name(spec: RunSpec, setting: str) -> str:
    """`dfa-pen-0.01--resmlp-256x4-digits-30-epochs`: from the labels of method and setting, valid for MLflow and in a shell."""
    return f"{_slug(spec.method_label)}--{_slug(setting)}"[:200].rstrip("-.")


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", _ascii(label)).strip("-.")


def _ascii(label: str) -> str:
    return unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's uid may have no name
        raise UsageError("despite: this user has no name; say who decides with --author NAME") from error
