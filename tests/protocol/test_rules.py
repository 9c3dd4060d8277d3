"""Editions as data: names, variants, overrides, and what a wrong file is told."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fa_registry import resources
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol import checking
from fa_registry.protocol.engine import JUDGES, judge
from fa_registry.protocol.rules import Condition, Rule, load_edition, shipped
from tests.builders import frozen, measurements, record


def write(tmp_path, *replacements, edition="2026-05"):
    text = (resources.editions() / f"{edition}.toml").read_text(encoding="utf-8")
    for old, new in ((f'name = "{edition}"', 'name = "mine"'), *replacements):
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_users_edition_is_told_apart_by_its_digest(tmp_path):
    mine = load_edition(write(tmp_path, ("threshold = 50.0", "threshold = 40")))
    assert mine.rules[0].threshold == 40.0 and isinstance(mine.rules[0].threshold, float)
    assert mine.digest != load_edition("2026-05").digest


def test_a_users_edition_has_variants_too(tmp_path):
    path = write(tmp_path)
    assert load_edition(f"{path}:strict").strict
    assert load_edition(f"{path}:strict").name == "mine:strict"
    assert not load_edition(path).strict


def test_every_shipped_name_loads_and_is_the_editions_own():
    assert {"2026-04", "2026-04:first-release", "2026-05", "2026-05:strict", "2026-11"} == set(shipped())
    assert all(load_edition(name).name == name for name in shipped())


def test_every_rule_says_who_says_so_and_why():
    for name in shipped():
        for rule in load_edition(name).rules:
            assert rule.source and rule.rationale and rule.fired != rule.clear


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (('fires = "above"', 'fires = "abov"'), r"rule\[0\].fires: unknown operator 'abov' \(did you mean 'above'\?\)"),
        (('fires = "above"', 'fires = "__import__"'), "unknown operator"),
        (('fires = "above"', "fires = 3"), r"rule\[0\].fires: expected text, found 3"),
        (("threshold = 50.0", 'threshold = "50"'), r"rule\[0\].threshold: expected a finite number, found '50'"),
        (("threshold = 50.0", "threshold = true"), r"rule\[0\].threshold: expected a finite number, found True"),
        (("threshold = 50.0", "threshold = nan"), r"rule\[0\].threshold: expected a finite number, found nan"),
        (('source = "arXiv 2606.21126, D1: maximal growth per block > 50"', ""), r"rule\[0\].source: missing"),
        (
            ('source = "arXiv 2606.21126, D1: maximal growth per block > 50"', 'source = ""'),
            r"rule\[0\].source: missing",
        ),
        (('source = "arXiv 2606.21126, the published three-diagnostic protocol"', ""), "- source: missing"),
        (('take = "max_over_sites"', 'take = "all"'), r"rule\[0\].take: unknown quantifier 'all'"),
        (('take = "max_over_sites"', 'take = "last_site"\njudge = "eval"'), r"rule\[0\].judge: unknown judge 'eval'"),
        (('code = "D1"', 'code = "D1"\ngating = "no"'), r"rule\[0\].gating: expected true or false, found 'no'"),
        (('code = "D1"', 'code = "D1"\noutcome = "pass"'), r"rule\[0\].outcome: unknown outcome 'pass'"),
        (('code = "D1"', 'code = "D 1"'), r"rule\[0\].code: expected a letter, then letters"),
        (('code = "D1"', 'code = "D2"'), "rule: code 'D2' is given twice"),
        (('code = "D1"', 'code = "D1"\ngating = false'), "fail_if: unknown gating rule 'D1'"),
        (('code = "D1"', 'code = "D1"\nreference = "accuracy"'), r"rule\[0\].reference: above has none"),
        (('reference = "accuracy"', ""), r"rule\[2\].reference: missing"),
        (('reference = "accuracy"', 'reference = "g_L"\njudge = "seeds_margin"'), r"rule\[2\].quantity: seeds_margin"),
        (('code = "D1"', 'code = "D1"\ntrajectory = "x"'), r"rule\[0\].trajectory: unknown field 'trajectory'"),
        (('code = "D1"', 'code = "D1"\nguard = 3'), r"rule\[0\].guard: expected a table, found 3"),
        (('code = "D1"', 'code = "D1"\nalso = [3]'), r"rule\[0\].also\[0\]: expected a table, found 3"),
        (('fail_if = [["D1", "D2"], ["D3"]]', 'fail_if = [["D9"]]'), "fail_if: unknown gating rule 'D9'"),
        (('fail_if = [["D1", "D2"], ["D3"]]', 'fail_if = ["D1"]'), "fail_if: expected lists of rules, found 'D1'"),
        (('fail_if = [["D1", "D2"], ["D3"]]', 'fail_if = "D1"'), "fail_if: expected a list, found 'D1'"),
        (("fail_if", "strikt = true\nfail_if"), r"unknown field 'strikt' \(did you mean 'strict'\?\)"),
        (("fail_if", "labels = { pas = 'x' }\nfail_if"), r"labels.pas: unknown field 'pas' \(did you mean 'pass'\?\)"),
        (("fail_if", "labels = { fail = 'NO (' }\nfail_if"), "labels.fail: may hold no bracket"),
        (("fail_if", "labels = { fail = 'a: b' }\nfail_if"), "labels.fail: may hold no bracket, and a colon only at"),
    ],
)
def test_a_wrong_edition_is_told_what_is_wrong(tmp_path, replacement, message):
    with pytest.raises(InvalidFields, match=message):
        load_edition(write(tmp_path, replacement))


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (('quantity = "gain"', ""), r"rule\[1\].also\[0\].quantity: missing"),
        (('clear = "CONVERGED"', ""), r"rule\[1\].also\[0\].clear: missing"),
        (('fired = "NOISY"', ""), r"rule\[1\].guard.fired: missing"),
        (("threshold = 1e-2", 'threshold = "1e-4"'), r"rule\[1\].also\[0\].threshold: expected a finite number"),
        (("threshold = 0.99", "threshold = 0.99\nweight = 1"), r"rule\[1\].guard.weight: unknown field"),
        (
            ('quantity = "gain"\ntake = "last_site"\nfires = "below"', 'quantity = "gain"\ntake = "one"\nfires = "be"'),
            r"also\[0\].take: unknown quantifier 'one'(?s:.)*also\[0\].fires: unknown operator 'be'",
        ),
        (
            (
                'quantity = "gain"\ntake = "last_site"\nfires = "below"',
                'quantity = "gain"\ntake = "last_site"\nfires = "below_reference_plus"',
            ),
            r"also\[0\].fires: only a rule's leading condition",
        ),
        (('judge = "seeds_margin"', 'judge = "seeds_margin"\nalso = [{}]'), r"rule\[2\].also: the judge seeds_margin"),
        (('reference = "accuracy"', 'reference = "accuracy"\nguard = 3'), r"rule\[2\].guard: the judge seeds_margin"),
        (('outcome = "warn"', 'outcome = "warn"\nreference = "x"'), r"rule\[3\].reference: the judge credit_dist"),
    ],
)
def test_a_wrong_further_condition_is_told_what_is_wrong(tmp_path, replacement, message):
    with pytest.raises(InvalidFields, match=message):
        load_edition(write(tmp_path, replacement, edition="2026-11"))


def test_all_wrong_fields_are_named_together(tmp_path):
    with pytest.raises(InvalidFields) as caught:
        load_edition(write(tmp_path, ("threshold = 50.0", 'threshold = "x"'), ('take = "last_site"', 'take = "first"')))
    assert len(caught.value.problems) == 2


def test_an_edition_that_is_no_tables_at_all_is_refused_not_crashed(tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text('name = 1\nrule = [3]\nlabels = 4\nfail_if = [[]]\nvariant = "x"\n', encoding="utf-8")
    with pytest.raises(InvalidFields) as caught:
        load_edition(str(path))
    named = [problem.split(":")[0] for problem in caught.value.problems]
    assert set(named) == {"variant", "title", "source", "name", "labels", "rule[0]", "fail_if"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("[variant.v]\nstrikt = true", "unknown field 'strikt'"),
        ('[[variant.v.rule]]\ncode = "D7"', r"variant.v.rule\[0\].code: unknown rule 'D7'"),
        ('[[variant.v.rule]]\ncode = "D1"\nthreshold = "9"', r"rule\[0\].threshold: expected a finite number"),
    ],
)
def test_a_wrong_variant_is_told_what_is_wrong(tmp_path, changes, message):
    path = write(tmp_path, ("[variant.strict]", f"{changes}\n[variant.strict]"))
    with pytest.raises(InvalidFields, match=message):
        load_edition(f"{path}:v")
    assert load_edition(path).name == "mine"


def test_unknown_names_files_and_variants(tmp_path):
    with pytest.raises(UnknownName, match="unknown edition '2026-5' .did you mean '2026-05'"):
        load_edition("2026-5")
    with pytest.raises(
        UnknownName, match="unknown variant of edition 2026-05 'strct' .did you mean 'strict'.*known: strict"
    ):
        load_edition("2026-05:strct")
    with pytest.raises(UnknownName, match="unknown variant of edition 2026-05 ''"):
        load_edition("2026-05:")
    with pytest.raises(InvalidFields, match="does not exist"):
        load_edition(str(tmp_path / "none.toml"))
    for content in (b"= nonsense", b"\xff\xfe"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(InvalidFields, match="not TOML"):
            load_edition(str(tmp_path / "bad.toml"))


def test_an_overridden_threshold_judges_and_is_recorded():
    for key in ("D1", "D1.threshold", "D1.growth"):
        edition = load_edition("2026-05", {key: 100})
        assert edition.reference.overrides == {"D1.threshold": 100.0}
        finding = judge(record(measured=measurements(growth=60.0)), frozen(), edition).findings[0]
        assert (finding.outcome, finding.threshold) == ("pass", 100.0) and "at most 100" in finding.sentence
    assert edition.digest == load_edition("2026-05").digest


def test_further_conditions_are_overridden_by_their_quantity():
    edition = load_edition("2026-11", {"D2.gain": 0.5, "D2.fidelity": 0.9})
    assert edition.overrides == {"D2.gain": 0.5, "D2.fidelity": 0.9}
    assert [condition.threshold for condition in edition.rules[1].conditions] == [1.28e-5, 0.5, 0.9]
    figures = dict(g_norm=1e-6, gain=0.29)
    assert judge(record(measured=measurements(**figures)), None, edition).findings[1].state == "AT FLOOR"


def test_wrong_overrides_are_named_together():
    overrides = {"D9": 1.0, "D2.gian": 1.0, "D1": math.nan, "S": "3", "D3": 1.0, "D3.threshold": 2.0}
    with pytest.raises(InvalidFields) as caught:
        load_edition("2026-11", overrides)
    assert caught.value.problems == (
        "D9: unknown rule 'D9'; known: D1, D2, D3, D4, S",
        "D2.gian: unknown limit of D2 'gian' (did you mean 'gain'?); known: fidelity, gain, threshold",
        "D1: expected a finite number, found nan",
        "S: expected a finite number, found '3'",
        "D3.threshold: the limit is given twice",
    )


def test_the_checked_fields_are_those_of_the_dataclasses_and_the_judges_those_of_the_engine():
    assert set(checking.RULE) == {field.name for field in dataclasses.fields(Rule)}
    assert set(checking.CONDITION) == {field.name for field in dataclasses.fields(Condition)}
    assert set(checking.JUDGES) == set(JUDGES)
