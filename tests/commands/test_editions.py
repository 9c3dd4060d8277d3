"""Which edition leads, which are judged in addition, and what is refused."""

from __future__ import annotations

import pytest

from fa_registry.audits.editions import checked_terms, chosen_editions
from fa_registry.audits.options import JudgingOptions
from fa_registry.protocol.rules import load_edition
from fa_registry.studies.editions import DEFAULT_EDITION, load_or_name, signature, study_edition
from fa_registry.studies.options import RunSelector
from fa_registry.studies.study import load_study


def names(own="", edition="", editions=(), thresholds=None):
    problems = []
    found = chosen_editions(own, edition, editions, thresholds or {}, problems)
    assert problems == []
    return [one.name for one in found]


@pytest.mark.parametrize(
    ("own", "edition", "editions", "expected"),
    [
        ("", "", (), [DEFAULT_EDITION]),
        ("2026-04", "", (), ["2026-04"]),
        ("2026-04", "2026-12", (), ["2026-12"]),
        ("2026-12", "", ("2026-04", "2026-05", "2026-12"), ["2026-12", "2026-04", "2026-05"]),
        ("", "", ("2026-04", DEFAULT_EDITION), [DEFAULT_EDITION, "2026-04"]),
        ("2026-12", "", ("2026-04", "2026-05"), ["2026-04", "2026-05"]),
        ("2026-05", "", ("2026-04:first-release", "2026-05"), ["2026-05", "2026-04:first-release"]),
    ],
)
def test_the_studys_edition_leads_where_it_is_named_else_the_first(own, edition, editions, expected):
    assert names(own, edition, editions) == expected


def test_other_thresholds_are_the_leading_editions_alone():
    first, second = chosen_editions("2026-12", "", ("2026-05", "2026-12"), {"D1": 7}, [])
    assert (first.name, dict(first.overrides)) == ("2026-12", {"D1.threshold": 7.0})
    assert second.overrides == {} and second.rules == load_edition("2026-05").rules


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"edition": "2026-05", "editions": ("2026-04",)}, "editions 2026-05 2026-04"),
        ({"editions": ("2026-05", "2026-05")}, "editions 2026-05"),
        ({"editions": ("2026-05", "2026-50")}, "edition '2026-50' '2026-05'"),
        ({"edition": "2026-12-token"}, "edition '2026-12-token' '2026-12:token'"),
        ({"edition": "2026-13"}, "edition '2026-13' '2026-12'"),
        ({"edition": "2026-12:tokens"}, "edition 2026-12 'tokens' 'token'"),
        ({"editions": ("2026-05:loose",)}, "edition 2026-05 'loose'"),
        ({"edition": "2026-05", "thresholds": {"d1": 3}}, "threshold 'd1' D1 D2 D3"),
    ],
)
def test_what_cannot_be_meant_is_named(arguments, names):
    problems, nothing = [], {"edition_of_study": "", "edition": "", "editions": (), "thresholds": {}}
    chosen_editions(**{**nothing, **arguments}, problems=problems)
    field, *others = names.split()
    assert len(problems) == 1 and problems[0].startswith(field) and all(name in problems[0] for name in others)


def judged_by(**terms):
    problems = []
    return [one.name for one in checked_terms(RunSelector(), JudgingOptions(**terms), problems)], problems


def test_strict_is_the_published_codes_edition_with_thresholds_of_ones_own():
    assert judged_by(strict=True) == (["2026-05:strict"], [])
    assert judged_by() == judged_by(strict=False) == ([DEFAULT_EDITION], [])
    (edition,) = checked_terms(RunSelector(), JudgingOptions(thresholds={"D1": 7}, strict=True), [])
    assert (edition.strict, dict(edition.overrides)) == (True, {"D1.threshold": 7.0})


@pytest.mark.parametrize("terms", [{"edition": "2026-05"}, {"editions": ("2026-04", "2026-05")}, {"strict": "no"}])
def test_strict_with_an_edition_or_of_another_type_is_named(terms):
    _, problems = judged_by(**{"strict": True, **terms})
    assert [problem.partition(":")[0] for problem in problems] == ["strict"]


def test_a_study_by_name_has_its_edition_and_a_mere_tag_has_none():
    assert study_edition("digits") == load_study("digits").edition != ""
    assert study_edition("my experiments") == study_edition("") == ""


def test_a_signature_tells_editions_and_their_changes_apart():
    plain, changed = load_edition("2026-05").reference, load_edition("2026-05", {"D1": 3}).reference
    assert signature(plain) == f"2026-05 {plain.digest[:8]}"
    assert signature(changed) == f"{signature(plain)} modified"


def test_a_broken_file_is_named_field_by_field(tmp_path):
    (tmp_path / "mine.toml").write_text('name = "mine"\ncolour = "red"')
    problems = []
    assert load_or_name(str(tmp_path / "mine.toml"), problems) is None
    assert any("mine.toml: colour: " in problem for problem in problems) and len(problems) > 2
