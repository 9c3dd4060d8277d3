"""A table's row says of how many seeds its numbers are, and why one is missing."""

from __future__ import annotations

from benchmarks.tables import over_seeds, row
from fa_registry.protocol.grouping import Group
from fa_registry.records import Reading, RunAudit, Verdict
from tests.builders import measurements, record

PASS = Verdict("pass", "PASS")


def test_a_missing_seed_is_counted_and_never_left_out_in_silence():
    assert over_seeds([Reading(1.0), Reading(3.0)], ".1f") == "2.0"
    assert over_seeds([Reading(1.0), Reading(None, "noise"), Reading(3.0)], ".1f") == "2.0 (2 of 3 seeds)"


def test_where_no_seed_has_it_each_reason_is_given_once():
    missing = [Reading(None, "exact"), Reading(None, "noise"), Reading(None, "exact")]
    assert over_seeds(missing, ".1f") == "n/a: exact; noise"


def test_the_interval_is_of_the_seeds_and_one_seed_has_none():
    assert over_seeds([Reading(1.0), Reading(3.0)], ".1f", interval=True) == "2.0 [-10.7, 14.7]"  # t(1) = 12.706
    assert over_seeds([Reading(1.0)], ".1f", interval=True) == "1.0"


def test_a_run_without_a_gradient_has_a_row_too():
    measured = measurements(g_norm=None)
    measured.scalars["gamma_deep_mean"] = Reading(0.25)
    group = Group("dfa", "tiny", False, (RunAudit(record("a", measured), (), PASS),), PASS)
    assert row(group) == ["dfa", "0.900", "2", "n/a: not measured", "0.250", "PASS"]
