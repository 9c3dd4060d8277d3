"""The template reference tells of every variable, record and filter there is, and is as the code is."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from fa_registry.reference.__main__ import DOCS
from fa_registry.reference.templates import templates_reference
from fa_registry.reporting.render import TEMPLATES
from fa_registry.reporting.text.environment import environment


@pytest.fixture(scope="module")
def page():
    return templates_reference()


def test_the_page_in_docs_is_not_stale(page):
    assert (DOCS / "reference-templates.md").read_text(encoding="utf-8") == page, (
        "write it again: python -m fa_registry.reference --write"
    )


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_template_and_variable_is_told_with_its_help_and_unit(page, name):
    assert f"`{name}`" in page
    for field in fields(TEMPLATES[name]):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{field.name}` |"))
        assert row.count(" | ") == 3
    assert all(" ".join(field.metadata["help"].split()) in page for field in fields(TEMPLATES[name]))


def test_records_inside_of_records_are_told_and_every_link_leads_somewhere(page):
    heads = {line.removeprefix("### ").lower() for line in page.splitlines() if line.startswith("### ")}
    links = set(re.findall(r"\]\(#([a-z]+)\)", page))
    assert {"number", "reading", "seedvalue"} <= heads
    assert links <= heads


def test_our_own_filters_are_told_with_where_they_are(page):
    for name, function in environment("form.tex.j2").filters.items():
        if function.__module__.startswith("fa_registry"):
            assert f"| `{name}` | " in page
    assert "| `num` | `digits` significant digits" in page and "| `fence` |" in page and "`*.md.j2`" in page


def test_what_a_sandboxed_template_has_is_what_the_page_says(page, tmp_path):
    for name in environment("index.html.j2", tmp_path).filters:
        assert f"`{name}`" in page
