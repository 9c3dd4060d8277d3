"""The tolerances of other configurations, and the record that they come from."""

from __future__ import annotations

import json

import pytest

from benchmarks.configurations import MEASURED
from fa_registry.diagnostics.ladder import ROUNDING
from fa_registry.evidence.replay_from_seed import DRAWN, SAME_WAY
from fa_registry.protocol.integrity import SAFETY, Tolerance, tolerance_of
from fa_registry.records import Check
from fa_registry.records.configurations import (
    CONFIGURATION,
    LONGEST,
    SAME_MACHINE,
    UNDECIDABLE,
    described_difference,
    differing_settings,
    is_undecidable,
    undecidable,
)

RECORD = json.loads(MEASURED.read_text(encoding="utf-8"))
HERE = {
    **{"threads": 1, "device": "cpu", "torch": "2.13.0", "processor": "EPYC, AVX512"},
    **{"instruction_set": "AVX512", "math_library": "MKL", "fingerprint": "00"},
}


@pytest.mark.parametrize("name", RECORD["metrics"])
def test_every_tolerance_is_several_times_what_was_measured(name):
    """The record names the reading that came nearest to its tolerance, with both of its values."""
    measured = RECORD["metrics"][name]
    first, second = measured["worst"]
    assert SAFETY * abs(first - second) <= tolerance_of(name).allowed(first, second)
    assert SAFETY * measured["of_tolerance"] <= 1.0


def test_draws_and_first_steps_are_held_to_what_was_measured():
    furthest = {kind: row["furthest"] for kind, row in RECORD["tensors"].items()}
    assert SAFETY * max(furthest["draws"], furthest["resting feedback"]) <= DRAWN == ROUNDING
    assert SAFETY * max(furthest["first steps of network"], furthest["first steps of feedback"]) <= SAME_WAY


@pytest.mark.parametrize(
    ("tolerance", "before", "after", "allowed", "gross"),
    [
        (Tolerance(), 2.0, 2.000001, True, False),
        (Tolerance(), 2.0, 2.00001, False, False),
        (Tolerance(), 2.0, 2.3, False, True),
        (Tolerance(), 0.0, 1e-12, False, True),
        (Tolerance(absolute=1e-6), 0.0, 9e-7, True, False),
        (Tolerance(absolute=1e-6), 0.0, 9e-4, False, False),
        (Tolerance(absolute=1e-6), 0.0, 2e-3, False, True),
        (Tolerance(absolute=1e-2), 0.0, 0.2, False, True),
        (Tolerance(), -1.0, 1.0, False, True),
    ],
)
def test_a_deviation_is_allowed_undecidable_or_gross(tolerance, before, after, allowed, gross):
    for pair in ((before, after), (after, before)):
        assert (tolerance.allows(*pair), tolerance.is_gross(*pair)) == (allowed, gross)


def test_the_first_beginning_that_fits_decides():
    assert tolerance_of("gamma_null_p") != tolerance_of("gamma_null_mean") != tolerance_of("gamma")
    assert tolerance_of("g_norm_mean_ce") != tolerance_of("g_norm")
    assert tolerance_of("accuracy") == Tolerance()


@pytest.mark.parametrize("name", (*SAME_MACHINE, *CONFIGURATION))
def test_a_setting_that_is_not_recorded_is_unknown_and_never_the_same(name):
    without = {other: value for other, value in HERE.items() if other != name}
    for pair in ((without, HERE), (HERE, without), (without, without)):
        assert differing_settings(*pair) == [name]
    assert "nothing recorded" in described_difference(without, HERE)
    assert differing_settings(HERE, HERE) == []


def test_settings_of_a_stored_run_are_shortened_and_on_one_line():
    text = described_difference({**HERE, "processor": "a\n\x1b[2J" * 1000}, HERE)
    assert "\n" not in text and "\x1b" not in text and len(text) < 8 * LONGEST


def test_a_fingerprint_is_named_where_nothing_else_differs():
    there = {**HERE, "fingerprint": "aa"}
    assert all(name in described_difference(there, {**HERE, "fingerprint": "bb"}) for name in (" aa", " bb"))
    both = described_difference({**there, "instruction_set": "AVX2"}, {**HERE, "fingerprint": "bb"})
    assert "AVX2," in both and "AVX512" in both and "fingerprint" not in both


def test_only_a_check_of_another_configuration_is_undecidable():
    check = undecidable("figures", "trained with x, measured with y", "gain differs")
    assert check.detail.startswith(UNDECIDABLE) and check.detail.endswith("gain differs")
    assert is_undecidable(check) and check.outcome == "not possible"
    assert not is_undecidable(Check("figures", "not possible", check.detail))
    assert not is_undecidable(Check("figures", "not possible", "the files are lost"))
    assert not is_undecidable(
        Check("whole replay", "not possible", check.detail, elsewhere=True)
    )  # no verdict waits for it
