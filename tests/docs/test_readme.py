"""README can be read in a few minutes."""

from __future__ import annotations

import json

from tests.docs.pages import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_people_write_in_it_is_short():
    assert len(TEXT.splitlines()) <= 150


def test_the_first_screen_has_the_measured_figures():
    measured = json.loads((ROOT / "docs" / "measured" / "fashion.json").read_text(encoding="utf-8"))
    rows = {row[0]: row for row in measured["rows"]}
    accuracy, frozen = (float(rows[method][1].split()[0]) for method in ("dfa", "frozen"))
    first = " ".join(TEXT.partition("![")[0].split())
    assert f"accuracy {accuracy:.0%}".replace("%", " %") in first
    assert f"reaches {frozen:.0%}".replace("%", " %") in first and f"gradient ({rows['dfa'][7]})" in first
    assert "Not tested: the paper's CIFAR-10 results" in TEXT.partition("\n## ")[0]


def test_lines_are_short():
    prose = TEXT.replace("<!-- /", "<!-- ").split("<!-- ")[::2]
    assert [line for part in prose for line in part.splitlines() if len(line) > 100 and line[:1] not in "|!"] == []
