"""The pages that benchmarks write equal the records in docs/measured/."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks import calibration, fashion, performance, readme, remedies, studies, ten_thousand_a_day, tokens
from benchmarks.recording import ROOT, recorded
from benchmarks.tables import inserted

README, DIGITS, FASHION = (
    ROOT / "README.md",
    *(ROOT / "projects" / name / "README.md" for name in ("digits", "fashion")),
)
BLOCKS = [
    (README, fashion, fashion.render),
    (DIGITS, readme, readme.render),
    (FASHION, fashion, fashion.render_epochs),
    (tokens.PAGE, tokens, tokens.render),
    (ten_thousand_a_day.PAGE, ten_thousand_a_day, ten_thousand_a_day.render),
    (calibration.PAGE, calibration, calibration.render),
    *((page, studies, partial(studies.render, study=name)) for name, page in studies.PAGES.items()),
    *((page, remedies, partial(remedies.render, study=name)) for name, page in remedies.PAGES.items()),
]


def written(page: Path) -> str:
    """The text of the page after its benchmarks have written it again."""
    if page == performance.PAGE:
        return performance.render()
    text = page.read_text(encoding="utf-8")
    for path, module, render in BLOCKS:
        if path == page:
            text = inserted(text, module.BEGIN, render(recorded(module.MEASURED)))
    return text


@pytest.mark.parametrize(
    "page",
    dict.fromkeys([performance.PAGE, *(path for path, *_ in BLOCKS)]),
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_page_equals_the_records(page):
    assert page.read_text(encoding="utf-8") == written(page)


def test_the_main_result_is_that_of_the_audit_in_the_example():
    """README's table, the page of the study and docs/example are one audit."""
    kept = json.loads(fashion.MEASURED.read_text(encoding="utf-8"))
    found = fashion.record(fashion.EXAMPLE)
    assert [found[name] for name in ("rows", "first_fires", "runs")] == [
        kept[name] for name in ("rows", "first_fires", "runs")
    ]
