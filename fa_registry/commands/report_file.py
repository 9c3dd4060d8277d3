"""An audit.json read back. Alone in its file: what shows an old report needs neither torch nor MLflow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from fa_registry import jsonio
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.records import SCHEMA, AuditReport


def load_report(path: Path) -> AuditReport:
    """An audit.json as an AuditReport. InvalidFields when it is not one, UsageError when it is one of another schema."""
    subject = f"report {path}"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
    except (OSError, ValueError) as error:  # a file that is no text, no JSON, or holds NaN
        raise InvalidFields(subject, [f"file: cannot be read as JSON: {error}"]) from error
    schema_found = raw.get("schema") if isinstance(raw, Mapping) else None
    if isinstance(schema_found, int) and schema_found != SCHEMA:
        raise UsageError(f"{subject}: expected schema {SCHEMA}, found {schema_found}; {_other_schema(schema_found)}")
    report = jsonio.decode(AuditReport, raw, f"report {path.name}")
    problems = list(_incomplete(report))
    if schema_found != SCHEMA:
        problems.append(f"schema: expected {SCHEMA}, found nothing")
    if problems:
        raise InvalidFields(subject, problems)
    return report


def _incomplete(report: AuditReport) -> Iterator[str]:
    """What the records hold each, and not together: a run twice, or an opinion that is not of exactly the report's runs."""
    ids = [run.record.run_id for run in report.runs]
    for twice, times in sorted(Counter(ids).items()):
        if times > 1:
            yield f"runs: expected every run once, found {twice} {times} times"
    for place, opinion in enumerate(report.opinions):
        judged = [one.run_id for one in opinion.judgements]
        if judged != ids:
            at = next((at for at, (one, other) in enumerate(zip(judged, ids, strict=False)) if one != other), None)
            found = f"{len(judged)} of {len(ids)}" if at is None else f"{judged[at]} where {ids[at]} belongs"
            yield f"opinions[{place}].judgements: expected the report's runs in their order, found {found}"


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _other_schema(found: int) -> str:
    if found < SCHEMA:
        return "an older release wrote it: audit its runs again with this one, or read it with that one"
    return "a newer release wrote it: update fa_registry"
