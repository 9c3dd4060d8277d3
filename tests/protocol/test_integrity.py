"""Logged against recomputed figures."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import is_repetition
from fa_registry.protocol.integrity import compare, compare_records, merged, with_checks, with_replaced
from fa_registry.records import NOT_DUE, Check, Integrity, Reading
from fa_registry.records.configurations import UNDECIDABLE, undecidable
from tests.builders import measurements, record

HERE = {
    **{"threads": 1, "device": "cpu", "torch": "2.13.0", "processor": "EPYC, AVX2"},
    **{"instruction_set": "AVX2", "math_library": "MKL", "fingerprint": "00"},
}


def taken(conventions=HERE, **figures):
    return dataclasses.replace(measurements(**figures), conventions=conventions)


def test_equal_figures_are_verified():
    assert compare(taken(), taken()).state == "verified"


def test_the_last_bit_is_a_mismatch_with_both_numbers():
    integrity = compare(taken(accuracy=0.9), taken(accuracy=0.9000000000000001))
    assert integrity.state == "mismatch"
    assert len(integrity.details) == 1 and "0.9000000000000001" in integrity.details[0]
    (difference,) = integrity.differences
    assert (difference.quantity, difference.site) == ("accuracy", None)
    assert (difference.logged, difference.recomputed) == (Reading(0.9), Reading(0.9000000000000001))


def test_all_differences_are_kept_where_the_text_names_five():
    """And they stay next to a check that differs, whose text replaces the metrics'."""
    integrity = compare(taken(gain=0.75, g_norm=1.0), taken(gain=0.5, g_norm=2.0))
    places = [(difference.quantity, difference.site) for difference in integrity.differences]
    assert places == [(name, site) for name in ("g_norm", "g_norm_mean_ce", "gain") for site in range(3)]
    assert len(integrity.details) == 6 and "4 more" in integrity.details[-1]
    assert (
        with_checks(integrity, (Check("feedback", "differs", "B_01 is no draw"),)).differences == integrity.differences
    )


@pytest.mark.parametrize("name", HERE)
def test_a_run_that_did_not_record_its_configuration_is_not_accused_for_rounding(name):
    """Metrics that differ by 3e-7: it is not known that equal bits are required."""
    older = {other: value for other, value in HERE.items() if other != name}
    integrity = compare(taken(older, accuracy=0.9), taken(accuracy=0.9 * (1 + 3e-7)))
    assert integrity.state == "verified" and "nothing recorded" in integrity.details[0]
    assert compare(taken(older, accuracy=0.9), taken(accuracy=0.91)).state == "unverifiable"
    assert compare(taken(older, accuracy=0.9), taken(accuracy=0.5)).state == "mismatch"


@pytest.mark.parametrize("changed", [{"threads": 2}, {"torch": "2.14.0"}, {"device": "cuda"}, {"processor": "Xeon"}])
def test_another_configuration_has_a_tolerance_and_beyond_it_cannot_tell(changed):
    elsewhere = {**HERE, **changed}
    close = compare(taken(accuracy=0.9), taken(elsewhere, accuracy=0.9000000000000001))
    assert close.state == "verified" and "tolerances" in close.details[0]
    far = compare(taken(accuracy=0.9), taken(elsewhere, accuracy=0.91))
    assert far.state == "unverifiable" and far.details[0].startswith(f"{UNDECIDABLE}: trained with ")
    assert "recomputed 0.91" in far.details[0] and far.differences == ()
    assert [(check.subject, check.outcome) for check in far.checks] == [("figures", "not possible")]
    assert compare(taken(accuracy=0.9), taken(elsewhere, accuracy=0.7)).state == "mismatch"


@pytest.mark.parametrize("name", ["instruction_set", "math_library", "fingerprint"])
def test_a_recorded_setting_that_differs_is_another_configuration(name):
    """A fingerprint shows it where no setting does."""
    there, here = ({**HERE, name: value} for value in ("one", "other"))
    assert compare(taken(there, accuracy=0.9), taken(here, accuracy=0.91)).state == "unverifiable"
    assert compare(taken(there, accuracy=0.9), taken(there, accuracy=0.9000001)).state == "mismatch"


def test_both_configurations_are_named():
    here = {**HERE, "processor": "EPYC, AVX512", "threads": 2}
    (detail,) = compare(taken(accuracy=0.9), taken(here, accuracy=0.91)).details
    assert all(name in detail for name in ("threads 1", "AVX2", "threads 2", "AVX512"))


def test_a_value_here_and_none_there_cannot_tell():
    elsewhere = {**HERE, "threads": 2}
    assert compare(taken(g_norm=None), taken(elsewhere, g_norm=1.0)).state == "unverifiable"


def test_a_figure_that_cannot_be_recomputed_is_unverifiable_not_a_match():
    integrity = compare(taken(g_norm=1.0), taken(g_norm=None))
    assert integrity.state == "unverifiable" and "cannot be recomputed" in integrity.details[0]


def test_a_number_where_none_was_logged_is_a_mismatch():
    assert compare(taken(g_norm=None), taken(g_norm=1.0)).state == "mismatch"


def test_a_value_at_an_epoch_at_which_no_run_measures_it_is_a_mismatch():
    not_due = Reading(None, "not due", NOT_DUE)
    invented, empty = (
        dataclasses.replace(taken(), scalars={**taken().scalars, "fidelity_min": one})
        for one in (Reading(1.0), not_due)
    )
    assert compare(empty, empty).state == "verified"
    assert compare(invented, empty).state == compare(empty, invented).state == "mismatch"


