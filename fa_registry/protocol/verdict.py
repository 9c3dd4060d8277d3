"""The one place where findings become a verdict. Exit code, MLflow tag and every page call this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fa_registry.protocol.rules import Edition
from fa_registry.records import Finding, RunRecord, Verdict

SEVERITY = ("control", "pass", "warn", "incomplete", "fail")  # mildest first


def verdict(record: RunRecord, findings: Sequence[Finding], edition: Edition) -> Verdict:
    """PASS, WARN(flags), FAIL(flags), INCOMPLETE(flags) or DIVERGED(flags); CONTROL for a run that is one.

    fail: all rules of one `fail_if` list fire (in a strict edition: any rule). incomplete: something is missing and what is
    there does not already fail. Missing is never a pass.
    """
    if record.spec.control != "none":
        return Verdict("control", "CONTROL")
    flags = tuple(finding.rule for finding in findings if finding.outcome == "fail")
    missing = any(finding.outcome in ("not_applicable", "error", "skipped") for finding in findings)
    fails = any(set(group) <= set(flags) for group in edition.fail_if) or (edition.strict and bool(flags))
    if record.status == "diverged":
        return Verdict("fail", labelled("DIVERGED", flags), flags)
    if fails:
        return Verdict("fail", labelled("FAIL", flags), flags)
    if missing or record.status != "complete":
        return Verdict("incomplete", labelled("INCOMPLETE", flags), flags)
    if flags:
        return Verdict("warn", labelled("WARN", flags), flags)
    return Verdict("pass", "PASS")


def combined(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of several seeds: the most severe one, with every flag that any seed raised."""
    several = list(verdicts)
    if not several:
        return Verdict("incomplete", "INCOMPLETE")
    worst = max(several, key=lambda one: SEVERITY.index(one.outcome))
    flags = tuple(sorted({flag for one in several for flag in one.flags}))
    word = worst.label.split("(")[0]
    return Verdict(worst.outcome, labelled(word, flags), flags)


def labelled(word: str, flags: Sequence[str]) -> str:
    return f"{word}({'+'.join(flags)})" if flags else word


def exit_code(verdicts: Iterable[Verdict], integrity_failed: bool) -> int:
    """0 all pass (a warning passes), 1 some run fails, 3 something is incomplete or was tampered with."""
    outcomes = {one.outcome for one in verdicts}
    if integrity_failed or "incomplete" in outcomes:
        return 3
    return 1 if "fail" in outcomes else 0
