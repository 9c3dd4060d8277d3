"""What refuses a promotion before a store is asked, every wrong word at once."""

from __future__ import annotations

import pytest

from fa_registry.commands.promotable import MAX_REASON, check_aliases, check_words, model_name
from fa_registry.errors import InvalidFields
from fa_registry.records import RunSpec, Verdict


def test_everything_that_was_typed_wrong_is_named_at_once():
    with pytest.raises(InvalidFields) as caught:
        check_words("a/b", ["v3", "latest", "fine", "no space"], "x" * (MAX_REASON + 1))
    assert [one.split(":")[0] for one in caught.value.problems] == ["name", "alias", "alias", "alias", "despite"]
    with pytest.raises(InvalidFields, match="despite: expected a reason, found none"):
        check_words("", [], "  ")
    check_words("my model 1.0 (dfa)", ["champion", "pass"], "known")


def test_an_alias_may_not_say_another_verdict():
    with pytest.raises(InvalidFields, match="'PASS' is a verdict, and this run is FAIL"):
        check_aliases(["champion", "PASS"], Verdict("fail", "FAIL(D1)"))
    check_aliases(["fail", "champion"], Verdict("fail", "FAIL(D1)"))


def test_a_models_name_is_one_that_the_registry_takes():
    spec = RunSpec("dfa", "resmlp", "digits", 1, 1)
    name = model_name(spec, "digits · ResMLP L=4 / é " + "x" * 300)
    assert name.startswith("dfa--digits-resmlp-l-4-e-x") and len(name) == 200
    check_words(name, [], None)
