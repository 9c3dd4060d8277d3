"""Findings about the evidence of a run. An audit adds these findings for every edition.

An edition judges metrics. The findings of this module state whether the metrics may be judged. Two questions are checked: Does
the method match its card? Did the same code train the run and recompute its metrics? No waiver applies to these findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fa_registry.records import (
    CREDIT_CHECK,
    NETWORK_CHECK,
    REPETITIONS,
    SHARED_SAMPLES,
    TASK_CHECK,
    TRAINING_CHECK,
    Check,
    Finding,
    Reading,
    RunRecord,
)
from fa_registry.records.configurations import is_undecidable
from fa_registry.records.manifest_checks import EPOCH_WEIGHTS, OWN_LOOP, never_changed

METHOD, CODE, MEASURING = "method", "code", "metrics"  # each is the code of a rule
ADOPTED, CONTROLS, DUPLICATE = "adopted", "controls", "duplicate"
CREDIT, NETWORK, DATA, TASK, TRAINING = "credit rule", "network", "data", "task", "network training"
WEIGHTS = "tracked weights"
CONFORMANCE = "conformance"  # name of the metric that the rule METHOD judges
FAILED = "FAILED CONFORMANCE"
UNDECIDED_HERE, NOT_MEASURED, CONTRADICTED = "CANNOT TELL HERE", "NOT RECOMPUTED", "CONTRADICTED"
TITLES = {
    METHOD: "conformance of the method",
    CODE: "code that trained the run",
    MEASURING: "recomputed metrics",
    ADOPTED: "training of an adopted run",
    CONTROLS: "one frozen control per setting and seed",
    DUPLICATE: "one run per seed",
    REPETITIONS: "runs of one specification",
    CREDIT: CREDIT_CHECK,
    NETWORK: NETWORK_CHECK,
    DATA: "test samples in the training set",
    TASK: "task",
    TRAINING: TRAINING_CHECK,
    WEIGHTS: "weights of a user-supplied loop",
}
QUANTITIES = {name: name for name in TITLES} | {METHOD: CONFORMANCE}
INITIAL, STEPS = "initial weights", "first steps"
PROVING = (INITIAL, STEPS, CODE)  # subjects of the checks that must agree for a frozen control
# Subject of a check → finding (rule, state, requirement) if the check was not possible. Such a run cannot pass.
WARNED = {
    # only a warning, because an author can write `cuda` into any specification
    MEASURING: (MEASURING, NOT_MEASURED, "every metric is recomputed from the recorded weights"),
    CREDIT_CHECK: (CREDIT, "NOT TOLD APART", "at the final weights, the credit differs from that of backpropagation"),
    TASK_CHECK: (TASK, "THIRD-PARTY TASK", "a built-in task computes the losses and the main metric"),
    TRAINING_CHECK: (TRAINING, "NOT BY CREDITS", "credits alone train the blocks; frozen blocks change nothing else"),
    NETWORK_CHECK: (NETWORK, "LOOKS ANSWERS UP", "each output of the network depends only on its input"),
}
MOST_SHARED = 0.01
REPEATABLE = "all runs of one specification have the same result, up to rounding"


def evidence(record: RunRecord) -> Iterator[Finding]:
    """Yield findings on method and code. A built-in method with complete records has no such findings."""
    if record.conformance and record.conformance.state != "own":
        yield _of_method(record)
    checks = record.integrity.checks if record.integrity.state != "trusted" else ()  # trusted: nothing was recomputed
    for check in checks:
        if check.subject == CODE and check.outcome == "not possible":
            use = "measured the adopted run" if record.spec.weights else "trained the run"
            required = f"the code that {use} is also the code that recomputes its metrics"
            yield _finding(record, CODE, "not_applicable", "OTHER CODE", required, check.detail)
        if check.subject in WARNED and check.outcome == "not possible":
            rule, state, required = WARNED[check.subject]
            if rule == MEASURING and record.integrity.state == "verified":
                state = "PARTLY RECOMPUTED"  # a user-supplied loop with a trusted factory
            yield _finding(record, rule, "warn", state, required, check.detail)
    yield from _of_repetitions(record)
    if never_changed(record.provenance.get(OWN_LOOP, {}).get(EPOCH_WEIGHTS, ())):
        required = "the tracked weights change in training"
        text = "the weights of the tracked model are equal at all epochs: the loop trained another object, or nothing"
        yield _finding(record, WEIGHTS, "warn", "NEVER CHANGED", required, text)
    if record.spec.weights:
        required = "the audit can re-initialise the weights from the seed and replay the first steps of the run"
        text = "the run was trained by another program and adopted, so no audit can determine which code trained it"
        yield _finding(record, ADOPTED, "warn", "STATED", required, text)
    # an author can write another configuration into a run's files: inconclusive checks are a warning, never a pass
    if undecided := [f"{check.subject}: {check.detail}" for check in checks if is_undecidable(check)]:
        required = "the metrics recomputed with this configuration equal the recorded metrics within the tolerances"
        yield _finding(record, MEASURING, "warn", UNDECIDED_HERE, required, "; ".join(undecided))
    if shared_text := shared_samples(record):
        required = f"at most {MOST_SHARED:.0%} of the test set is training data"
        yield _finding(record, DATA, "warn", "TEST IN TRAIN", required, shared_text)


def _of_repetitions(record: RunRecord) -> Iterator[Finding]:
    """Yield a finding if other runs of the specification may differ, and do differ, in their weights."""
    for check in record.integrity.checks:
        if check.subject == REPETITIONS and check.outcome != "differs":  # "differs" is a mismatch
            outcome, state = ("pass", "REPEATED") if check.outcome == "agrees" else ("warn", CONTRADICTED)
            yield _finding(record, REPETITIONS, outcome, state, REPEATABLE, check.detail)


def shared_samples(record: RunRecord) -> str:
    """Return a text with the number of test samples that are also training samples.

    Images are compared bit by bit, and windows of a text by shingles at any offset. If the fraction of shared samples is at most
    MOST_SHARED, the text is empty.
    """
    shared, samples = (record.measurements.conventions.get(name) for name in (SHARED_SAMPLES, "test_samples"))
    if not shared or not samples or shared <= MOST_SHARED * samples:
        return ""
    return f"{shared:,} of {samples:,} test samples are also training samples"


def several_controls(record: RunRecord, reason: str) -> Finding:
    """Return the finding that several different frozen controls exist for a run.

    The rules that need a control decide nothing until the user selects one control.
    """
    required = "for each setting and seed, one frozen control is selected, or all selected frozen controls have equal final weights"
    return _finding(record, CONTROLS, "not_applicable", "SEVERAL CONTROLS", required, reason)


def superseded(record: RunRecord, counted_run: RunRecord) -> Finding:
    """Return the finding that another run of the same seed counts instead of this run.

    With this finding, the run cannot pass.
    """
    required = "every seed counts once, with its newest complete run"
    return _finding(record, DUPLICATE, "warn", "SUPERSEDED", required, not_counted(counted_run))


def not_counted(counted_run: RunRecord) -> str:
    """Return a sentence that names the run that counts for its seed, and why another run does not count."""
    return (
        f"for seed {counted_run.spec.seed}, run {counted_run.run_id} counts, because it is the newest {counted_run.status} run "
        "of this seed"
    )


def control_doubt(control: RunRecord, trusts_logged: bool = False) -> str:
    """Return the reason why a frozen control is not proven; empty if it is proven.

    A control is proven by the same checks as a run of a method: its metrics are recomputed, its initial weights are
    re-initialised from the seed, its first steps are replayed, and its code is known. If the audit `trusts_logged` metrics, those
    of the control are not recomputed.
    """
    return "; ".join(dict.fromkeys(_doubts(control, trusts_logged)))


def _doubts(control: RunRecord, trusts_logged: bool) -> Iterator[str]:
    integrity = control.integrity
    if control.status != "complete":
        yield f"the status of the control is {control.status.replace('_', ' ')}"
    if control.spec.weights:
        yield "the control was trained by another program and adopted"
    if OWN_LOOP in control.provenance:
        yield "an own loop trained the control"
        if integrity.state == "unverifiable":  # nothing of such a run can be checked
            return
    if control.conformance and control.conformance.state == "failed":
        yield f"the method {control.spec.method} of the control failed conformance"
    if trusts_logged and integrity.state == "trusted":
        return
    if control.spec.method != "bp":
        yield f"method {control.spec.method} trained the control, expected bp"
    undecided = [f"{check.subject}: {check.detail}" for check in integrity.checks if is_undecidable(check)]
    yield from undecided
    if integrity.state != "verified" and not undecided:
        yield f"the metrics of the control are {integrity.state}"
    checks = {check.subject: check for check in integrity.checks}
    yield from (f"{subject}: not checked" for subject in PROVING if subject not in checks)
    yield from (f"{subject}: {checks[subject].detail}" for subject in PROVING if _is_open(subject, checks))


def _is_open(subject: str, checks: Mapping[str, Check]) -> bool:
    """Return whether this subject was checked, but is not proven."""
    # Another machine configuration may be unable to reproduce the initial weights bit by bit. Replayed first steps that
    # agree prove the initial weights, because the replay starts from these weights.
    check = checks.get(subject)
    replayed = STEPS in checks and checks[STEPS].outcome == "agrees"
    is_proven_by_steps = subject == INITIAL and replayed and check is not None and check.outcome == "not possible"
    return check is not None and check.outcome != "agrees" and not is_proven_by_steps


def fails_outright(finding: Finding) -> bool:
    """Return whether a finding fails the verdict regardless of `fail_if`."""
    return finding.rule == METHOD and finding.outcome == "fail"


def speaks_for_nothing(findings: tuple[Finding, ...]) -> bool:
    """Return whether the findings exclude every claim about the method's metrics.

    This is the case if the method does not match its card, or if other code trained the run.
    """
    return any(
        (finding.rule == CODE and finding.outcome == "not_applicable") or fails_outright(finding)
        for finding in findings
    )


def _of_method(record: RunRecord) -> Finding:
    conformance, method = record.conformance, record.spec.method
    scope = f" on {conformance.architecture}" if conformance.architecture else ""
    reason = "; ".join(conformance.failures)
    outcome, state, text = {
        "passed": (
            "pass",
            "CONFORMS",
            f"method {method} has every property of its card{scope}, as measured by this audit",
        ),
        "failed": ("fail", FAILED, f"method {method} does not match its card{scope}: {reason}"),
        "stated": (
            "warn",
            "STATED",
            f"method {method} matches its card{scope} according to the run's files, but this audit did not check it: {reason}",
        ),
        "unchecked": ("warn", "UNCHECKED", f"no audit has checked whether method {method} matches its card: {reason}"),
    }[conformance.state]
    return _finding(record, METHOD, outcome, state, "the method has every property of its card", text)


def _finding(record: RunRecord, rule: str, outcome: str, state: str, required: str, text: str) -> Finding:
    return Finding(
        rule=rule,
        title=TITLES[rule],
        outcome=outcome,
        quantity=QUANTITIES.get(rule, rule),
        observed=Reading(None, text),
        required=required,
        sentence=f"{rule}: required {required}, observed: {text}",
        run_id=record.run_id,
        state=state,
    )
