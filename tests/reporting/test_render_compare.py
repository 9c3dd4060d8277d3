"""The page of a comparison keeps what every page keeps."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.errors import UsageError
from fa_registry.protocol.grouping import groups
from fa_registry.reporting.pages import comparison
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.render import render_comparison
from tests.reporting.page import Page


@pytest.fixture(scope="module", params=["report", "rich"])
def context(request):
    report = request.getfixturevalue(request.param)
    return compare_context(report, groups(report))


def test_the_page_nests_and_holds_nothing_from_outside(context, tmp_path):
    page = Page(render_comparison(context, tmp_path).read_text("utf-8"))
    assert not {"script", "iframe", "link", "form"} & set(page.tags) and page.handlers == []
    assert all(one.startswith(("data:image/png;base64,", "#")) for one in page.references)
    assert all(one[1:] in page.ids for one in page.references if one.startswith("#"))
    assert len(page.ids) == len(set(page.ids))
    labels = [attributes["aria-label"] for tag, attributes in page.attributes if attributes.get("role") == "region"]
    assert len(labels) == len(set(labels))
    assert all(attributes.get("alt") for tag, attributes in page.attributes if tag == "img")
    assert "nan" not in "".join(page.words).lower().split()


def test_the_same_bytes_twice(context, tmp_path):
    first = render_comparison(context, tmp_path / "a").read_bytes()
    assert render_comparison(context, tmp_path / "b").read_bytes() == first
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["compare.html"]


def test_a_page_without_room_says_where_the_numbers_are(rich, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "ROOM", 1)
    crowded = Page(render_comparison(compare_context(rich, groups(rich)), tmp_path).read_text("utf-8"))
    assert "Its numbers are in the files of its runs: this page has no room for them." in crowded.words


def test_foreign_names_are_text(context, tmp_path, hostile):
    strange = dataclasses.replace(context, title=hostile, remarks=(hostile,))
    text = render_comparison(strange, tmp_path).read_text("utf-8")
    assert hostile not in text and "".join(Page(text).words).count(hostile) >= 3


def test_what_a_column_is_judged_is_on_the_page(context, tmp_path):
    words = "".join(Page(render_comparison(context, tmp_path).read_text("utf-8")).words)
    for part, _ in context.parts:
        for column in part.columns:
            assert column.label in words and column.verdict.label in words
        for row in part.paired:
            assert f"{row.first} − {row.second}" in words


def test_a_users_template_stands_in_and_one_that_fails_writes_nothing(context, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "compare.html.j2").write_text("<p>{{ title }}</p>")
    assert render_comparison(context, tmp_path / "a", mine).read_text("utf-8").startswith("<p>bp against")
    (mine / "compare.html.j2").write_text("{{ titel }}")
    with pytest.raises(UsageError, match=r"compare\.html\.j2, line 1: unknown name 'titel' \(did you mean 'title'\?\)"):
        render_comparison(context, tmp_path / "b", mine)
    assert not (tmp_path / "b").exists()
