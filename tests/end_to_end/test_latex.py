"""The LaTeX forms and the table for a paper, built by pdflatex: no error, no missing character, nothing over the margin."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest

from fa_registry.records import AuditReport, RunRecord
from fa_registry.reporting.render import render_report
from tests.end_to_end.conftest import needed
from tests.reporting import scenes

HOSTILE = r"100%_#$&{}~^\ \input{/etc/passwd} ‖Γ‖ 中 <script> `a' -- ,, é"
PAPER = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{lmodern}
\usepackage{booktabs}
\begin{document}
\input{audit_table}
\end{document}
"""


def built(source: Path) -> str:
    """The log of the second run; TeX may read and write in the document's own folder alone."""
    command = [needed("pdflatex"), "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", source.name]
    environment = {**os.environ, "openin_any": "p", "openout_any": "p"}
    for _ in range(2):
        done = subprocess.run(command, cwd=source.parent, env=environment, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-2000:]
    return source.with_suffix(".log").read_text("utf-8", "replace")


def faults(log: str) -> list[str]:
    """What a reader would see: lines over the margin by more than a hair, and characters that the font lacks."""
    wide = [float(size) for size in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
    return [f"{size} pt too wide" for size in wide if size > 1] + re.findall(r"Missing character.*", log)


def renamed(record: RunRecord) -> RunRecord:
    options = {**record.spec.architecture_options, "x": HOSTILE}
    spec = dataclasses.replace(record.spec, architecture_options=options)
    return dataclasses.replace(record, name=HOSTILE, setting=HOSTILE, spec=spec)


def hostile(report: AuditReport) -> AuditReport:
    """Every name that comes from outside, in every place it is printed."""
    runs = tuple(dataclasses.replace(run, record=renamed(run.record)) for run in report.runs)
    cards = {"methods/dfa": {"rule": HOSTILE, "equations": HOSTILE, "bibtex": HOSTILE, "deviations": [HOSTILE]}}
    return dataclasses.replace(report, runs=runs, selection=HOSTILE, cards={**report.cards, **cards})


@pytest.fixture(scope="module", params=["small", "full", "hostile"])
def pages(request, tmp_path_factory) -> list[Path]:
    made = {
        "small": scenes.small_report,
        "full": scenes.full_report,
        "hostile": lambda: hostile(scenes.full_report()),
    }[request.param]()
    return render_report(made, tmp_path_factory.mktemp(request.param))


def test_every_form_is_a_document_of_its_own(pages):
    forms = [path for path in pages if path.parent.name == "forms" and path.suffix == ".tex"]
    assert forms
    for form in forms:
        assert faults(built(form)) == [], form.name
        assert form.with_suffix(".pdf").stat().st_size > 10_000


def test_the_table_goes_into_a_paper(pages):
    table = next(path for path in pages if path.name == "audit_table.tex")
    paper = table.with_name("paper.tex")
    paper.write_text(PAPER, encoding="utf-8")
    assert faults(built(paper)) == []
