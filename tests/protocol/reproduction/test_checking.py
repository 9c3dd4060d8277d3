"""What a figure may not be: each slip by its sentence, and all of a file at once."""

from __future__ import annotations

import tomllib

import pytest

from fa_registry.protocol.reproduction.reference_file import problems_of
from tests.protocol.reproduction.test_loading import HEAD, table


def found(*tables):
    return problems_of(tomllib.loads("\n".join([HEAD, *tables])))


def test_a_good_file_has_no_problem():
    good = (
        "value = 1",
        "mean = 1, std = 0, n = 2",
        "values = [1, 2]",
        "low = 1, high = 2",
        "below = 1",
        'remark = "r", above = 1',
    )
    assert found(table(*good)) == []


@pytest.mark.parametrize(
    ("figure", "sentence"),
    [
        ("", "expected the figure in one form"),
        ("value = 1, mean = 2", "found mean, value"),
        ("mean = 1, std = 0.1", "mean with std with n"),
        ("values = [1]", ".values: expected two or more finite numbers, found [1]"),
        ("low = 2, high = 1", ".low: expected less than high = 1, found 2"),
        ("mean = 1, std = -1, n = 3", ".std: expected at least 0, found -1"),
        ("mean = 1, std = 1, n = 1", ".n: expected at least 2, found 1"),
        ("value = nan", ".value: expected a finite number, found nan"),
        ("value = true", ".value: expected a finite number, found True"),
        ("value = 1, siet = 2", "unknown key 'siet' (did you mean 'site'?)"),
        ("value = 1, site = -1", ".site: expected text, found -1"),
        ('value = 1, site = "lst"', ".site: unknown site 'lst' (did you mean 'last'?)"),
        ('value = 1, margin = "p"', ".margin: unknown margin 'p'"),
        ('value = 1, setting = "mian"', ".setting: unknown setting 'mian' (did you mean 'main'?)"),
        ('value = 1, margin = "spread"', "is a multiple of std, and there is none above 0"),
        ('value = 0, margin = "share"', "is a share of a value or mean, and there is none"),
        ('value = 0, margin = "decades"', "expected numbers above 0 on scale log10, found 0"),
        ('mean = 1, std = 1, n = 3, margin = "decades"', "a spread says nothing of logarithms"),
        ("value = 1, factor = 0", ".factor: expected more than 0, found 0"),
        ('value = 1, rule = "D1"', ".rule: expected with the quantity first_fire and only there"),
        ('value = 1, rule = "D9", quantity = "first_fire"', ".rule: unknown rule 'D9'"),
        ("never = true", ".never: expected of a first fire only"),
        ('never = false, rule = "D1", quantity = "first_fire"', ".never: expected true, found False"),
        ('value = 1, where = ""', ".where: missing"),
    ],
)
def test_each_slip_has_its_sentence(figure, sentence):
    (only,) = found(table(figure))
    assert only.startswith("table[0].figures[0]") and sentence in only


def test_a_margin_and_a_setting_are_needed_unless_nothing_is_tested():
    assert found(table("value = 1", margin=None)) == ["table[0].figures[0].margin: missing"]
    assert found(table("value = 1", setting=None)) == ["table[0].figures[0].setting: missing"]
    assert found(table("value = 1", margin=None, setting=None, not_measured="because")) == []


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("why = 'w'", "margin.new: expected one of value, of_std, relative, found none"),
        ("value = 1\nrelative = 1\nwhy = 'w'", "found value and relative"),
        ("value = 1", "margin.new.why: missing"),
        ("value = 1\nscale = 'log'\nwhy = 'w'", "margin.new.scale: unknown scale 'log' (did you mean 'log10'?)"),
        ("of_std = 1\nscale = 'log10'\nwhy = 'w'", "margin.new: expected a value in decades on scale log10"),
    ],
)
def test_a_margin_says_its_size_once_and_why(lines, sentence):
    (only,) = found("[margin.new]", lines)
    assert sentence in only


def test_everything_is_named_at_once():
    assert len(found("[margin.new]", table("value = 1, mean = 2", "values = [1]", "vale = 1"))) == 6
