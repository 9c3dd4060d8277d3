"""Which editions are the shipped ones, what another is called, and in what it differs from the one it is based on."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry import bundled_files
from fa_registry.errors import InvalidFields
from fa_registry.protocol.builtin_editions import (
    claimed,
    describe_edition,
    digests,
    nearest,
    provenance_of,
    verdict_mark,
)
from fa_registry.protocol.rules import load_edition, overridden, shipped, shipped_editions
from fa_registry.records import EditionReference
from tests.builders import changed_edition, edition_text

OWN = edition_text("lenient", "loss_train", 9.0, code="X1", unit="nats")


def own(tmp_path, *replacements, edition="2026-12"):
    return load_edition(changed_edition(tmp_path, *replacements, edition=edition))


def differences_of(edition):
    return {
        (difference.rule, difference.field): (difference.shipped, difference.this)
        for difference in edition.reference.differences
    }


def test_every_shipped_edition_is_itself_and_differs_from_nothing():
    for name in shipped():
        reference = load_edition(name).reference
        assert (provenance_of(reference), describe_edition(reference), verdict_mark(reference)) == ("shipped", name, "")
        assert reference.shipped and reference.based_on == "" and reference.differences == ()


def test_an_overridden_threshold_is_a_difference_to_the_edition_itself():
    edition = load_edition("2026-12", {"D1": 100, "D2.gain": 0.5})
    assert differences_of(edition) == {("D1", "threshold"): (50.0, 100.0), ("D2", "also gain threshold"): (1e-2, 0.5)}
    assert describe_edition(edition.reference) == "2026-12" and verdict_mark(edition.reference) == "modified edition"


def test_thresholds_moved_twice_are_both_recorded():
    edition = overridden(load_edition("2026-12", {"D1": 100}), {"D2.gain": 0.5})
    assert edition.overrides == {"D1.threshold": 100, "D2.gain": 0.5}
    assert edition.reference.overrides == edition.overrides


@pytest.mark.parametrize("edition", ["2026-04", "2026-05", "2026-12"])
def test_a_file_of_ones_own_is_based_on_the_edition_it_shares_most_with(tmp_path, edition):
    mine = own(tmp_path, ("threshold = 50.0", "threshold = 51.0"), edition=edition)
    assert mine.based_on == edition and len(mine.reference.differences) == 1
    assert describe_edition(mine.reference) == f"mine (based on {edition})"
    assert verdict_mark(mine.reference) == f"mine {mine.digest[:8]}"
    assert mine.reference.shipped is False


def test_what_an_edition_is_based_on_does_not_depend_on_the_order_of_the_files():
    rules = load_edition("2026-05").rules
    assert nearest(rules, shipped_editions()) == nearest(rules, shipped_editions()[::-1]).partition(":")[0] == "2026-05"


def test_a_copy_of_an_edition_is_none_of_one_that_adds_to_it():
    whole = load_edition("2026-12")
    further = dataclasses.replace(
        whole, name="2099-01", rules=(*whole.rules, dataclasses.replace(whole.rules[0], code="D9"))
    )
    changed = (dataclasses.replace(whole.rules[0], title="other words"), *whole.rules[1:])
    assert nearest(changed, [whole, further]) == "2026-12"
    assert nearest(further.rules, [whole, further]) == "2099-01"


def test_a_copy_with_another_limit_is_one_of_the_edition_whose_limit_is_near():
    whole = load_edition("2026-12")
    at = {
        limit: dataclasses.replace(
            whole, name=f"20{limit}-01", rules=(dataclasses.replace(whole.rules[0], threshold=limit), *whole.rules[1:])
        )
        for limit in (20.0, 50.0, 51.0)
    }
    assert nearest(at[51.0].rules, [at[20.0], at[50.0]]) == at[50.0].name


def test_the_file_may_say_what_it_is_based_on_and_must_not_invent_it(tmp_path):
    assert own(tmp_path, ("title =", 'based_on = "2026-05"\ntitle =')).based_on == "2026-05"
    wrong = ("title =", 'based_on = "2026-5"\ntitle =')
    with pytest.raises(InvalidFields, match="based_on: unknown shipped edition '2026-5' .did you mean '2026-05'"):
        own(tmp_path, wrong)


def test_added_and_removed_rules_and_the_editions_own_fields_are_differences(tmp_path):
    path = tmp_path / "lenient.toml"
    path.write_text(OWN.replace("title =", 'based_on = "2026-12"\ntitle =', 1).replace(
        "fail_if", 'strict = true\nlabels = { fail = "NO" }\nfail_if'), encoding="utf-8")  # fmt: skip
    found = differences_of(load_edition(str(path)))
    assert found[("", "fail_if")] == ("(D1 and D2) or (D3)", "(X1)")
    assert found[("", "strict")] == (False, True) and found[("", "labels.fail")] == (None, "NO")
    assert "fires above 9.0" in found[("X1", "rule")][1] and found[("X1", "rule")][0] is None
    assert {rule for (rule, field), (_, this) in found.items() if field == "rule" and this is None} == {
        "D1", "D2", "D3", "D4", "S",
    }  # fmt: skip


def test_an_edition_that_shares_nothing_has_rules_of_its_own(tmp_path):
    path = tmp_path / "lenient.toml"
    path.write_text(OWN, encoding="utf-8")
    reference = load_edition(str(path)).reference
    assert reference.based_on == "" and describe_edition(reference) == "lenient, mine (own rules)"
    assert {difference.field for difference in reference.differences if difference.rule} == {"rule"}


def test_a_changed_word_is_a_difference(tmp_path):
    mine = own(tmp_path, ('fired = "EXPLODED"', 'fired = "GREW"'))
    assert differences_of(mine) == {("D1", "fired"): ("EXPLODED", "GREW")}


def test_a_reference_is_what_its_digest_says_whatever_it_calls_itself():
    real = load_edition("2026-12").reference
    for name in ("2026-12", "2026-12:strict"):
        forged = dataclasses.replace(real, name=name, digest="1a2b3c4d" * 8)
        assert provenance_of(forged) == "foreign" and verdict_mark(forged) == "not shipped 1a2b3c4d"
        assert describe_edition(forged).startswith(f"{name} (not")
    named = dataclasses.replace(real, name="mine", shipped=True)  # with the digest of a shipped file
    assert provenance_of(named) == "own"
    bare = EditionReference("ours", "t", "s", "0" * 64, {"D1.threshold": 1.0})
    assert describe_edition(bare) == "ours, mine (own rules)" and verdict_mark(bare) == "mine 00000000 modified"


@pytest.mark.parametrize(
    "name",
    ["mine", "2026", "2026-1", "2026-121", "2026-12-mine", "2099-11", "", "12026-12", "草案", " 2026-12", "2O26-12"],
)
def test_other_names_are_nobodys(name):
    assert claimed(name) == ""


@pytest.mark.parametrize("name", ["2O26-12", "2026\u201111", "2026-12-token"])
def test_a_name_that_looks_like_a_built_in_one_is_shown_with_digest_and_base(tmp_path, name):
    mine = own(tmp_path, ('name = "mine"', f'name = "{name}"'), ("threshold = 50.0", "threshold = 51.0"))
    reference = mine.reference
    assert (provenance_of(reference), reference.shipped, reference.based_on) == ("own", False, "2026-12")
    assert describe_edition(reference).startswith(f"{name}, mine")
    assert verdict_mark(reference) == f"mine {mine.digest[:8]}"
    assert differences_of(mine) == {("D1", "threshold"): (50.0, 51.0)}


def test_every_name_of_an_edition_or_variant_is_claimed():
    files = {
        path.stem.partition("_")[0] for path in bundled_files.editions().glob("*.toml")
    }  # 2026-12_token.toml: a variant
    assert {claimed(name) for name in digests()} == files
