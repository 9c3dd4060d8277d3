"""Computation of a verdict from findings.

The verdict determines the exit code and the MLflow tag, and every page shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fa_registry.protocol.evidence_rules import fails_outright
from fa_registry.protocol.replay_summary import lowest_level
from fa_registry.protocol.rules import Edition
from fa_registry.records import Finding, Flag, RunRecord, Verdict

PROVISIONAL = "PROVISIONAL"  # state of a finding that may change when the evidence is complete
SEVERITY = ("control", "pass", "warn", "incomplete", "fail")  # outcomes, least severe first
NOT_JUDGED = "NOT JUDGED"
TEXT = {name: name.upper() for name in (*SEVERITY, "diverged")}


def verdict(record: RunRecord, findings: Sequence[Finding], edition: Edition) -> Verdict:
    """Compute the verdict of one run from its findings.

    Only gating findings count. The label of the verdict is CONTROL, DIVERGED, FAIL, INCOMPLETE, WARN or PASS, unless the edition
    defines another label. A control has the outcome control. For any other run, the outcome is the first outcome of the
    following list whose condition is met. If no condition is met, the outcome is pass.

    - fail: training diverged, all rules of one `fail_if` list fire, or the method does not match its card. In a strict edition,
      a run also fails if any single rule fires.
    - incomplete: training ended before its last epoch, a finding is missing, or a rule or diagnostic crashed. A rule that does not
      apply to the run is not missing.
    - warn: a rule fired, could not be decided, or was waived. A missing finding is never a pass.

    If a run's metrics do not match its recorded files, no rule judges the run: the outcome is incomplete, with the label NOT
    JUDGED. The truth tables of two editions are in tests/protocol/test_verdict.py. Source: arXiv 2606.21126, in which a run
    fails if (D1 and D2) or D3 fires. In the published code and in the variant `strict`, a run fails if any rule fires.
    """
    if not is_intact(record):
        return Verdict("incomplete", NOT_JUDGED)
    gating = [finding for finding in findings if finding.gating]
    fired = {finding.rule for finding in gating if finding.outcome == "fail"}
    fails = any(set(group) <= fired for group in edition.fail_if) or (edition.strict and bool(fired))
    fails = fails or any(map(fails_outright, gating))
    is_incomplete = any(finding.is_missing for finding in gating)
    flags = tuple(_flag(finding) for finding in gating if finding.outcome in ("fail", "warn", "waived"))
    labels = {**TEXT, **edition.labels}
    if record.spec.control != "none":
        return Verdict("control", labels["control"])
    if record.status == "diverged":
        return _verdict("fail", labels["diverged"], flags)
    if fails:
        outcome = "fail"
    elif is_incomplete or record.status != "complete":
        outcome = "incomplete"
    else:
        outcome = "warn" if flags else "pass"
    return _verdict(outcome, labels[outcome], flags)


def is_intact(record: RunRecord) -> bool:
    """Return whether no check found a difference between a run and its recorded files.

    Only a run without such a difference is used as evidence.
    """
    return record.integrity.state != "mismatch"


def _flag(finding: Finding) -> Flag:
    """Return the flag of a finding: the rule, with its state if the rule does not fire."""
    # A rule that fires on a substitute for its metric, as in FAProtocol, is marked as `D3 provisional`.
    if finding.outcome == "fail" and finding.state != PROVISIONAL:
        return Flag(finding.rule)
    if finding.outcome == "waived":
        return Flag(finding.rule, "waived")
    return Flag(finding.rule, finding.state.lower(), finding.side)


def combine_verdicts(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the most severe verdict of several seeds, with the flags of all seeds.

    Its level of proof is the lowest one.
    """
    of_seeds = list(verdicts)
    if not of_seeds:
        return Verdict("incomplete", TEXT["incomplete"])
    worst = max(of_seeds, key=lambda verdict: SEVERITY.index(verdict.outcome))
    flags = worst.flags  # keeps the order of the flags if all seeds have the same flags
    if len({verdict.flags for verdict in of_seeds}) > 1:
        flags = tuple(sorted({flag for verdict in of_seeds for flag in verdict.flags}, key=str))
    combined = _verdict(worst.outcome, worst.base or worst.label, flags)
    return replace(combined, proof=lowest_level(verdict.proof for verdict in of_seeds))


def _verdict(outcome: str, base: str, flags: tuple[Flag, ...]) -> Verdict:
    return Verdict(outcome, verdict_label(base, flags), flags, base if flags else "")


def verdict_label(label: str, flags: Sequence[Flag]) -> str:
    """Combine label and flags: `FAIL(D1+D3)`, `WARN(D1; D3 waived)` or `needs walk-back: a, d`."""
    if label.endswith(":"):
        return f"{label} {', '.join(map(str, flags))}" if flags else label[:-1]
    fired, flags_with_state = (
        [str(flag) for flag in flags if bool(flag.state) == has_state] for has_state in (False, True)
    )
    parts = [*(["+".join(fired)] if fired else []), *flags_with_state]
    return f"{label}({'; '.join(parts)})" if parts else label


def exit_code(verdicts: Iterable[Verdict], integrity_failed: bool) -> int:
    """Return the exit code of an audit.

    It is 3 if a verdict is incomplete or the integrity check failed. Otherwise it is 1 if a run fails, and 0 if no run fails.
    """
    outcomes = {verdict.outcome for verdict in verdicts}
    if integrity_failed or "incomplete" in outcomes:
        return 3
    return 1 if "fail" in outcomes else 0
