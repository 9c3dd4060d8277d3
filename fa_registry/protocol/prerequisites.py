"""What an audit knows of the code behind a run, as findings that no edition may leave out and no waiver may take back.

An edition judges figures. These ask whether there is anything to judge: is the method what its card says, and is the code that
trained the run the code that measured it again?
"""

from __future__ import annotations

from collections.abc import Iterator

from fa_registry.records import CREDIT_CHECK, NETWORK_CHECK, SHARED_SAMPLES, Finding, Reading, RunRecord

METHOD, CODE, SEAL, MEASURING = "method", "code", "seal", "measuring"  # what stands in the place of a rule's code
CREDIT, NETWORK, DATA = "credit rule", "network", "data"
CONFORMANCE = "conformance"  # the quantity of METHOD
FAILED = "FAILED CONFORMANCE"
TITLES = {
    METHOD: "conformance of the method",
    CODE: "code that trained the run",
    SEAL: "what is sealed with the run",
    MEASURING: "figures measured again",
    CREDIT: CREDIT_CHECK,
    NETWORK: NETWORK_CHECK,
    DATA: "test samples in the training set",
}
QUANTITIES = {METHOD: CONFORMANCE}  # where it is not the rule's own name
# Subject of a check → the finding where it was not possible: rule, state, what is required. A run can then not pass.
WARNED = {
    # anybody can write `cuda` into a specification
    MEASURING: (MEASURING, "NOT MEASURED AGAIN", "every figure is measured again from the sealed weights"),
    CREDIT_CHECK: (CREDIT, "NOT TOLD APART", "at the final weights the credit is not backpropagation's"),
    NETWORK_CHECK: (NETWORK, "LOOKS ANSWERS UP", "each answer of the network comes from its image alone"),
}
MOST_SHARED = 0.01


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
        if check.subject in WARNED and check.outcome == "not possible":
            rule, state, required = WARNED[check.subject]
            yield _finding(record, rule, "warn", state, required, check.detail)
    if shared := shared_samples(record):
        yield _finding(
            record, DATA, "warn", "TEST IN TRAIN", f"at most {MOST_SHARED:.0%} of the test set is training data", shared
        )


def shared_samples(record: RunRecord) -> str:
    """Return how many test samples the training set holds bit by bit, in words; empty up to MOST_SHARED of the test set."""
    shared, samples = (record.measurements.conventions.get(name) for name in (SHARED_SAMPLES, "test_samples"))
    if not isinstance(shared, int) or not isinstance(samples, int) or not shared > MOST_SHARED * samples:
        return ""
    return f"{shared:,} of {samples:,} test samples are training samples too"


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
        quantity=QUANTITIES.get(rule, rule),
        observed=Reading(None, words),
        required=required,
        sentence=f"{rule}: required {required}, observed: {words}",
        run_id=record.run_id,
        state=state,
    )
