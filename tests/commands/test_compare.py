"""The compare command over a trained store."""

from __future__ import annotations

import dataclasses
import json
from urllib.parse import quote

import pytest

from fa_registry.audits.compare_command import (
    Operand,
    _concerns,
    check_unambiguous,
    comparison_columns,
    example_runs,
    filter_by_setting,
    needed,
    parse_operands,
)
from fa_registry.audits.selection import never_trained
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.protocol.grouping import groups
from fa_registry.records import Exclusion, RunSpec
from fa_registry.reporting.labels import group_label
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.stores import UI
from tests.commands.conftest import fields
from tests.reporting import sample_reports


def run_of(method):
    return MlflowTracker().search({schema.TAG_METHOD: method})[0].run_id


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("dfa",), ["operands"]),
        ((), ["operands"]),
        (
            ("dfa", "bp", "--study", "tinny", "--edition", "2099-01", "--templates", "none"),
            ["study", "edition", "templates"],
        ),
        (("dfa", "bp"), []),
        (("dfa", "bp", "--study", "tiny", "--experiment", "x"), []),
    ],
)
def test_a_wrong_request_is_refused_and_writes_nothing(registry, workplace, arguments, named):
    assert sorted(fields(registry("compare", *arguments))) == sorted(named)
    assert not (workplace / "reports").exists()


@pytest.mark.long
def test_it_compares_as_the_audit_judges(trained, workplace):
    """One training serves all of these: it is what takes the time."""
    result = trained("compare", "dfa", "bp", "--study", "tiny", "--json")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    audit = json.loads(trained("audit", "--study", "tiny", "--trust-logged", "--out", "audit", "--json").stdout)[
        "report"
    ]
    verdicts = {
        run["record"]["spec"]["method"]: run["verdict"]
        for run in audit["runs"]
        if run["verdict"]["outcome"] != "control"
    }
    (part,) = made["parts"]
    assert {column["label"]: column["verdict"] for column in part["columns"]} == {
        name: verdicts[name] for name in ("dfa", "bp")
    }
    assert made["integrity"][0]["outcome"] == "trusted" and made["edition"]["name"] == "2026-05"
    assert [field["field"] for field in part["fields"]] == ["method"]
    assert part["paired"][0]["answer"] == "provisional"
    pair = quote(json.dumps([run_of("dfa"), run_of("bp")]))
    assert made["in_mlflow"].startswith(f"{UI}/#/compare-runs?runs={pair}&experiments=")
    assert (workplace / made["page"]).is_file()
    assert trained("compare", "dfa", "bp").exit_code == 0  # the store has one setting: nothing to choose

    first, second = run_of("dfa"), run_of("fa")
    runs = trained("compare", first[:8], second[:8], "--recompute", "--jobs", "1", "--json")
    assert runs.exit_code == 0
    labels = [column["label"] for column in json.loads(runs.stdout)["parts"][0]["columns"]]
    assert labels == [f"dfa s1 {first[:8]}", f"fa s1 {second[:8]}"]
    assert json.loads(runs.stdout)["integrity"] == [{"outcome": "verified", "count": 2, "links": []}]

    assert fields(trained("compare", "dfaa", "bp", "--study", "tiny")) == ["dfaa"]


def test_a_run_that_was_tampered_with_is_not_intact(trained):
    MlflowTracker().artifact(run_of("dfa"), schema.FINAL).write_bytes(b"other")
    result = trained("compare", "dfa", "bp", "--study", "tiny")
    assert result.exit_code == 3
    assert trained("compare", "fa", "bp", "--study", "tiny").exit_code == 0  # dfa is no part of it


