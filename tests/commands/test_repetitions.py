"""Runs of one specification contradict each other, or differ where they may."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.evidence.repetitions import repetition_check
from fa_registry.protocol.evidence_rules import CONTRADICTED, evidence
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import REPETITIONS, RunRecord
from fa_registry.records.configurations import CONFIGURATION, SAME_MACHINE
from fa_registry.records.manifest_checks import OWN_LOOP
from tests.builders import measurements, record

CPU = {
    **{"threads": 1, "device": "cpu", "torch": "2.13.0", "processor": "EPYC, AVX2"},
    **{"instruction_set": "AVX2", "math_library": "MKL", "fingerprint": "00"},
}
TRAINED = {"final_weights": "aa", "code": {"method": {"version": "1"}}, "dataset_digest": "dd"}


def recorded(
    run_id: str = "honest", accuracy: float | None = 0.25, status: str = "complete", conventions=CPU, **provenance
) -> RunRecord:
    measured = dataclasses.replace(measurements(accuracy=accuracy), conventions=conventions)
    return dataclasses.replace(record(run_id, measured, status), provenance={**TRAINED, **provenance})


def without(facts: dict, name: str) -> dict:
    return {other: value for other, value in facts.items() if other != name}


FORGED = {"run_id": "forged", "accuracy": 0.56, "final_weights": "bb"}
EVERY_SETTING = (*SAME_MACHINE, *CONFIGURATION)
ALWAYS = [  # (what differs from the honest run, outcome of the check; None: no check)
    pytest.param({"run_id": "again"}, None, id="a repetition with equal bits"),
    pytest.param(FORGED, "differs", id="forged"),
    pytest.param({**FORGED, "accuracy": 0.25}, "differs", id="forged, with the accuracy of the honest run"),
    pytest.param({**FORGED, "final_weights": "", "status": "diverged"}, "differs", id="one of them diverged"),
    pytest.param({**FORGED, "conventions": {**CPU, "device": "cuda"}}, "not possible", id="a claimed GPU"),
    pytest.param({**FORGED, "code": {"method": {"version": "2"}}}, "not possible", id="claimed other code"),
    pytest.param({**FORGED, "dataset_digest": "ee"}, "not possible", id="claimed other data"),
    pytest.param({**FORGED, OWN_LOOP: {}}, "not possible", id="a loop of the author"),
    pytest.param({**FORGED, "conventions": {}, "accuracy": None}, "not possible", id="nothing recorded"),
    pytest.param({**FORGED, "accuracy": 0.34, "conventions": {}}, "agrees", id="rounding explains the difference"),
]
CLAIMED = [
    pytest.param({**FORGED, "conventions": changed}, "not possible", id=f"{name} {claim}")
    for name in EVERY_SETTING
    for claim, changed in (("claimed", {**CPU, name: "another"}), ("deleted", without(CPU, name)))
]


@pytest.mark.parametrize(("changes", "outcome"), [*ALWAYS, *CLAIMED])
def test_two_runs_of_one_specification_name_each_other(changes, outcome):
    pair = recorded(), recorded(**changes)
    checks = [repetition_check(one, [other]) for one, other in (pair, pair[::-1])]
    assert [check and check.outcome for check in checks] == [outcome, outcome]
    if outcome:
        assert [check.others for check in checks] == [(pair[1].run_id,), (pair[0].run_id,)]
        assert {check.subject for check in checks} == {REPETITIONS}


@pytest.mark.parametrize(("apart", "outcome"), [(0.09, "agrees"), (0.11, "not possible"), (-0.11, "not possible")])
def test_without_equal_configurations_the_main_metrics_are_compared(apart, outcome):
    other = recorded("other", 0.5 + apart, final_weights="bb", conventions={})
    check = repetition_check(recorded(accuracy=0.5), [other])
    assert check.outcome == outcome and "accuracy 0.5000" in check.detail and f"{0.5 + apart:.4f}" in check.detail


def test_a_contradiction_is_named_before_a_run_that_may_differ():
    others = [recorded("gpu", final_weights="bb", conventions={}), recorded("forged", final_weights="cc")]
    assert repetition_check(recorded(), others).others == ("forged",)


def test_diverged_runs_without_finite_weights_are_no_contradiction():
    pair = [recorded(name, None, "diverged", final_weights="") for name in ("first", "second")]
    assert repetition_check(pair[0], pair[1:]) is None


def finding_of(check):
    run = recorded()
    run = dataclasses.replace(run, integrity=with_checks(run.integrity, [check] if check else []))
    found = [(one.outcome, one.state) for one in evidence(run) if one.rule == REPETITIONS]
    return run.integrity.state, found


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"run_id": "again"}, ("verified", [])),
        (FORGED, ("mismatch", [])),
        ({**FORGED, "conventions": {}}, ("verified", [("warn", CONTRADICTED)])),
        ({**FORGED, "conventions": {}, "accuracy": 0.26}, ("verified", [("pass", "REPEATED")])),
    ],
)
def test_a_contradiction_is_a_mismatch_and_any_other_difference_a_finding(changes, expected):
    assert finding_of(repetition_check(recorded(), [recorded(**changes)])) == expected
