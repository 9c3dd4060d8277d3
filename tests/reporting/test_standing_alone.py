"""A form away from its audit has no link that leads nowhere."""

from __future__ import annotations

import re

from fa_registry.reporting.pages.form import standing_alone


def test_links_to_neighbouring_files_become_their_words():
    page = '<nav><a class="up" href="../index.html">← the <b>whole</b> audit</a></nav> <a href="a.md">x</a>'
    assert standing_alone(page) == "<nav>← the <b>whole</b> audit</nav> x"


def test_links_that_lead_somewhere_stay():
    page = '<a href="#top">up</a> <a href="https://arxiv.org/abs/1">paper</a> <a href="mailto:x">mail</a>'
    assert standing_alone(page) == page


def test_a_real_form_keeps_everything_but_its_dead_links(pages):
    form = next(text for name, text in pages.items() if name.startswith("forms/") and name.endswith(".html"))
    alone = standing_alone(form)
    assert 'href="../index.html"' in form and "the whole audit" in alone
    assert re.findall(r'href="(?!#|https?:)[^"]*"', alone) == []
    assert re.sub(r"<[^>]+>", "", alone) == re.sub(r"<[^>]+>", "", form)