def test_losses_stay_as_logged():
    logged = taken()
    logged = dataclasses.replace(logged, scalars={**logged.scalars, "loss_train": Reading(0.3)})
    assert merged(logged, taken(accuracy=0.1)).scalars == {**taken(accuracy=0.1).scalars, "loss_train": Reading(0.3)}


def test_elsewhere_a_tiny_gradient_is_still_compared_by_its_own_size():
    """An absolute tolerance of 1e-6 would call 4e-9 and 9e-7 equal, on either side of D2's floor."""
    elsewhere = {**HERE, "threads": 2}
    assert compare(taken(g_norm=128 * 4e-9), taken(elsewhere, g_norm=128 * 9e-7)).state == "unverifiable"


def test_a_figure_whose_diagnostic_did_not_run_again_is_unverifiable_and_is_not_kept():
    """Kept as logged it would be judged as if it had been recomputed."""
    logged = taken()
    logged = dataclasses.replace(logged, scalars={**logged.scalars, "feature_drift_blocks": Reading(0.9)})
    assert compare(logged, taken()).state == "unverifiable"
    assert "feature_drift_blocks" not in merged(logged, taken()).scalars


@pytest.mark.parametrize(
    ("name", "apart", "state"),
    [
        ("gamma", 9e-7, "verified"),
        ("gamma", 2e-5, "unverifiable"),
        ("gamma", 3e-3, "mismatch"),
        ("gamma_null_p", 0.04, "verified"),
        ("gamma_null_p", 0.06, "unverifiable"),
        ("gamma_null_mean", 9e-5, "verified"),
        ("rho_bp", 9e-4, "verified"),
        ("rho_bp", 2e-3, "unverifiable"),
        ("h_norm", 9e-7, "unverifiable"),
        ("h_norm", 1e-3, "mismatch"),
    ],
)
def test_elsewhere_what_passes_through_zero_may_lie_apart_by_so_much(name, apart, state):
    before, after = (
        dataclasses.replace(taken(where), sites={name: (Reading(value),)})
        for where, value in ((HERE, 0.001), ({**HERE, "threads": 2}, 0.001 + apart))
    )
    assert compare(before, after).state == state


def test_a_check_that_differs_makes_a_mismatch_and_is_reported_first():
    before = Integrity("verified", ("every recomputed metric agrees, bit-equal",))
    after = with_checks(
        before, (Check("figures", "agrees"), Check("feedback", "differs", "B_01 is no draw of seed 42"))
    )
    assert (after.state, len(after.details)) == ("mismatch", 1) and "B_01" in after.details[0]
    assert with_checks(before, (Check("feedback", "not possible", "not given"),)).state == "verified"
    untold = with_checks(before, (undecidable("feedback", "trained with x, measured with y", "B_01 differs"),))
    assert untold.state == "unverifiable" and untold.details[0].startswith(f"feedback: {UNDECIDABLE}")
    assert [check.subject for check in after.checks] == ["figures", "feedback"]


def test_a_second_replay_replaces_the_checks_of_the_first():
    first = Check("first steps", "agrees", steps=8)
    unclear = undecidable("initial weights", "trained with x", "other bits")
    before = with_checks(Integrity("verified"), [first, unclear])
    whole = Check("whole training", "differs", "epoch 2 differs")
    after = with_replaced(before, [dataclasses.replace(first, steps=48), whole, unclear])
    assert {(one.subject, one.outcome, one.steps) for one in after.checks} == {
        ("first steps", "agrees", 48),
        ("initial weights", "not possible", 0),
        ("whole training", "differs", 0),
    }
    assert after.state == "mismatch" and len(after.checks) == 3
    same = with_replaced(before, [unclear])
    assert same.details == before.details and same.state == "unverifiable"


def second_training(value, recorded=0.5, conventions=HERE):
    """A record whose metrics are those of a second training; the recorded weights have another main metric."""
    return dataclasses.replace(record("r", taken(conventions, accuracy=value)), recorded_result=Reading(recorded))


ELSEWHERE = {**HERE, "processor": "another"}


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        (record("r", taken(accuracy=0.5)), second_training(0.3, conventions=ELSEWHERE), "unverifiable"),
        (record("r", taken(accuracy=0.7)), second_training(0.3, conventions=ELSEWHERE), "mismatch"),
        (second_training(0.4), second_training(0.3, conventions=ELSEWHERE), "unverifiable"),
        (second_training(0.3), second_training(0.3), "verified"),
        (second_training(0.4), second_training(0.3), "mismatch"),
        (record("r", taken(accuracy=0.5)), record("r", taken(accuracy=0.5)), "verified"),
    ],
)
def test_a_second_training_elsewhere_is_neither_a_forgery_nor_verified(first, second, state):
    assert compare_records(first, second).state == compare_records(second, first).state == state


def test_controls_with_equal_weights_are_one_control_if_only_one_was_trained_again():
    weights = {"final_weights": "a" * 64}
    older = dataclasses.replace(record("old", taken(accuracy=0.5)), provenance=weights)
    newer = dataclasses.replace(second_training(0.49), provenance=weights)
    assert is_repetition(older, newer) and is_repetition(newer, older)
    assert not is_repetition(dataclasses.replace(older, measurements=taken(accuracy=0.49)), newer)
