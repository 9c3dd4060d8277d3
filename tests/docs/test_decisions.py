"""The pages of decisions: their numbers, the files that they name, and the mentions of them elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, name_of

FOLDER = ROOT / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("*.md"))
MOST_PAGES = 25
FILE = re.compile(r"`((?:fa_registry|packages|tests|benchmarks|projects)/[\w./-]+)`")
MENTION = re.compile(r"decisions/([\w.-]*\w)|\bdecisions? \[?(\d{2,4})\b", re.IGNORECASE)
FOLDERS = ("fa_registry", "packages", "tests", "benchmarks", "examples", "templates", "docs", "projects")
SUFFIXES = {".py", ".md", ".j2", ".toml", ".json"}  # kinds of files that may mention a page


def files_that_may_mention():
    files = [*ROOT.glob("*.md"), *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*"))]
    return [file for file in files if file.suffix in SUFFIXES and file != Path(__file__)]


def wrong_mentions(text):
    """Return the mentions in `text` that are neither the name of a page nor its number."""
    names = {page.name for page in DECISIONS} | {page.stem.partition("-")[0] for page in DECISIONS}
    return [mention for pair in MENTION.findall(text) for mention in pair if mention and mention not in names]


def test_pages_are_few_and_numbered_without_gaps():
    numbers = [page.stem.partition("-")[0] for page in DECISIONS]
    assert numbers == [f"{number:02}" for number in range(1, len(DECISIONS) + 1)]
    assert 0 < len(DECISIONS) <= MOST_PAGES


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_page_has_the_number_of_its_file_and_names_files_that_exist(page):
    text = page.read_text(encoding="utf-8")
    files = FILE.findall(text)
    assert text.startswith(f"# {page.stem.partition('-')[0]} · ")
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_every_mention_of_a_decision_is_a_page():
    wrong = {name_of(file): wrong_mentions(file.read_text(encoding="utf-8")) for file in files_that_may_mention()}
    assert {name: mentions for name, mentions in wrong.items() if mentions} == {}


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("see docs/decisions/0004", ["0004"]),
        ("([0042](docs/decisions/0042-where.md))", ["0042-where.md"]),
        ("see decision 0059", ["0059"]),
        ("(decision [0067](x.md))", ["0067"]),
        (f"docs/decisions/{DECISIONS[0].name} and decision 01", []),
    ],
)
def test_a_wrong_mention_is_found(text, mentions):
    assert wrong_mentions(text) == mentions