@pytest.mark.parametrize(
    ("excluded", "label"),
    [
        (never_trained(RunSpec("dfa", "resmlp", "digits", 1, 3, weights="ab" * 32)), "dfa adopted"),
        (never_trained(RunSpec("dfa", "resmlp", "digits", 1, 3, penalty=0.01)), "dfa+pen λ=0.01"),
        (Exclusion("r", "named by hand in MLflow", "half-written", method="dfa"), "dfa"),
    ],
)
def test_a_run_that_cannot_be_judged_is_known_by_its_method_and_not_by_its_name(excluded, label):
    """An adopted run's name continues with its file's digest, and any user may rename a run: it was left out in silence."""
    assert _concerns(excluded, [Operand(label, label, False, ())])
    assert not _concerns(excluded, [Operand("fa", "fa", False, ())])


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
    dfa, run = parse_operands(["dfa", "cccc2"], POOL)
    assert (ids(dfa.runs), dfa.is_run) == (["aaaa1", "aaaa2"], False)
    assert (ids(run.runs), run.is_run, run.label) == (["cccc2"], True, "bp")
    hexadecimal, _ = parse_operands(["dfa", "bp"], (*POOL, stored("dfa0", "fa")))
    assert not hexadecimal.is_run


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["dffa", "bp"], ["dffa"]),
        (["aaaa", "bp"], ["aaaa"]),  # the beginning of two ids
        (["ffff", "bp"], ["ffff"]),
        (["ccc", "bp"], ["ccc"]),  # three characters name no run
        (["bp", "bp"], ["bp"]),
        (["aaaa1", "aaaa10"], ["aaaa10"]),
        (["dfa", "aaaa1"], ["aaaa1"]),
        (["xx", "yy"], ["xx", "yy"]),
    ],
)
def test_what_cannot_be_compared_is_reported(texts, named):
    with pytest.raises(InvalidFields) as refused:
        parse_operands(texts, POOL)
    assert [problem.partition(":")[0] for problem in refused.value.problems] == named


def test_what_is_read_are_the_runs_their_seeds_and_controls():
    controls = [stored(f"c{label}", label) for label in ("frozen_long", "shallow", "bp ladder 1", "dfa ladder 1")]
    found = ids(needed(parse_operands(["aaaa1", "bbbb1"], POOL), [*POOL, *controls]))
    assert found == ["aaaa1", "aaaa2", "bbbb1", "dddd1", *ids(controls[:3])]
    assert ids(needed(parse_operands(["aaaa1", "bbbb1"], POOL), POOL)) == ["aaaa1", "aaaa2", "bbbb1", "dddd1"]
    of_methods = ids(needed(parse_operands(["dfa", "bp"], POOL), POOL))
    assert of_methods == ["aaaa1", "aaaa2", "cccc1", "cccc2", "dddd1", "dddd2"]


def test_one_shared_setting_is_unambiguous_and_several_are_listed():
    check_unambiguous(parse_operands(["dfa", "bp"], POOL))
    check_unambiguous(parse_operands(["dfa", "cccc2"], POOL))  # in two settings, one each: compared
    with pytest.raises(UsageError, match=r"(?s)- one\n  - two"):
        check_unambiguous(parse_operands(["bp", "frozen"], POOL))
    with pytest.raises(UsageError):
        others = (*POOL, stored("e1", "fa", "two"), stored("e2", "fa", "three"))
        check_unambiguous(parse_operands(["dfa", "fa"], others))
    assert ids(filter_by_setting(POOL, "tw")) == ["cccc2", "dddd2"]
    with pytest.raises(UsageError, match="'two'"):
        filter_by_setting(POOL, "tow")


def test_a_single_run_is_a_column_with_its_own_verdict():
    report = sample_reports.full_report()
    run = next(run for run in report.runs if run.record.spec.method == "dfa")
    pool = [stored(run.record.run_id, run.record.spec.method_label) for run in report.runs]
    alone, fa = comparison_columns(report, parse_operands([run.record.run_id[:9], "fa"], pool))
    assert (alone.runs, alone.verdict) == ((run,), run.verdict)
    assert group_label(alone) == f"dfa s{run.record.spec.seed} {run.record.run_id[:8]}"
    assert fa.method == "fa" and len(fa.runs) > 1


def test_the_page_of_single_runs_has_one_of_each_of_a_seed_that_all_have():
    by_method = {group.method: group for group in groups(sample_reports.full_report())}
    dfa, fa = by_method["dfa"], by_method["fa"]
    first, second, *_ = fa.runs
    late = dataclasses.replace(fa, runs=(second, first))
    ids_of = {run.record.spec.seed: run.record.run_id for run in dfa.runs}
    assert example_runs([late, dfa]) == [second.record.run_id, ids_of[second.record.spec.seed]]
    lonely = [dataclasses.replace(group, runs=group.runs[at : at + 1]) for at, group in enumerate((dfa, fa))]
    assert example_runs(lonely) == [dfa.runs[0].record.run_id, second.record.run_id]


def test_a_method_of_which_no_run_can_be_judged_is_reported_with_the_reason():
    report = sample_reports.small_report()
    broken = StoredRun("f" * 32, "drtp", "e", "FINISHED", 0, stored("f", "drtp").tags)
    assert report.excluded[0].run_id == broken.run_id
    pool = [broken, *(stored(run.record.run_id, run.record.spec.method_label) for run in report.runs)]
    with pytest.raises(InvalidFields, match=f"drtp: {report.excluded[0].reason}"):
        comparison_columns(report, parse_operands(["drtp", "bp"], pool))
