"""What an operand stands for, and every way in which it can stand for nothing."""

from __future__ import annotations

import pytest

from fa_registry.errors import InvalidFields, UsageError
from fa_registry.records import Exclusion
from fa_registry.reporting.labels import group_label
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.workflows.compare import check_unambiguous, columns, in_setting, needed, operands
from tests.reporting import scenes


def stored(run_id, method, setting="one"):
    tags = {schema.TAG_METHOD: method, schema.TAG_SETTING: setting}
    return StoredRun(run_id.ljust(32, "0"), f"{method} · {setting}", "e", "FINISHED", 0, tags)


POOL = (
    stored("aaaa1", "dfa"),
    stored("aaaa2", "dfa"),
    stored("bbbb1", "dfa+pen λ=0.01"),
    stored("cccc1", "bp"),
    stored("cccc2", "bp", "two"),
    stored("dddd1", "frozen"),
    stored("dddd2", "frozen", "two"),
)


def ids(runs):
    return [run.run_id.rstrip("0") for run in runs]


def test_a_method_is_all_its_runs_and_a_run_the_one_that_begins_so():
    dfa, run = operands(["dfa", "cccc2"], POOL)
    assert (ids(dfa.runs), dfa.is_run) == (["aaaa1", "aaaa2"], False)
    assert (ids(run.runs), run.is_run, run.label) == (["cccc2"], True, "bp")


def test_a_method_whose_name_is_hexadecimal_is_a_method():
    (found, _) = operands(["dfa", "bp"], (*POOL, stored("dfa0", "fa")))
    assert not found.is_run


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["dffa", "bp"], r"dffa: unknown method or run 'dffa' \(did you mean 'dfa'\?\); known: bp, dfa, dfa\+pen"),
        (["aaaa", "bp"], r"aaaa: 2 runs begin so \(aaaa10+, aaaa20+\); give more characters"),
        (["ffff", "bp"], "ffff: unknown method or run"),
        (["ccc", "bp"], "ccc: unknown method or run"),  # three characters name no run
        (["bp", "bp"], "bp: the same as bp"),
        (["aaaa1", "aaaa10"], "aaaa10: the same as aaaa1"),
        (["dfa", "aaaa1"], "aaaa1: one of dfa is part of the other"),
    ],
)
def test_what_cannot_be_compared_is_said(texts, words):
    with pytest.raises(InvalidFields, match=words):
        operands(texts, POOL)


def test_all_problems_are_named_at_once():
    with pytest.raises(InvalidFields, match="(?s)compare: 2 problems.*xx: .*yy: "):
        operands(["xx", "yy"], POOL)


def test_what_is_read_are_the_runs_their_seeds_and_frozen_controls():
    assert ids(needed(operands(["aaaa1", "bbbb1"], POOL), POOL)) == ["aaaa1", "aaaa2", "bbbb1", "dddd1"]
    assert ids(needed(operands(["dfa", "bp"], POOL), POOL)) == ["aaaa1", "aaaa2", "cccc1", "cccc2", "dddd1", "dddd2"]


def test_one_shared_setting_is_unambiguous_and_several_are_listed():
    check_unambiguous(operands(["dfa", "bp"], POOL))
    check_unambiguous(
        operands(["dfa", "cccc2"], POOL)
    )  # in two settings, one each: compared, and said not to be comparable
    with pytest.raises(UsageError, match=r"(?s)bp, frozen ran in several settings.*all of them ran.*- one\n  - two"):
        check_unambiguous(operands(["bp", "frozen"], POOL))
    with pytest.raises(UsageError, match="none has them all"):
        check_unambiguous(operands(["dfa", "fa"], (*POOL, stored("e1", "fa", "two"), stored("e2", "fa", "three"))))


def test_a_setting_is_chosen_by_words_of_its_name():
    assert ids(in_setting(POOL, "tw")) == ["cccc2", "dddd2"]
    with pytest.raises(UsageError, match=r"unknown setting 'tow' \(did you mean 'two'\?\); known: one, two"):
        in_setting(POOL, "tow")


def test_a_single_run_is_a_column_with_its_own_verdict():
    report = scenes.full_report()
    run = next(one for one in report.runs if one.record.spec.method == "dfa")
    pool = [stored(one.record.run_id, one.record.spec.method_label) for one in report.runs]
    alone, fa = columns(report, operands([run.record.run_id[:9], "fa"], pool))
    assert (alone.runs, alone.verdict) == ((run,), run.verdict)
    assert group_label(alone) == f"dfa s{run.record.spec.seed} {run.record.run_id[:8]}"
    assert fa.method == "fa" and len(fa.runs) > 1


def test_a_method_of_which_no_run_can_be_judged_is_said_with_the_reason():
    report = scenes.small_report()
    broken = stored("f", "drtp")
    assert report.excluded[0] == Exclusion("f" * 32, report.excluded[0].name, "still running: last epoch 3 of 30")
    broken = StoredRun("f" * 32, "drtp", "e", "FINISHED", 0, broken.tags)
    pool = [broken, *(stored(one.record.run_id, one.record.spec.method_label) for one in report.runs)]
    with pytest.raises(InvalidFields, match="drtp: still running: last epoch 3 of 30"):
        columns(report, operands(["drtp", "bp"], pool))
