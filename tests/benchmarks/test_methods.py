"""The table of all methods shows the recorded figures."""

from __future__ import annotations

import json

from benchmarks.methods import BEGIN, MEASURED, PAGE, render
from benchmarks.tables import inserted


def test_the_studys_page_holds_the_recorded_figures():
    page = PAGE.read_text(encoding="utf-8")
    assert inserted(page, BEGIN, render(json.loads(MEASURED.read_text(encoding="utf-8")))) == page


def test_a_changed_figure_is_noticed():
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    measured["costs"][0]["ratio"]["median"] += 1
    page = PAGE.read_text(encoding="utf-8")
    assert inserted(page, BEGIN, render(measured)) != page
