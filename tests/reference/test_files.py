"""docs/reference-files.md lists every key that is read, with a description; its examples are read by what reads such files."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, fields

import pytest

from fa_registry.protocol.edition_schema import Condition, EditionFile, Rule
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.waivers import WaiverFields, load_waivers
from fa_registry.records import Option, Recipe, Waiver
from fa_registry.reference import CHECKOUT
from fa_registry.reference.files import _keys, files_reference
from fa_registry.reference.templates import text_below
from fa_registry.studies.study import CONTROLS, TABLES, Grid, StudyTable, load_study
from tests.docs.pages import blocks

RECORDS = (StudyTable, Grid, Recipe, EditionFile, Rule, Condition, Waiver, Option)
PAGE = CHECKOUT / "docs" / "reference-files.md"


@pytest.fixture(scope="module")
def page():
    return files_reference()


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """key → the cells of its row, in the table of the section."""
    section = page.partition(f"\n{heading}\n")[2].partition("\n##")[0]
    found = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in found}


def example(start: str, tmp_path, name: str):
    """The page's one TOML block that begins so, as a file."""
    (text,) = (block.text for block in blocks(PAGE) if block.language == "toml" and block.text.startswith(start))
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_key_has_a_description(record):
    text = text_below(record)
    assert [field.name for field in fields(record) if not text.get(field.name, "").strip()] == []


def test_a_key_without_a_description_cannot_be_written_down():
    @dataclass
    class Silent:
        told: int
        """what it is"""
        untold: int = 0

    with pytest.raises(KeyError, match="untold"):
        _keys(Silent)


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("## study.toml", [field.name for field in fields(StudyTable)]),
        ("### [[grid]]", [field.name for field in fields(Grid)]),
        ("### [recipe]", TABLES["recipe"]),
        ("### [controls]", CONTROLS),
        ("## waivers.toml", [field.name for field in fields(WaiverFields)]),
        ("## An edition", [field.name for field in fields(EditionFile)]),
        ("### [[rule]]", [field.name for field in fields(Rule)]),
        ("### Condition", [field.name for field in fields(Condition)]),
        ("## Option", [field.name for field in fields(Option)]),
    ],
)
def test_every_key_of_a_file_has_a_row_of_full_cells(page, heading, keys):
    found = rows(page, heading)
    assert list(found) == list(keys)
    assert all(cells[-1] and (len(cells) == 1 or cells[0]) for cells in found.values())


def test_needed_is_what_cannot_be_left_out(page):
    grid = {name for name, cells in rows(page, "### [[grid]]").items() if cells[1] == "needed"}
    assert grid == {"methods", "architectures", "datasets", "seeds"}
    waiver = {name for name, cells in rows(page, "## waivers.toml").items() if cells[1] == "needed"}
    assert waiver == {"rule", "reason", "author", "date", "expiry"}


def test_the_study_of_the_page_expands(tmp_path):
    study = load_study(str(example('name = "mine"', tmp_path, "study.toml")))
    assert len(study.specs) == 2 * 3 * 2 + 3 + 2 * 3  # trained with and without penalty, bp, two controls a seed
    assert {labels for labels in study.labels.values()} == {("narrow",)} and len(study.settings) == 1
    assert {spec.recipe.learning_rate for spec in study.specs} == {2e-3}


def test_the_waiver_of_the_page_is_in_force(tmp_path):
    (waiver,) = load_waivers(example("[[waiver]]", tmp_path, "waivers.toml"), datetime.date(2026, 12, 1))
    assert (waiver.rule, waiver.method, waiver.expiry, waiver.expired) == ("D3", "dfa", "2027-05-31", False)


def test_the_edition_of_the_page_and_its_variant_are_read(tmp_path):
    path = example('name = "ours"', tmp_path, "ours.toml")
    plain, lenient = load_edition(str(path)), load_edition(f"{path}:lenient")
    assert plain.fail_if == (("SCALE",), ("D3",)) and lenient.fail_if == (("SCALE", "D3"),)
    assert [edition.rules[0].threshold for edition in (plain, lenient)] == [20.0, 50.0]
    assert plain.rules[0].guard.fired == "NOISY" and plain.rules[0].also[0].clear == "SMALL"
    assert plain.reference.based_on == "2026-12" and plain.labels == {"warn": "LOOK"}
