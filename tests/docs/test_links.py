"""What a page points to is there, and every page of docs can be found from its index."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, name_of

INDEX = ROOT / "docs" / "README.md"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_and_picture_exists(page):
    missing = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            missing.append(target)
    assert missing == []


def test_the_index_of_docs_names_every_page_decision_and_study():
    linked = {(INDEX.parent / target.partition("#")[0]).resolve() for target in links(INDEX)}
    pages = {page for page in PAGES if page.parent != ROOT and page != INDEX}
    assert {name_of(page) for page in pages - linked} == set()


def test_every_picture_of_docs_is_shown_somewhere():
    shown = {(page.parent / target).resolve() for page in PAGES for target in links(page)}
    assert set((ROOT / "docs" / "images").iterdir()) - shown == set()


def test_readme_leads_to_every_how_to():
    how_tos = {
        target for target in links(INDEX) if target.startswith(("own-", "reading-", "mlflow-", "team-", "reprod"))
    }
    assert len(how_tos) == 9
    assert {f"docs/{name}" for name in how_tos} <= set(links(ROOT / "README.md"))


def test_every_check_that_a_comment_names_is_there():
    """`… (tests/training/test_step.py)`, `test_name in tests/…`: knowledge that cannot be looked up is hearsay."""
    missing, named = [], 0
    for file in sorted((ROOT / "fa_registry").rglob("*.py")):
        text = re.sub(r"\n\s*#?\s*", " ", file.read_text(encoding="utf-8"))
        for test, check in re.findall(r"(?:\b(test_\w+) in )?\b(tests/[\w/]+\.py)", text):
            named += 1
            path = ROOT / check
            if not path.is_file() or (test and f"def {test}(" not in path.read_text(encoding="utf-8")):
                missing.append(f"{name_of(file)}: {test} {check}")
    assert missing == []
    assert named > 30
