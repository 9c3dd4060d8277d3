"""Which code trained a run: asked before a run is called complete, and before an audit believes one of its figures."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fa_registry import jsonio
from fa_registry.errors import UnknownName
from fa_registry.records import Check, Integrity, RunRecord, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.training.code import Code, changes, code_of, described

SUBJECT = "code"


def code_changes(tracker: Tracker, run: StoredRun, spec: RunSpec) -> tuple[str, ...]:
    """What differs between the code that trained `run` and the code that would train it today; empty where it is the same.

    The tag answers for nearly all runs without opening a file. It decides only what is trained again: an audit reads the seal.
    """
    today = code_of(spec)
    tag = run.tags.get(schema.TAG_CODE)
    if tag is None:
        return changes(None, today)
    if tag == jsonio.digest_of(today):
        return ()
    path = tracker.artifact(run.run_id, schema.PROVENANCE)
    return changes(sealed_code(json.loads(path.read_text(encoding="utf-8"))) if path else None, today)


def sealed_code(provenance: Mapping[str, Any]) -> Code | None:
    """The code that a run's provenance.json names; None in one of an older release."""
    code = provenance.get("code")
    if not isinstance(code, Mapping):
        return None
    return {name: entry for name, entry in code.items() if isinstance(entry, Mapping)}


def tell(found: Mapping[str, Sequence[str]], kept: bool) -> None:
    """Say on standard error which runs other code has trained, what changed, and what becomes of them. found: by run name."""
    if not found:
        return
    many = len(found) > 1
    count = f"{len(found)} runs were" if many else f"{next(iter(found))} was"
    become = (
        f"{'are' if many else 'is'} kept (--keep-trained); an audit cannot recompute {'them' if many else 'it'}"
        if kept
        else f"{'are' if many else 'is'} trained again (--keep-trained keeps {'them' if many else 'it'})"
    )
    print(f"{count} trained by other code and {become}:", file=sys.stderr)
    for line in dict.fromkeys(line for lines in found.values() for line in lines):
        print(f"  {line}", file=sys.stderr)


def code_check(record: RunRecord) -> Check:
    """Whether today's code is what trained the run. Where it is not, or is not installed, no figure can be recomputed."""
    sealed = sealed_code(record.provenance)
    try:
        found = changes(sealed, code_of(record.spec))
    except UnknownName as error:
        return Check(SUBJECT, "not possible", f"{str(error).splitlines()[0]}{_wanted(sealed)}")
    if found:
        return Check(SUBJECT, "not possible", f"trained by other code than is installed: {'; '.join(found)}")
    if sealed is None:
        words = (
            "no code was recorded by the release that trained it; its members are taken for version 1, as today's are"
        )
        return Check(SUBJECT, "agrees", words)
    return Check(SUBJECT, "agrees", "method, architecture, data set and diagnostics are those it was trained by")


def _wanted(sealed: Code | None) -> str:
    """Which packages the run names that no member of ours is in."""
    entries = {described(entry) for entry in (sealed or {}).values() if "digest" in entry}
    return f"; the run names {', '.join(sorted(entries))}" if entries else ""


def with_other_code(record: RunRecord, check: Check) -> RunRecord:
    """The record as it was logged: nothing of it can be measured again by the code that is here."""
    return dataclasses.replace(record, integrity=Integrity("unverifiable", (check.detail,), (check,)))
