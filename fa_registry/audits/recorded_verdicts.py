"""Verdicts of stored runs, read from the reports of audits and not from the runs' tags.

The owner of a store can write any verdict into a tag. A report is compared with the digest that its audit recorded. `verify` judges
the report again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fa_registry import jsonio
from fa_registry.errors import RegistryError
from fa_registry.field_types import Many
from fa_registry.protocol.builtin_editions import verdict_mark
from fa_registry.records import EditionReference, Exclusion, Verdict
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker

LARGEST = 2**30  # maximum size of a report in bytes; a report of 10,000 runs has 400 MB
UNPROVEN = "UNPROVEN"


@dataclass(frozen=True)
class RecordedVerdict:
    """Verdict on a stored run, as text, and its level of proof.

    Attributes:
        label: The verdict; empty if no audit judged the run.
        proof: The level of proof; empty if no unchanged report contains a verdict on the run.
    """

    label: str = ""
    proof: str = ""

    def __str__(self) -> str:
        return " · ".join(filter(None, (self.label, self.proof)))


def recorded_verdicts(tracker: Tracker, runs: Iterable[StoredRun]) -> dict[str, RecordedVerdict]:
    """Return a mapping: run id → verdict in the report of the audit that the run's tags name.

    The verdict is UNPROVEN if the run has a verdict tag, but this report is missing, changed, or does not contain the run. It is
    empty if no audit judged the run. The verdict of an imported run is that of its bundle, until an audit of this store judges
    the run.
    """
    reports: dict[str, Mapping[str, RecordedVerdict]] = {}
    verdicts = {}
    for run in runs:
        audit_id = auditing(run)
        if audit_id or any(map(schema.is_verdict_tag, run.tags)):
            if audit_id not in reports:
                reports[audit_id] = _verdicts_of(tracker, audit_id) if audit_id else {}
            verdicts[run.run_id] = reports[audit_id].get(run.run_id, RecordedVerdict(UNPROVEN))
        else:
            imported = (run.tags.get(tag, "") for tag in (schema.TAG_IMPORTED_VERDICT, schema.TAG_IMPORTED_PROOF))
            verdicts[run.run_id] = RecordedVerdict(*(text and f"{text} (in the bundle)" for text in imported))
    return verdicts


def auditing(run: StoredRun) -> str:
    """Return the id of the newest audit of a run from the run's tags; empty without an audit."""
    return run.tags.get(schema.TAG_EXCLUDED) or run.tags.get(schema.TAG_REPORT, "")


def _verdicts_of(tracker: Tracker, audit_id: str) -> Mapping[str, RecordedVerdict]:
    """Return a mapping: run id → verdict in an audit's report.

    It is empty if the report is missing, or if its digest is not the recorded one. Only the verdicts are decoded, because decoding
    a whole report takes seconds.
    """
    try:
        path = tracker.artifact(audit_id, schema.AUDIT_REPORT)
        report = jsonio.read_json(path, LARGEST) if path else None
        if not path or tracker.get(audit_id).tags.get(schema.TAG_AUDIT) != jsonio.digest_of(report):
            return {}
        mark = verdict_mark(jsonio.decode(EditionReference, report["edition"], "edition"))
        judged = {run["record"]["run_id"]: jsonio.decode(Verdict, run["verdict"], "verdict") for run in report["runs"]}
        excluded = jsonio.decode(Many[Exclusion], report.get("excluded", ()), "excluded")
    except (RegistryError, KeyError, TypeError):  # a received report may have any content
        return {}
    suffix = f" ({mark})" if mark else ""
    verdicts = {
        run_id: RecordedVerdict(f"{verdict.label}{suffix}", verdict.proof) for run_id, verdict in judged.items()
    }
    return {**verdicts, **_exclusions(excluded)} if excluded else verdicts


def _exclusions(excluded: Iterable[Exclusion]) -> Mapping[str, RecordedVerdict]:
    """Return a mapping: run id → text in the place of a verdict."""
    from fa_registry.reporting.pages.notes import not_judged_text  # imports jinja2, which a list of runs rarely needs

    return {exclusion.run_id: RecordedVerdict(not_judged_text(exclusion)) for exclusion in excluded}
