"""The written pages: the same bytes twice, nothing from outside, hostile names as text, people's words kept."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest

from fa_registry import jsonio
from fa_registry.errors import UsageError
from fa_registry.records import AuditReport
from fa_registry.reporting.render import note_markdown, render_report

ALLOWED = re.compile(r"^(#[\w-]+|forms/[a-z0-9.-]+\.(html|md)|\.\./index\.html|audit\.json)$")
REFERENCES = {"src", "href", "srcset", "action", "data", "poster", "xlink:href", "formaction"}
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags, references, ids and text of a page; fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self.ids, self.handlers, self.open, self.words = [], [], [], [], [], []
        self.attributes = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attributes)))
        self.references += [value for name, value in attributes if name in REFERENCES]
        self.ids += [value for name, value in attributes if name == "id"]
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def pages(report, tmp_path):
    return {path.relative_to(tmp_path).as_posix(): path.read_text("utf-8") for path in render_report(report, tmp_path)}


def of_kind(pages, suffix):
    return {name: text for name, text in pages.items() if name.endswith(suffix)}


def test_an_index_a_form_for_each_method_and_the_record_are_written(pages):
    names = list(pages)
    assert names[0] == "index.html" and names[-1] == "audit.json"
    assert [re.sub(r"-.*", "", name) + name[name.rindex(".") :] for name in names[1:-1]] == [
        "forms/bp.html",
        "forms/bp.md",
        "forms/dfa.html",
        "forms/dfa.md",
    ]


def test_rendering_again_gives_the_same_bytes(report, tmp_path):
    first = {path: path.read_bytes() for path in render_report(report, tmp_path)}
    assert {path: path.read_bytes() for path in render_report(report, tmp_path)} == first
    elsewhere = render_report(report, tmp_path / "elsewhere")
    assert [path.read_bytes() for path in elsewhere] == list(first.values())


def test_the_record_is_lossless(report, pages):
    assert jsonio.decode(AuditReport, json.loads(pages["audit.json"])) == report


def test_pages_hold_no_script_and_nothing_from_outside(pages):
    for name, text in of_kind(pages, ".html").items():
        page = Page(text)
        assert not {"script", "iframe", "object", "embed", "link", "base", "form"} & set(page.tags), name
        assert page.handlers == []
        assert len(page.ids) == len(set(page.ids))
        assert all(
            reference.startswith("data:image/png;base64,") or ALLOWED.match(reference) for reference in page.references
        ), name
        style = text[text.index("<style>") : text.index("</style>")]
        assert "url(" not in style and "@import" not in style


def test_links_lead_somewhere(pages):
    for name, text in of_kind(pages, ".html").items():
        page = Page(text)
        for reference in page.references:
            if reference.startswith("#"):
                assert reference[1:] in page.ids, (name, reference)
            elif not reference.startswith("data:"):
                assert reference.removeprefix("../") in pages, (name, reference)


def test_hostile_names_are_shown_as_text(pages, hostile):
    for name, text in of_kind(pages, ".html").items():
        assert hostile not in text
        if "forms/bp" not in name:
            assert hostile in "".join(Page(text).words), name
    for text in of_kind(pages, ".md").values():
        outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        assert "<script" not in outside
    assert "49" not in re.findall(r"alert\(1\)&lt;/script&gt;(.{6})", pages["index.html"])[0]


def test_a_broken_runs_traceback_stands_with_the_excluded_runs_as_text(report, pages, tmp_path):
    section = re.search(r'<section aria-labelledby="excluded">.*?</section>', pages["index.html"], re.DOTALL).group()
    page = Page(section)
    assert page.tags.count("details") == page.tags.count("pre") == 1  # of the run that left one, not of the other
    assert "<summary>Traceback</summary>" in section
    assert report.excluded[1].failure in page.words
    assert '<td>half-written: the run broke<details class="traceback">' in section
    without = dataclasses.replace(report, excluded=report.excluded[:1])
    assert (
        "<details"
        not in render_report(without, tmp_path)[0].read_text("utf-8").split('id="excluded"')[1].split("</section>")[0]
    )


def test_a_long_traceback_scrolls_in_its_box(pages):
    rule = re.search(r"details\.traceback > pre \{([^}]*)\}", pages["index.html"]).group(1)
    assert {"overflow: auto", "width: 0", "min-width: 100%"} < {part.strip() for part in rule.split(";")}
    assert re.search(r"max-height: \d+em", rule)
    assert re.search(r'<pre role="region" tabindex="0" aria-label="Traceback of dfa-9">', pages["index.html"])


def test_pages_can_be_used_without_a_mouse_or_eyes(pages):
    for text in of_kind(pages, ".html").values():
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


def test_verdicts_and_reasons_are_on_the_first_page(pages):
    words = " ".join("".join(Page(pages["index.html"]).words).split())
    for needed in (
        "DIVERGED(D1+D2+D3)",
        "FAIL(D1+D2+D3)",
        "PASS",
        "the feedback file is missing",
        "still running: last epoch 3 of 30",
        "5 verified",
        "first fires at epoch 12",
        "mlflow run . -e train --env-manager local -P method=dfa",
    ):
        assert needed in words, needed


def test_no_page_shows_a_number_that_is_none(pages):
    for name, text in {**of_kind(pages, ".html"), **of_kind(pages, ".md")}.items():
        assert not re.search(
            r"\b(nan|NaN|Undefined)\b|Reading\(|>\s*None\s*<|\| None", re.sub(r"base64,[^\"]*", "", text)
        ), name


def test_what_people_wrote_survives_and_reaches_the_page(report, tmp_path):
    form = next(path for path in render_report(report, tmp_path) if path.suffix == ".md")
    written = "We expected **0.9**.\n\n<b>bold</b> & {{ 7 * 7 }}"
    text = form.read_text("utf-8")
    form.write_text(
        text.replace("<!-- fa:blank motivation -->\n", f"<!-- fa:blank motivation -->\n{written}"), encoding="utf-8"
    )
    for _ in range(2):
        render_report(report, tmp_path)
        assert f"<!-- fa:blank motivation -->\n{written}\n<!-- /fa:blank -->" in form.read_text("utf-8")
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; {{ 7 * 7 }}" in form.with_suffix(".html").read_text("utf-8")


def test_a_form_with_broken_markers_stops_the_rendering_before_anything_is_written(report, tmp_path):
    paths = render_report(report, tmp_path)
    form = next(path for path in paths if path.suffix == ".md")
    form.write_text(form.read_text("utf-8").replace("<!-- /fa:blank -->", "", 1), encoding="utf-8")
    paths[0].unlink()
    with pytest.raises(UsageError, match="blanks cannot be kept"):
        render_report(report, tmp_path)
    assert not paths[0].exists()


def test_an_audit_without_runs_is_still_a_page(report, tmp_path):
    paths = render_report(dataclasses.replace(report, runs=(), excluded=(), remarks=(), cards={}), tmp_path)
    assert [path.name for path in paths] == ["index.html", "audit.json"]
    words = "".join(Page(paths[0].read_text("utf-8")).words)
    assert (
        "No method was judged." in words
        and "no table to show" in words
        and "None: every selected run was judged." in words
    )


def test_a_run_that_measured_nothing_is_still_a_page(report, tmp_path, judged):
    record = report.runs[0].record
    broken = dataclasses.replace(
        record,
        status="failed",
        trajectory={},
        provenance={},
        measurements=dataclasses.replace(record.measurements, sites={}, scalars={}, conventions={}),
    )
    paths = render_report(judged([broken]), tmp_path)
    words = "".join(Page(paths[0].read_text("utf-8")).words)
    assert "INCOMPLETE" in words and "accuracy was not measured" in words


def test_a_users_template_stands_in_by_name_and_is_sandboxed(report, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "index.html.j2").write_text(
        "{% import 'macros.html.j2' as m %}<p>{{ title }} {{ m.chip(forms[0].verdict) }}</p>"
    )
    paths = render_report(report, tmp_path / "out", templates=mine)
    assert paths[0].read_text("utf-8").startswith("<p>digits, first audit")
    assert "Reporting form" in paths[1].read_text("utf-8")
    (mine / "index.html.j2").write_text("{{ title.__class__ }}")
    with pytest.raises(UsageError, match="SecurityError"):
        render_report(report, tmp_path / "out", templates=mine)


def test_the_note_is_short_and_harmless(report, hostile):
    note = note_markdown(report.runs[3], report)
    assert note.startswith("**DIVERGED(D1+D2+D3)** · dfa, seed 123")
    assert "| test accuracy | 79.0\u00a0% |" in note and "not finite (inf)" in note
    assert len(note) < 5000 and "<script" not in note and hostile not in note
    assert note_markdown(report.runs[3], report) == note
