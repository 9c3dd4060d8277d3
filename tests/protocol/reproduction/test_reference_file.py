"""reference.toml as it is read: tables shared by figures, files that take over others, and every refusal at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.protocol.reproduction import load_reference
from fa_registry.records import Margin, Published
from tests.helpers.problems import fields_of, sentences

HEAD = """
title = "a title"
source = "A Paper"
remarks = ["a contradiction"]

[setting.main]
architecture = "resmlp"
dataset = "digits"
epochs = 3

[margin.pp]
value = 0.02
why = "small enough"

[margin.spread]
of_std = 2.0
why = "wide"

[margin.share]
relative = 0.5
why = "half"

[margin.decades]
value = 0.5
scale = "log10"
why = "a factor of three"
"""


def table(*figures, **shared):
    given = {"quantity": "accuracy", "method": "bp", "setting": "main", "margin": "pp", "where": "table 1", **shared}
    lines = ["[[table]]", *(f"{name} = {value!r}" for name, value in given.items() if value is not None)]
    return "\n".join([*lines, "figures = [", *(f"  {{ {figure} }}," for figure in figures), "]", ""])


def write(tmp_path, *tables, head=HEAD, study="one"):
    folder = tmp_path / study
    folder.mkdir(exist_ok=True)
    (folder / "reference.toml").write_text("\n".join([head, *tables]), encoding="utf-8")
    return folder


def load(tmp_path, *tables, **given):
    return load_reference(write(tmp_path, *tables, **given))


def problems(tmp_path, *tables, **given):
    with pytest.raises(InvalidFields) as caught:
        load(tmp_path, *tables, **given)
    return caught.value.problems


def test_a_figure_takes_from_its_table_what_it_does_not_say_itself(tmp_path):
    reference = load(tmp_path, table('value = 0.6, method = "fa"', "mean = 0.7, std = 0.01, n = 3", penalty=0.01))
    fa, bp = reference.figures
    assert (fa.method, fa.published, fa.label) == ("fa", Published(value=0.6), "fa+pen λ=0.01")
    assert (bp.method, bp.published) == ("bp", Published(mean=0.7, std=0.01, n=3))
    assert fa.source == "A Paper; table 1" and fa.setting.epochs == 3 and fa.margin == Margin(0.02, why="small enough")
    assert (reference.study, reference.title, reference.remarks) == ("one", "a title", ("a contradiction",))
    assert len(reference.digest) == 64


@pytest.mark.parametrize(
    ("figure", "published"),
    [
        ("values = [8, 11, 8]", Published(values=(8.0, 11.0, 8.0))),
        ("low = 3, high = 8", Published(low=3.0, high=8.0)),
        ("below = 5", Published(below=5.0)),
        ("above = 5", Published(above=5.0)),
    ],
)
def test_the_forms_a_figure_is_published_in(tmp_path, figure, published):
    assert load(tmp_path, table(figure)).figures[0].published == published


def test_margins_by_deviation_by_share_and_in_decades(tmp_path):
    tables = (
        table("mean = 0.3, std = 0.04, n = 3", margin="spread"),
        table("value = -0.2", margin="share"),
        table("value = 4e8", margin="decades"),
        table("below = 5", margin=None),
    )
    sizes = [(figure.margin.size, figure.margin.scale) for figure in load(tmp_path, *tables).figures]
    assert sizes == [(0.08, "linear"), (0.1, "linear"), (0.5, "log10"), (0.0, "linear")]


def test_sites_epochs_and_first_fires(tmp_path):
    fire = table('rule = "D1", never = true', quantity="first_fire")
    made = load(tmp_path, table("site = 3, value = 1", 'site = "last", epoch = 0, value = 1'), fire).figures
    assert [(one.site, one.epoch, one.rule) for one in made] == [("3", None, ""), ("last", 0, ""), ("", None, "D1")]


def test_other_studies_files_are_taken_over_once(tmp_path):
    write(tmp_path, table("value = 0.6"), head=HEAD.replace("contradiction", "remark"), study="other")
    write(tmp_path, table("value = 0.9"), head='also = ["one", "other"]\n' + HEAD, study="circle")
    reference = load(tmp_path, table("value = 0.6", "value = 0.7"), head='also = ["other", "circle"]\n' + HEAD)
    assert [figure.published.value for figure in reference.figures] == [0.6, 0.7, 0.9]
    assert reference.remarks == ("a contradiction", "a remark")
    assert reference.digest != load(tmp_path, table("value = 0.6"), study="other").digest


def test_what_cannot_be_taken_over_is_named(tmp_path):
    found = problems(tmp_path, table("value = 1"), head='also = ["nowhere"]\n' + HEAD)
    assert fields_of(found) == ["also"] and "'nowhere'" in found[0]
    write(tmp_path, "= broken", study="other")
    (found,) = problems(tmp_path, table("value = 1"), head='also = ["other"]\n' + HEAD)
    assert (Path(found.file), found.line) == (tmp_path / "other" / "reference.toml", 28) and found.text.startswith(
        "not TOML"
    )


def test_the_files_own_fields_are_checked_together(tmp_path):
    head = HEAD.replace("epochs = 3", 'epochs = "three"').replace('title = "a title"', 'titel = "a title"')
    found = problems(tmp_path, table("value = 1"), head=head.replace("value = 0.02", "value = 0"))
    names = ["title", "margin.pp.value", "titel", "setting.main.epochs"]
    assert sorted(fields_of(found)) == sorted(names)


@pytest.fixture
def found(tmp_path):
    """found(*tables): the problems of a file, without its name."""
    return lambda *tables: sentences(problems(tmp_path, *tables))


def test_a_good_file_has_no_problem(tmp_path):
    good = (
        "value = 1",
        "mean = 1, std = 0, n = 2",
        "values = [1, 2]",
        "low = 1, high = 2",
        "below = 1",
        'remark = "r", above = 1',
    )
    assert len(load(tmp_path, table(*good)).figures) == len(good)


@pytest.mark.parametrize(
    ("figure", "sentence"),
    [
        ("", "expected the published value in one form"),
        ("value = 1, mean = 2", "found mean, value"),
        ("mean = 1, std = 0.1", "mean with std with n"),
        ("values = [1]", ".values:"),
        ("low = 2, high = 1", ".low:"),
        ("mean = 1, std = -1, n = 3", ".std:"),
        ("mean = 1, std = 1, n = 1", ".n:"),
        ("value = nan", ".value:"),
        ("value = true", ".value:"),
        ("value = 1, siet = 2", "unknown field 'siet' (did you mean 'site'?)"),
        ("value = 1, site = -1", ".site:"),
        ('value = 1, site = "lst"', ".site:"),
        ('value = 1, margin = "p"', ".margin:"),
        ('value = 1, setting = "mian"', ".setting:"),
        ('value = 1, margin = "spread"', "is a multiple of std, but there is no std above 0"),
        ('value = 0, margin = "share"', "is a fraction of value or mean, but both are missing or 0"),
        ('value = 0, margin = "decades"', "expected numbers above 0 on scale log10, found 0"),
        ('mean = 1, std = 1, n = 3, margin = "decades"', ".std:"),
        ("value = 1, factor = 0", ".factor:"),
        ('value = 1, rule = "D1"', ".rule:"),
        ('value = 1, rule = "D9", quantity = "first_fire"', ".rule:"),
        ("never = true", ".never:"),
        ('never = false, rule = "D1", quantity = "first_fire"', ".never:"),
        ('value = 1, where = ""', ".where:"),
    ],
)
def test_each_slip_has_its_sentence(found, figure, sentence):
    (only,) = found(table(figure))
    assert only.startswith("table[0].figures[0]") and sentence in only


def test_a_value_that_could_not_be_looked_up_needs_a_reason_and_has_no_form(tmp_path):
    absent = table('not_at_hand = "no copy of the paper"', margin=None)
    (figure,) = load(tmp_path, absent).figures
    assert (figure.published, figure.not_at_hand, figure.margin.size) == (Published(), "no copy of the paper", 0.0)
    assert figure.setting.epochs == 3


@pytest.mark.parametrize(
    ("figure", "sentence"),
    [
        ('value = 1, not_at_hand = "w"', ".not_at_hand:"),
        ('not_at_hand = ""', ".not_at_hand:"),
        ('not_at_hand = "w", not_measured = "w"', ".not_at_hand:"),
        ('not_at_hand = "w", setting = "nowhere"', ".setting:"),
    ],
)
def test_a_slip_next_to_a_missing_value_has_its_sentence(found, figure, sentence):
    (only,) = found(table(figure))
    assert sentence in only


def test_a_margin_and_a_setting_are_needed_unless_nothing_is_tested(tmp_path, found):
    assert found(table("value = 1", margin=None)) == ["table[0].figures[0].margin: missing"]
    assert found(table("value = 1", setting=None)) == ["table[0].figures[0].setting: missing"]
    assert load(tmp_path, table("value = 1", margin=None, setting=None, not_measured="because")).figures


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("why = 'w'", "margin.new:"),
        ("value = 1\nrelative = 1\nwhy = 'w'", "found value and relative"),
        ("value = 1", "margin.new.why:"),
        ("value = 1\nscale = 'log'\nwhy = 'w'", "margin.new.scale:"),
        ("of_std = 1\nscale = 'log10'\nwhy = 'w'", "margin.new:"),
    ],
)
def test_a_margin_says_its_size_once_and_why(found, lines, sentence):
    (only,) = found("[margin.new]", lines)
    assert sentence in only


def test_everything_is_named_at_once(found):
    assert len(found("[margin.new]", table("value = 1, mean = 2", "values = [1]", "vale = 1"))) == 4
