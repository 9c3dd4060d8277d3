"""The files and names in docs/architecture.md exist, so that the page leads to the place of a change."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATH = r"[\w.-]+(?:/[\w.-]+)*/?"
FILES = re.compile(rf"`((?=[^`]*/){PATH})`")
NAME_OF_FILE = re.compile(rf"`(\w+)`(?:(?:,| and| or) `\w+`)* of `({PATH})`")
PLACEHOLDER = re.compile("NAME|EXT")


def place(path):
    """Return the file or folder that the page means: paths are relative to the package or to the checkout."""
    return next((folder / path for folder in (ROOT / "fa_registry", ROOT) if (folder / path).exists()), None)


def missing_files(text):
    return {path for path in FILES.findall(text) if not PLACEHOLDER.search(path) and place(path) is None}


def missing_names(text):
    named = {(name, path) for name, path in NAME_OF_FILE.findall(text) if not PLACEHOLDER.search(path) and place(path)}
    return {
        (name, path)
        for name, path in named
        if place(path).is_file() and not re.search(rf"\b{name}\b", place(path).read_text(encoding="utf-8"))
    }


def test_every_named_file_exists():
    assert len(FILES.findall(PAGE)) > 50
    assert missing_files(PAGE) == set()


def test_every_name_is_in_the_file_of_its_row():
    assert len(NAME_OF_FILE.findall(PAGE)) > 20
    assert missing_names(PAGE) == set()


@pytest.mark.parametrize(
    ("text", "files", "names"),
    [
        ("`reporting/nothing.py`", {"reporting/nothing.py"}, set()),
        ("`NOTHING` of `tracking/schema.py`", set(), {("NOTHING", "tracking/schema.py")}),
        ("`methods/NAME.py` and `REPEATED_TAGS` of `tracking/schema.py`", set(), set()),
    ],
)
def test_a_wrong_place_is_found(text, files, names):
    assert (missing_files(text), missing_names(text)) == (files, names)
