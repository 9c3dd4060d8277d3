"""A form says the same in HTML, Markdown and LaTeX: claims, sentences, pitfalls, citations, numbers, people's words."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.sources import Sources
from fa_registry.reporting.text.environment import Pages, variables
from fa_registry.reporting.text.filters import markdown_text
from fa_registry.reporting.text.latex import latex_text
from tests.reporting.asking import changed, run_of
from tests.reporting.page import words_of

KINDS = ("html", "md", "tex")


def plain(text: str) -> str:
    return " ".join(text.split())


def shown_in(pages: dict[str, str], text: str) -> dict[str, bool]:
    """Whether each format shows the text, in its own way of writing it."""
    return {
        "html": plain(text) in words_of(pages["html"]),
        "md": str(markdown_text(text)) in pages["md"] or text in pages["md"],
        "tex": str(latex_text(text)) in pages["tex"],
    }


@pytest.fixture(scope="module")
def formed():
    """The context of a method's form and its three pages."""

    def made(report, method="dfa", written=()):
        sources = Sources.of(report)
        group, link = next((group, link) for group, link in sources.forms if group.method == method)
        context = form_context(group, link, sources, dict(written))
        return context, {kind: Pages().render(f"form.{kind}.j2", variables(context)) for kind in KINDS}

    return made


@pytest.mark.parametrize("method", ["bp", "fa", "dfa", "drtp"])
def test_every_word_of_judgement_is_in_all_three(formed, rich, method):
    context, pages = formed(rich, method)
    texts = [claim.text for claim in context.claims]
    texts += [said.sentence for row in context.findings for said in row.said]
    texts += [said.sentence for other in context.others for row in other.findings for said in row.said]
    texts += [answer.evidence for pitfall in context.pitfalls for answer in pitfall.answers]
    texts += [pitfall.title for pitfall in context.pitfalls]
    texts += [use for entry in context.bibliography.entries for use in entry.uses] + list(context.bibliography.uncited)
    texts += [value.text for entry in context.identification for value in entry.values]
    assert len(texts) > 40
    missing = {text: found for text in texts if not all((found := shown_in(pages, text)).values())}
    assert missing == {}


def test_every_run_id_is_in_all_three(formed, rich):
    context, pages = formed(rich)
    for row in context.seeds:
        assert all(row.run_id[:8] in pages[kind] for kind in KINDS)
        assert f"% Runs: {context.seeds[0].run_id}" in pages["tex"]


def test_every_diagnostic_has_its_line_and_its_word(formed, rich):
    context, pages = formed(rich, "fa")
    for table in context.diagnostics:
        for quantity in table.rows:
            assert all(shown_in(pages, quantity.words).values()), quantity
    for word in ("EXPLODED", "AT FLOOR", "UNDERCUT"):
        assert all(word in pages[kind] for kind in KINDS)


def test_one_seed_has_no_interval_and_says_so(formed, rich):
    context, pages = formed(rich, "drtp")
    assert len(context.seeds) == 1
    assert all("one seed: no interval" in plain(pages[kind]) for kind in KINDS)
    assert not any("no interval: one seed" in plain(pages[kind]) for kind in KINDS)
    assert all("One seed: no interval exists" in plain(pages[kind]) for kind in KINDS)


def test_an_interval_that_no_accuracy_can_fill_is_remarked_on(formed, rich):
    """Two seeds that differ much: Student's t leaves 0 to 100 %."""
    context, pages = formed(rich, "bp")
    assert context.accuracy.remark == "" and "reaches beyond" not in pages["md"]
    apart = [changed(run_of(rich, seed=seed), scalars={"accuracy": value}) for seed, value in ((42, 0.9), (123, 0.2))]
    others = [run for run in rich.runs if run.record.spec.method != "dfa"]
    context, pages = formed(dataclasses.replace(rich, runs=(*apart, *others)))
    assert context.accuracy.low.value < 0 < 1 < context.accuracy.high.value
    assert context.accuracy.remark and all(shown_in(pages, context.accuracy.remark).values())


def test_what_people_wrote_is_in_all_three_and_runs_nowhere(formed, rich):
    words = "We expected 100% of it.\n\\input{/etc/passwd} <b>bold</b>"
    _, pages = formed(rich, "dfa", {"motivation": words})
    assert words in pages["md"]
    assert "&lt;b&gt;bold&lt;/b&gt;" in pages["html"]
    assert r"100\% of it.\par" in pages["tex"] and r"\input{" not in pages["tex"]


def test_a_card_without_citation_is_said_in_all_three(formed, report):
    bare = dataclasses.replace(report, cards={**report.cards, "methods/dfa": {"name": "dfa"}})
    _, pages = formed(bare)
    assert all("the card of method dfa carries no citation" in pages[kind] for kind in KINDS)


def test_the_latex_form_stands_alone_and_has_no_clock(formed, report):
    _, pages = formed(report)
    text = pages["tex"]
    assert text.count(r"\begin{document}") == text.count(r"\end{document}") == 1
    assert r"\today" not in text and set(re.findall(r"\\usepackage(?:\[[^\]]*\])?\{(\w+)\}", text)) == {
        "fontenc",
        "lmodern",
        "textcomp",
        "geometry",
        "array",
        "booktabs",
        "longtable",
    }
