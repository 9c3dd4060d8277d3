"""What is on page one and in the forms: waivers, editions, findings, and what is left out."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fa_registry.protocol.rules import load_edition
from fa_registry.records import PROOF_LEVELS, Replay, Waiver
from fa_registry.reporting.figures import page as figure_page
from fa_registry.reporting.files import report_files
from fa_registry.reporting.pages import index
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text.environment import TemplateRenderer, variables
from fa_registry.reporting.text.filters import markdown_text
from tests.reporting.page import Page, of_kind, section, text_of, written
from tests.reporting.report_changes import changed, run_of, with_record

CHIP = re.compile(
    r'<span class="chip \w+"><span class="glyph".*?</span>&nbsp;(.*?)</span>'
    r'(?: <small class="proof"[^>]*>(\w+)</small>| <span class="marks" role="img" aria-label="training (\w+)[^"]*")?'
)
LEGEND = re.compile(r"how far (its training|the training of the method) is proven")


def test_every_verdict_of_a_page_has_its_level_and_every_page_one_legend(any_pages):
    shown = set()
    for name, text in of_kind(any_pages, ".html").items():
        levels = [word or mark for _, word, mark in CHIP.findall(text)]
        assert levels and set(levels) <= set(PROOF_LEVELS), name
        assert len(LEGEND.findall(text)) == 1, name
        shown.update(levels)
    assert shown == {"started", "stated"} or shown == {"started"}
    for name, text in of_kind(any_pages, ".md").items():
        assert re.search(r"^Verdict: \*\*.* · (started|stated)\*\*", text, re.MULTILINE), name


def test_a_typed_nonce_and_earlier_audits_are_on_page_one_and_on_every_form(report, tmp_path):
    chosen = Replay("1f", "auto", typed=True, audits=4)
    for replay, count in ((None, 0), (Replay("1f", "auto"), 0), (chosen, 1)):
        sources = Sources.of(dataclasses.replace(report, replay=replay))
        contexts = [index.index_context(sources), *(form_context(*form, sources) for form in sources.forms)]
        assert {bool(context.nonce) for context in contexts} == {bool(count)}
    pages = written(dataclasses.replace(report, replay=chosen), tmp_path)
    assert all("audit 4 of these runs" in text for name, text in pages.items() if name.endswith((".html", ".md")))


def test_every_page_begins_with_its_edition_and_folds_what_changed(rich_pages):
    pages = of_kind(rich_pages, ".html")
    assert len(pages) > 3
    for text in pages.values():
        assert "Edition 2026-12: growth (D1)" in text_of(text)
        assert '<details class="edition">' in text and f'<code title="{load_edition("2026-12").digest}">' in text


def test_a_form_begins_with_its_answers_in_forty_words_and_gamma_first(rich_pages):
    form = next(text for name, text in rich_pages.items() if name.startswith("forms/fa") and name.endswith(".html"))
    answer = text_of(re.search(r'<p class="answer">.*?</p>', form, re.DOTALL).group())
    headings = " ".join(map(text_of, re.findall(r"<h3>.*?</h3>", form[: form.index("<details")], re.DOTALL)))
    assert len(f"{answer} {headings}".split()) <= 40  # ten seconds at 240 words a minute
    tops = re.findall(r"<article[^>]*aria-label=\"([^\"]*)\".*?<details", form, re.DOTALL)
    assert tops == ["Γ", "Depth", "Scale"] and form.index("<article") < form.index("Trained again:")


def test_a_number_that_does_not_pass_names_its_rule(rich_pages):
    row = re.search(r'<tr class="fail">.*?</tr>', section(rich_pages["index.html"], "verdicts"), re.DOTALL).group()
    marked = re.findall(
        r'<td class="(\w+)"><span[^>]*>([^<]*)</span>\s*<small class="rule" title="(\w+ \w+), seeds 42, 123">(\w+)<',
        row,
    )
    assert marked == [
        ("waived", "−10.0\u00a0pp", "D3 waived", "D3"),
        ("fail", "156", "D1 fires", "D1"),
        ("fail", "5.10×10⁸", "D1 fires", "D1"),
        ("fail", "7.81×10⁻⁸", "D2 fires", "D2"),
    ]


def test_the_most_severe_findings_are_open(rich_pages):
    part = section(rich_pages["index.html"], "findings")
    groups = re.findall(r'<details class="severity"( open)?><summary><b class="(\w+)">', part)
    assert [outcome for _, outcome in groups] == ["error", "fail", "warn", "waived"]
    assert [outcome for opened, outcome in groups if opened] == ["error", "fail"]


def test_a_waiver_that_meets_no_finding_says_so(rich, tmp_path):
    idle = (Waiver("D2", "why", "who", "2026-01-01", "2026-12-31", method="bp"),)
    page = written(dataclasses.replace(rich, waivers=idle), tmp_path)["index.html"]
    assert "no such finding" in text_of(page)


@pytest.mark.parametrize("place", ["edition", "opinions"])
def test_a_modified_edition_is_marked_wherever_it_is_named(rich, tmp_path, place):
    changed = {"overrides": {"D1.threshold": 60.0}}
    if place == "edition":
        audit = dataclasses.replace(rich, edition=dataclasses.replace(rich.edition, **changed))
    else:
        other = dataclasses.replace(rich.opinions[0].edition, **changed)
        first = dataclasses.replace(rich.opinions[0], edition=other)
        audit = dataclasses.replace(rich, opinions=(first, *rich.opinions[1:]))
    pages = written(audit, tmp_path)
    name = "2026-12" if place == "edition" else "2026-05"
    assert text_of(pages["index.html"]).count(f"{name} (modified)") >= 2
    assert "D1.threshold = 60.0" in text_of(pages["index.html"])
    for page, text in pages.items():
        if page.startswith("forms/"):
            assert f"{name} (modified)" in (text_of(text) if page.endswith(".html") else text), page


def test_an_error_shows_its_traceback_in_a_box(rich, rich_pages):
    part = section(rich_pages["index.html"], "findings")
    page = Page(re.search(r'<li class="error">.*?</li>', part, re.DOTALL).group())
    assert page.tags.count("details") == 2  # the finding, and in it the traceback
    run = next(run for run in rich.runs if run.record.measurements.failures)
    assert run.record.measurements.failures["rho"] in page.words


def test_a_crowded_page_says_what_is_not_on_it(rich, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "MOST", 2)
    monkeypatch.setattr(figure_page, "MOST_NUMBERS", 1)
    page_text = text_of(written(rich, tmp_path)["index.html"])
    for needed in (
        "7 more of 9 are not on this page: they are less severe than the findings above",
        "The numbers of this figure are in audit.json, because they do not fit on this page",
        "Every seed's numbers and run are in its form",
        "7 more of 9 are not on this page",
        "2 more of 4 are not on this page: every form shows the verdicts of all editions",
    ):
        assert needed in page_text, needed


def test_a_broken_runs_traceback_stands_with_the_excluded_runs_as_text(report, pages, tmp_path):
    part = section(pages["index.html"], "excluded")
    page = Page(part)
    assert page.tags.count("details") == page.tags.count("pre") == 1  # of the run that left one, not of the other
    assert "<summary>Traceback</summary>" in part
    assert report.excluded[1].failure in page.words
    assert 'the run broke<details class="traceback">' in part
    without = dataclasses.replace(report, excluded=report.excluded[:1])
    assert "<details" not in section(written(without, tmp_path)["index.html"], "excluded")


def test_a_long_traceback_scrolls_in_its_box(pages):
    rule = re.search(r"details\.traceback > pre \{([^}]*)\}", pages["index.html"]).group(1)
    assert {"overflow: auto", "width: 0", "min-width: 100%"} < {part.strip() for part in rule.split(";")}
    assert re.search(r"max-height: \d+em", rule)
    assert '<pre role="group"' in pages["index.html"] and 'aria-label="Traceback of dfa-9"' in pages["index.html"]


def test_a_very_long_setting_or_name_is_cut_in_headings_and_whole_in_the_form(report, tmp_path):
    long = "long " * 2000
    runs = tuple(with_record(run, setting=long, name=long) for run in report.runs)
    pages = written(dataclasses.replace(report, runs=runs), tmp_path)
    form = next(text for name, text in pages.items() if name.endswith(".html") and name.startswith("forms/dfa"))
    for text, headings in ((pages["index.html"], ("h3", "caption", "td")), (form, ("h1", "caption", "td"))):
        for tag in headings:
            found = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", text, re.DOTALL)
            assert found and all(len(re.sub(r"<[^>]*>", "", one)) < 600 for one in found), tag
    assert form.partition("</head>")[2].count(long.strip()) == 1  # in Identification


KINDS = ("html", "md")


def plain(text: str) -> str:
    return " ".join(text.split())


def shown_in(pages: dict[str, str], text: str) -> dict[str, bool]:
    """Whether each format shows the text, in its own way of writing it."""
    return {
        "html": plain(text) in text_of(pages["html"]),
        "md": str(markdown_text(text)) in pages["md"] or text in pages["md"],
    }


@pytest.fixture(scope="module")
def formed():
    """The context of a method's form and its two pages."""

    def made(report, method="dfa", written=()):
        sources = Sources.of(report)
        group, link = next((group, link) for group, link in sources.forms if group.method == method)
        context = form_context(group, link, sources, dict(written))
        return context, {kind: TemplateRenderer().render(f"form.{kind}.j2", variables(context)) for kind in KINDS}

    return made


