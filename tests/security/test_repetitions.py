"""Honest repetitions of a seed beside a forged run of it: the forged one cannot hide among them, nor contradict them."""

from __future__ import annotations

from functools import partial

import pytest

from fa_registry.evidence.replay_record import ranked
from fa_registry.protocol.evidence_rules import CONTRADICTED
from fa_registry.records import REPETITIONS, AuditReport, Check
from fa_registry.tracking import schema
from tests.security.conftest import integrity_of, judged
from tests.security.test_middle import (
    TurnsAndHurries,
    claims_another_processor,
    forged,  # noqa: F401 (a fixture)
)
from tests.security.test_replay_from_seed import checks

long = partial(pytest.param, marks=pytest.mark.long)  # found by the same comparison of the whole store
ATTACKED = {"method": "dfa", "seed": 2}


def repetition(report: AuditReport, run_id: str) -> Check | None:
    found = [check for check in integrity_of(report, run_id).checks if check.subject == REPETITIONS]
    return found[0] if found else None


@pytest.fixture
def pair(store, forged) -> tuple[str, str]:  # noqa: F811
    """The ids of the honest run of a seed, and of a newer forged run of the same specification."""
    return store.run_id(**ATTACKED), forged(TurnsAndHurries, beside=True, method="dfa")


@pytest.mark.parametrize("selected", [*map(long, ("both", "the forged run alone")), "study"])
def test_runs_that_contradict_each_other_are_not_judged_whatever_is_selected(store, audit, pair, selected):
    honest, newest = pair
    arguments = {
        "both": ("--experiment", "fa_registry"),
        "the forged run alone": [part for one in store.run_ids() if one != honest for part in ("--run", one)],
        "study": ("--study", "tiny"),
    }[selected]
    code, report = audit(*arguments)
    excluded = {one.run_id: one.kind for one in report.excluded}
    expected = {honest, newest} if selected == "both" else {newest}
    assert code == 3 and excluded == dict.fromkeys(expected, "integrity")
    others = {honest: (newest,), newest: (honest,)}
    assert {one: repetition(report, one).others for one in excluded} == {one: others[one] for one in expected}
    assert all(repetition(report, run.record.run_id) is None for run in report.runs)


@pytest.mark.long
def test_a_claimed_configuration_turns_the_contradiction_into_a_finding_and_no_pass(store, audit, pair):
    honest, newest = pair
    claims_another_processor(store, newest)
    _, report = audit("--experiment", "fa_registry")
    assert not report.excluded
    for run in judged(report, **ATTACKED):
        (finding,) = [one for one in run.findings if one.rule == REPETITIONS]
        other = newest if run.record.run_id == honest else honest
        assert (finding.outcome, finding.state) == ("warn", CONTRADICTED) and run.verdict.outcome != "pass"
        assert repetition(report, run.record.run_id).others == (other,)


@pytest.mark.long
def test_a_newer_run_that_is_not_judged_does_not_spare_the_run_that_counts(store, audit, forged):  # noqa: F811
    """The newest copy of a forged run is spoiled, so that the replay falls on it, and the older copy counts."""
    counted = forged(TurnsAndHurries, method="dfa")
    spoiled = forged(TurnsAndHurries, beside=True, method="dfa")
    store.change_json(spoiled, schema.MEASUREMENTS, lambda held: held["scalars"].update(feature_drift_blocks=0.5))
    store.write_manifest(spoiled)
    seeds = [store.run_id(method="dfa", seed=seed) for seed in (1, 3)]
    both_first = lambda number: {min([one, *seeds], key=partial(ranked, number)) for one in (spoiled, counted)}  # noqa: E731
    number = next(number for number in map("{:x}".format, range(1000)) if both_first(number) == {spoiled, counted})
    code, report = audit("--experiment", "fa_registry", "--nonce", number)
    assert code == 3 and {one.run_id for one in report.excluded} == {counted, spoiled}
    assert checks(report, counted)["whole training"] == "differs"
    assert counted in {run.run_id for run in report.replay.runs}
