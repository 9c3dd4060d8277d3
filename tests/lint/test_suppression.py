"""The `fa: ok` comment, spelled in every way people do."""

from __future__ import annotations

import pytest

from fa_registry.lint.linting import silences

KNOWN = ("FA001", "FA002")


@pytest.mark.parametrize(
    ("comment", "codes", "reason"),
    [
        ("# fa: ok FA002 unit vectors", ("FA002",), "unit vectors"),
        ("#fa:ok FA002: unit vectors", ("FA002",), "unit vectors"),
        ("# fa: ok FA001, FA002 - unit vectors", ("FA001", "FA002"), "unit vectors"),
        ("# noqa: E501  # fa: ok fa001 Unit vectors", ("FA001",), "Unit vectors"),
    ],
)
def test_codes_and_reason(comment, codes, reason):
    (silence,) = silences(f"x = 1  {comment}\n", KNOWN)
    assert (silence.codes, silence.reason, silence.problem, silence.line) == (codes, reason, "", 1)


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ("# fa: ok FA002", "gives no reason"),
        ("# fa: ok FA002 -", "gives no reason"),
        ("# fa: ok", "names no rule"),
        ("# fa: ok unit vectors", "names no rule"),
        ("# fa: ok FA099 unit vectors", "names FA099"),
    ],
)
def test_what_silences_nothing_says_why(comment, problem):
    (silence,) = silences(f"x = 1  {comment}\n", KNOWN)
    assert problem in silence.problem


@pytest.mark.parametrize("text", ['x = "# fa: ok FA002"\n', "# alfa: ok then\n", "# fa: okay FA002\n", "x = 1\n"])
def test_other_texts_are_no_such_comment(text):
    assert list(silences(text, KNOWN)) == []
