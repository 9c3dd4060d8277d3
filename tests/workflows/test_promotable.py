"""What refuses a promotion before a store is asked, every wrong word at once."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.protocol.rules import load_edition
from fa_registry.records import RunSpec, Verdict
from fa_registry.training.model_folder import Opinion
from fa_registry.workflows.promote import MAX_REASON, check_aliases, check_words, model_name, verdict_alias

FAILED = Opinion(load_edition("2026-11").reference, Verdict("fail", "FAIL(D1)"), ())


def test_everything_that_was_typed_wrong_is_named_at_once():
    with pytest.raises(InvalidFields) as caught:
        check_words("a/b", ["v3", "latest", "fine", "no space"], "x" * (MAX_REASON + 1))
    assert [one.split(":")[0] for one in caught.value.problems] == ["name", "alias", "alias", "alias", "despite"]
    with pytest.raises(InvalidFields, match="despite: expected a reason, found none"):
        check_words("", [], "  ")
    check_words("my model 1.0 (dfa)", ["champion", "pass"], "known")


def test_an_alias_may_not_say_another_verdict():
    with pytest.raises(InvalidFields, match="'PASS' is a verdict, and this run is FAIL"):
        check_aliases(["champion", "PASS"], FAILED)
    check_aliases(["fail", "champion"], FAILED)


def test_a_verdict_by_an_edition_of_ones_own_has_an_alias_of_its_own():
    own = dataclasses.replace(FAILED.edition, name="Ours (v1)", digest="1a2b3c4d" * 8)
    passed = Opinion(own, Verdict("pass", "PASS"), ())
    assert verdict_alias(FAILED) == "fail" and verdict_alias(passed) == "pass-ours-v1-1a2b3c4d"
    with pytest.raises(InvalidFields, match=r"'pass' is a verdict, and this run is PASS by Ours \(v1\), mine"):
        check_aliases(["pass"], passed)
    unnamed = dataclasses.replace(passed, edition=dataclasses.replace(own, name="我的"))
    assert verdict_alias(unnamed) == "pass-1a2b3c4d"
    check_words("", [verdict_alias(passed), verdict_alias(unnamed)], None)


def test_a_models_name_is_one_that_the_registry_takes():
    spec = RunSpec("dfa", "resmlp", "digits", 1, 1)
    name = model_name(spec, "digits · ResMLP L=4 / é " + "x" * 300)
    assert name.startswith("dfa--digits-resmlp-l-4-e-x") and len(name) == 200
    check_words(name, [], None)
