"""What every written page keeps: nothing from outside, foreign text as text, usable without mouse or eyes, no nan."""

from __future__ import annotations

import re

from tests.reporting.page import Page, of_kind

FILES = r"audit\.json|audit\.csv|audit_table\.tex|junit\.xml"
ALLOWED = re.compile(rf"^(#[\w-]+|forms/[a-z0-9.-]+\.(html|md|tex)|\.\./index\.html|{FILES})$")


def test_pages_hold_no_script_and_nothing_from_outside(any_pages):
    for name, text in of_kind(any_pages, ".html").items():
        page = Page(text)
        assert not {"script", "iframe", "object", "embed", "link", "base", "form"} & set(page.tags), name
        assert page.handlers == []
        assert len(page.ids) == len(set(page.ids))
        assert all(
            reference.startswith("data:image/png;base64,") or ALLOWED.match(reference) for reference in page.references
        ), name
        style = text[text.index("<style>") : text.index("</style>")]
        assert "url(" not in style and "@import" not in style


def test_links_lead_somewhere(any_pages):
    for name, text in of_kind(any_pages, ".html").items():
        page = Page(text)
        for reference in page.references:
            if reference.startswith("#"):
                assert reference[1:] in page.ids, (name, reference)
            elif not reference.startswith("data:"):
                assert reference.removeprefix("../") in any_pages, (name, reference)


def test_hostile_names_are_shown_as_text(pages, hostile):
    for name, text in of_kind(pages, ".html").items():
        assert hostile not in text
        if "forms/bp" not in name:
            assert hostile in "".join(Page(text).words), name
    for text in of_kind(pages, ".md").values():
        outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        assert "<script" not in outside
    assert "49" not in re.findall(r"alert\(1\)&lt;/script&gt;(.{6})", pages["index.html"])[0]


def test_hostile_waivers_and_tracebacks_are_shown_as_text(rich_pages, hostile):
    html, markdown = of_kind(rich_pages, ".html"), of_kind(rich_pages, ".md")
    assert not any(hostile in text for text in html.values())
    assert [name.split("-")[0] for name, text in html.items() if hostile in "".join(Page(text).words)] == [
        "index.html",
        "forms/fa",
        "forms/drtp",
    ]
    assert not any("<script" in re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in markdown.values())


def test_pages_can_be_used_without_a_mouse_or_eyes(any_pages):
    for text in of_kind(any_pages, ".html").values():
        page = Page(text)
        attributes = page.attributes
        assert ("html", {"lang": "en"}) in attributes
        assert all(found.get("scope") for tag, found in attributes if tag == "th")
        assert all(found.get("alt") for tag, found in attributes if tag == "img")
        assert all(
            found.get("tabindex") == "0" and found.get("aria-label")
            for tag, found in attributes
            if found.get("role") == "region"
        )
        assert page.references[0].startswith("#") and 'class="skip"' in text
        assert page.tags.count("h1") == 1


def test_no_page_shows_a_number_that_is_none(any_pages):
    for name, text in {**of_kind(any_pages, ".html"), **of_kind(any_pages, ".md")}.items():
        assert not re.search(
            r"\b(nan|NaN|Undefined)\b|Reading\(|>\s*None\s*<|\| None", re.sub(r"base64,[^\"]*", "", text)
        ), name
