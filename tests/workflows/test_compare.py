"""The compare verb over a trained store."""

from __future__ import annotations

import json

import pytest

from fa_registry.records import Exclusion, RunSpec
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.workflows.compare import Operand, _concerns
from fa_registry.workflows.selection import never_trained


def run_of(method):
    return MlflowTracker().search({schema.TAG_METHOD: method})[0].run_id


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dfa",), "operands: expected two or more methods or runs, found dfa"),
        ((), "found none"),
        (("dfa", "bp", "--study", "tinny"), "study: unknown study 'tinny'"),
        (("dfa", "bp", "--edition", "2099-01"), "unknown edition '2099-01'"),
        (("dfa", "bp", "--templates", "none"), "templates: there is no folder none"),
        (("dfa", "bp"), "no finished run in sqlite"),
        (("dfa", "bp", "--study", "tiny", "--experiment", "x"), "found --study, --experiment"),
    ],
)
def test_a_wrong_request_is_refused_and_writes_nothing(registry, workplace, arguments, words):
    result = registry("compare", *arguments)
    assert result.exit_code == 2 and words in result.stderr
    assert not (workplace / "reports").exists()


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
    page = (workplace / "reports" / "compare.html").read_text("utf-8")
    assert "dfa against bp" in page and made["page"] == "reports/compare.html"

    whole = trained("compare", "dfa", "bp")  # the store has one setting: nothing to choose
    assert whole.exit_code == 0 and "the newest run of every specification in the store" in (
        workplace / "reports" / "compare.html"
    ).read_text("utf-8")

    first, second = run_of("dfa"), run_of("fa")
    runs = trained("compare", first[:8], second[:8], "--recompute", "--jobs", "1", "--json")
    assert runs.exit_code == 0
    labels = [column["label"] for column in json.loads(runs.stdout)["parts"][0]["columns"]]
    assert labels == [f"dfa s1 {first[:8]}", f"fa s1 {second[:8]}"]
    assert json.loads(runs.stdout)["integrity"] == [{"outcome": "verified", "count": 2, "links": []}]

    unknown = trained("compare", "dfaa", "bp", "--study", "tiny")
    assert unknown.exit_code == 2 and "(did you mean 'dfa'?)" in unknown.stderr


def test_a_run_that_was_tampered_with_is_not_intact(trained):
    MlflowTracker().artifact(run_of("dfa"), schema.FINAL).write_bytes(b"other")
    result = trained("compare", "dfa", "bp", "--study", "tiny")
    assert result.exit_code == 3 and "dfa: integrity failure" in result.stderr
    spoilt = trained("compare", "fa", "bp", "--study", "tiny")
    assert spoilt.exit_code == 0  # dfa is no part of it


@pytest.mark.parametrize(
    ("excluded", "label"),
    [
        (never_trained(RunSpec("dfa", "resmlp", "digits", 1, 3, weights="ab" * 32)), "dfa adopted"),
        (never_trained(RunSpec("dfa", "resmlp", "digits", 1, 3, penalty=0.01)), "dfa+pen λ=0.01"),
        (Exclusion("r", "named by hand in MLflow", "half-written", method="dfa"), "dfa"),
    ],
)
def test_a_run_that_cannot_be_judged_is_known_by_its_method_and_not_by_its_name(excluded, label):
    """An adopted run's name goes on with its file's digest, and anybody may rename a run: it was left out in silence."""
    assert _concerns(excluded, [Operand(label, label, False, ())])
    assert not _concerns(excluded, [Operand("fa", "fa", False, ())])
