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
    ("arguments", "problem"),
    [
        (
            dict(edition="2026-05", editions=("2026-04",)),
            "editions: expected --edition or --editions, found both (2026-05; 2026-04)",
        ),
        (dict(editions=("2026-05", "2026-05")), "editions: 2026-05 is given twice"),
        (dict(editions=("2026-05", "2026-50")), "edition: unknown edition '2026-50' (did you mean '2026-05'?)"),
        (
            dict(edition="2026-12-token"),
            "edition: unknown edition '2026-12-token' (did you mean '2026-12:token'?); known: 2026-04, 2026-04:first-release, ",
        ),
        (dict(edition="2026-13"), "edition: unknown edition '2026-13' (did you mean '2026-12'?); known: 2026-04, "),
        (
            dict(edition="2026-12:tokens"),
            "edition: unknown variant of edition 2026-12 'tokens' (did you mean 'token'?); known: token",
        ),
        (dict(editions=("2026-05:loose",)), "edition: unknown variant of edition 2026-05 'loose'"),
        (dict(edition="2026-05", thresholds={"d1": 3}), "threshold d1: unknown rule 'd1'; known: D1, D2, D3"),
    ],
)
def test_what_cannot_be_meant_is_named(arguments, problem):
    problems = []
    chosen_editions(
        **{"edition_of_study": "", "edition": "", "editions": (), "thresholds": {}, **arguments}, problems=problems
    )
    assert len(problems) == 1 and problems[0].startswith(problem)


def judged_by(**terms):
    problems = []
    return [one.name for one in checked_terms(RunSelector(), JudgingOptions(**terms), problems)], problems


def test_strict_is_the_published_codes_edition_with_thresholds_of_ones_own():
    assert judged_by(strict=True) == (["2026-05:strict"], [])
    assert judged_by() == judged_by(strict=False) == ([DEFAULT_EDITION], [])
    (edition,) = checked_terms(RunSelector(), JudgingOptions(thresholds={"D1": 7}, strict=True), [])
    assert (edition.strict, dict(edition.overrides)) == (True, {"D1.threshold": 7.0})


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        (dict(edition="2026-05", strict=True), "strict: expected no edition together with --strict, found 2026-05"),
        (
            dict(editions=("2026-04", "2026-05"), strict=True),
            "strict: expected no edition together with --strict, found 2026-04, 2026-05",
        ),
        (dict(strict="no"), "strict: expected True or False, found 'no'"),
    ],
)
def test_strict_with_an_edition_or_of_another_type_is_named(terms, problem):
    _, problems = judged_by(**terms)
    assert len(problems) == 1 and problems[0].startswith(problem)


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
    assert any("mine.toml: colour: unknown field" in problem for problem in problems) and len(problems) > 2
