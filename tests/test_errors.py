"""Messages and exit codes of the exception tree."""

from __future__ import annotations

import pytest

from fa_registry import errors
from fa_registry.errors import InvalidFields, RegistryError, UnknownName, unknown_name_text


def test_unknown_name_suggests_the_nearest_and_lists_all():
    assert unknown_name_text("method", "dfaa", ["fa", "dfa", "bp"]) == (
        "unknown method 'dfaa' (did you mean 'dfa'?); known: bp, dfa, fa"
    )


def test_unknown_name_without_a_near_one_makes_no_guess():
    assert unknown_name_text("method", "zzzz", ["dfa"]) == "unknown method 'zzzz'; known: dfa"


def test_unknown_name_in_an_empty_family():
    assert str(UnknownName("form", "short", [])) == "unknown form 'short'; known: none"


def test_invalid_fields_reports_all_at_once():
    error = InvalidFields("run", ["seed: missing", "epochs: expected a whole number, found 'x'"])
    assert error.problems == ("seed: missing", "epochs: expected a whole number, found 'x'")
    assert str(error) == "run: 2 problems\n  - seed: missing\n  - epochs: expected a whole number, found 'x'"
    assert str(InvalidFields("run", ["seed: missing"])).startswith("run: 1 problem\n")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("RegistryError", 1),
        ("UsageError", 2),
        ("UnknownName", 2),
        ("InvalidFields", 2),
        ("StoreError", 2),
        ("NothingSelected", 2),
        ("PluginError", 2),
        ("IntegrityError", 3),
        ("Interrupted", 130),
    ],
)
def test_exit_codes(name, code):
    assert getattr(errors, name).exit_code == code


def test_every_error_is_in_the_tree_drawn_at_the_top():
    members = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(member.__name__ in errors.__doc__ for member in members)
    assert {member for member in members if not issubclass(member, RegistryError)} == {errors.EvidenceWarning}