@pytest.mark.parametrize("method", ["bp", "fa", "dfa", "drtp"])
def test_every_word_of_judgement_is_in_both(formed, rich, method):
    context, pages = formed(rich, method)
    texts = [claim.text for claim in context.claims]
    texts += [statement.sentence for row in context.findings for statement in row.said]
    texts += [statement.sentence for other in context.opinions[1:] for row in other.findings for statement in row.said]
    texts += [answer.evidence for pitfall in context.pitfalls for answer in pitfall.answers]
    texts += [pitfall.title for pitfall in context.pitfalls]
    texts += [use for entry in context.bibliography.entries for use in entry.uses] + list(context.bibliography.uncited)
    texts += [value.text for entry in context.identification for value in entry.values]
    assert len(texts) > 40
    missing = {text: found for text in texts if not all((found := shown_in(pages, text)).values())}
    assert missing == {}


def test_one_seed_has_no_interval_and_says_so(formed, rich):
    context, pages = formed(rich, "drtp")
    assert len(context.seeds) == 1 and "one seed" in {claim.key for claim in context.claims}
    assert all("one seed: no interval" in plain(pages[kind]) for kind in KINDS)
    assert not any("no interval: one seed" in plain(pages[kind]) for kind in KINDS)


def test_an_interval_that_no_accuracy_can_fill_is_remarked_on(formed, rich):
    """Two seeds that differ much: Student's t leaves 0 to 100 %."""
    context, pages = formed(rich, "bp")
    assert context.accuracy.remark == "" and "is not within" not in pages["md"]
    apart = [changed(run_of(rich, seed=seed), scalars={"accuracy": value}) for seed, value in ((42, 0.9), (123, 0.2))]
    others = [run for run in rich.runs if run.record.spec.method != "dfa"]
    context, pages = formed(dataclasses.replace(rich, runs=(*apart, *others)))
    assert context.accuracy.low.value < 0 < 1 < context.accuracy.high.value
    assert context.accuracy.remark and all(shown_in(pages, context.accuracy.remark).values())


def test_what_people_wrote_is_in_both_and_runs_nowhere(formed, rich):
    page_text = "We expected 100% of it.\n\\input{/etc/passwd} <b>bold</b>"
    _, pages = formed(rich, "dfa", {"motivation": page_text})
    assert page_text in pages["md"]
    assert "&lt;b&gt;bold&lt;/b&gt;" in pages["html"]


def test_a_card_without_citation_is_reported_in_both(formed, report):
    bare = dataclasses.replace(report, cards={**report.cards, "methods/dfa": {"name": "dfa"}})
    context, pages = formed(bare)
    (uncited,) = context.bibliography.uncited
    assert all(shown_in(pages, uncited).values())


FILES = "|".join(
    [*(re.escape(file.name) for file in report_files()), r"audit_table(_notes)?\.tex|figures/[a-z0-9.-]+\.(svg|pdf)"]
)
ALLOWED = re.compile(rf"^(#[\w-]+|forms/[a-z0-9.-]+\.(html|md)|\.\./index\.html|{FILES})$")


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
            r"\b(nan|NaN|Undefined)\b|Reading\(|>\s*None\s*<|\| None", re.sub(r"data:image/[^\"]*", "", text)
        ), name
