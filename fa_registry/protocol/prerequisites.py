"""What an audit knows of the code behind a run, as findings that no edition may leave out and no waiver may take back.

An edition judges figures. These ask whether there is anything to judge: is the method what its card says, and is the code that
trained the run the code that measured it again?
"""

from __future__ import annotations

from collections.abc import Iterator

from fa_registry.records import Finding, Reading, RunRecord
from fa_registry.records.configurations import is_cannot_tell

METHOD, CODE, SEAL, MEASURING = "method", "code", "seal", "measuring"  # what stands in the place of a rule's code
CONFORMANCE = "conformance"  # the quantity of METHOD
FAILED = "FAILED CONFORMANCE"
TITLES = {
    METHOD: "conformance of the method",
    CODE: "code that trained the run",
    SEAL: "what is sealed with the run",
    MEASURING: "figures measured again",
}
QUANTITIES = {METHOD: CONFORMANCE, CODE: CODE, SEAL: SEAL, MEASURING: MEASURING}


def evidence(record: RunRecord) -> Iterator[Finding]:
    """Findings on the run's method and code; none of a method of our own that is still the one that trained."""
    if record.conformance and record.conformance.state != "own":
        yield _of_method(record)
    checks = record.integrity.checks if record.integrity.state != "trusted" else ()  # trusted are the figures as logged
    unsealed = [check for check in checks if not check.sealed]
    if (
        unsealed
    ):  # an attacker may say that an older release sealed nothing: what is missing is at most a warning, never a pass
        words = "; ".join(f"{check.subject}: {check.detail}" for check in unsealed)
        yield _finding(
            record, SEAL, "warn", "NOT SEALED", "what the run started from and its first steps are sealed", words
        )
    for check in checks:
        if check.subject == CODE and check.outcome == "not possible":
            yield _finding(
                record,
                CODE,
                "not_applicable",
                "OTHER CODE",
                "the code that trained the run is the code that measures it",
                check.detail,
            )
        # anybody can write `cuda` into a specification
        if check.subject == MEASURING and check.outcome == "not possible":
            required = "every figure is measured again from the sealed weights"
            yield _finding(record, MEASURING, "warn", "NOT MEASURED AGAIN", required, check.detail)
    # an author can write another configuration into a run's files: what cannot be concluded is a warning, never a pass
    if untold := [f"{check.subject}: {check.detail}" for check in checks if is_cannot_tell(check)]:
        required = "what this configuration recomputes is what the run recorded, within the tolerances"
        yield _finding(record, MEASURING, "warn", "CANNOT TELL HERE", required, "; ".join(untold))


def unproven(record: RunRecord) -> str:
    """Why a control's figures may not speak against or for another run: nobody could draw, train or measure it again."""
    checks = record.integrity.checks if record.integrity.state != "trusted" else ()
    wrong = [check for check in checks if not check.sealed or (check.subject, check.outcome) == (CODE, "not possible")]
    return "; ".join(f"its frozen control's {check.subject}: {check.detail}" for check in wrong)


def fails_outright(finding: Finding) -> bool:
    """Whether the verdict fails by this finding alone, whatever the edition's own combinations are."""
    return finding.rule == METHOD and finding.outcome == "fail"


def speaks_for_nothing(findings: tuple[Finding, ...]) -> bool:
    """Whether a run's figures support no claim: its method is not what it is called, or other code than today's trained it."""
    return any(
        (finding.rule == CODE and finding.outcome == "not_applicable") or fails_outright(finding)
        for finding in findings
    )


def _of_method(record: RunRecord) -> Finding:
    conformance, method = record.conformance, record.spec.method
    where = f" on {conformance.architecture}" if conformance.architecture else ""
    why = "; ".join(conformance.failures)
    outcome, state, words = {
        "passed": (
            "pass",
            "CONFORMS",
            f"method {method} has every property of its card{where}, measured by this audit",
        ),
        "failed": ("fail", FAILED, f"method {method} is not what its card says{where}: {why}"),
        "stated": (
            "warn",
            "STATED",
            f"method {method} conforms{where} by what the run's files say, not measured here: {why}",
        ),
        "unchecked": ("warn", "UNCHECKED", f"nobody has measured whether method {method} is what its card says: {why}"),
    }[conformance.state]
    return _finding(record, METHOD, outcome, state, "the method has every property of its card", words)


def _finding(record: RunRecord, rule: str, outcome: str, state: str, required: str, words: str) -> Finding:
    return Finding(
        rule=rule,
        title=TITLES[rule],
        outcome=outcome,
        quantity=QUANTITIES[rule],
        observed=Reading(None, words),
        required=required,
        sentence=f"{rule}: required {required}, observed: {words}",
        run_id=record.run_id,
        state=state,
    )
