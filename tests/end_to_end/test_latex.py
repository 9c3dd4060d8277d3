"""The table for a paper, built by pdflatex: no error, no missing character, nothing over the margin; forms through pandoc."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest

from fa_registry import datasets, diagnostics, jsonio, methods
from fa_registry.records import AuditReport, RunAudit, RunRecord
from fa_registry.reporting.citations import bibliography
from fa_registry.reporting.render import render_report
from tests.end_to_end.conftest import needed
from tests.reporting import sample_reports

pytestmark = pytest.mark.long  # each document is built twice
HOSTILE = r"100%_#$&{}~^\ \input{/etc/passwd} \end{verbatim} ‖Γ‖ 中 <script> `a' -- ,, é"
PAPER = r"""\documentclass[OPTIONS]{article}
\usepackage[T1]{fontenc}
\usepackage{lmodern}
\usepackage{booktabs}
WIDTH
\begin{document}
\input{audit_table}
\input{audit_table_notes}
\end{document}
"""
# A page of one column, and the narrowest column of the large publishers: options of the class, and the width of its text.
LAYOUTS = {"one column": ("", ""), "241pt": ("twocolumn", r"\setlength{\textwidth}{492pt}")}
CHOSEN = ["accuracy", "growth_init_max", "h_L", "g_norm_mean_ce_L", "gamma_deep_mean"]


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
        "small": sample_reports.small_report,
        "full": sample_reports.full_report,
        "hostile": lambda: hostile(sample_reports.full_report()),
    }[request.param]()
    return render_report(made, tmp_path_factory.mktemp(request.param))


def test_every_form_is_converted_by_pandoc(pages):
    """README: for LaTeX or Word, convert the Markdown form."""
    forms = [path for path in pages if path.parent.name == "forms" and path.suffix == ".md"]
    assert forms
    for form in forms:
        for suffix in (".tex", ".docx"):
            made = form.with_suffix(suffix)
            command = [needed("pandoc"), "--standalone", form.name, "--output", made.name]
            done = subprocess.run(command, cwd=form.parent, capture_output=True, text=True, timeout=120)
            assert (done.returncode, done.stderr) == (0, ""), form.name
            assert made.stat().st_size > 5_000
        text = form.with_suffix(".tex").read_text(encoding="utf-8")
        assert text.count(r"\begin{longtable}") > 2
        read_by_tex = re.sub(r"\\begin\{verbatim\}.*?\\end\{verbatim\}", "", text, flags=re.DOTALL)
        assert r"\input{/etc" not in read_by_tex


def paper_of(folder: Path, layout: str) -> Path:
    options, width = LAYOUTS[layout]
    paper = folder / f"{layout.replace(' ', '-')}.tex"
    paper.write_text(PAPER.replace("OPTIONS", options).replace("WIDTH", width), encoding="utf-8")
    return paper


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_table_and_its_notes_go_into_a_paper(pages, layout):
    table = next(path for path in pages if path.name == "audit_table.tex")
    assert faults(built(paper_of(table.parent, layout))) == []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", [(), CHOSEN])
def test_the_caption_has_two_lines_and_the_chosen_columns_fit(tmp_path, layout, columns):
    render_report(sample_reports.small_report(), tmp_path, columns=columns)
    paper = paper_of(tmp_path, layout)
    assert faults(built(paper)) == []
    printed = subprocess.run(
        [needed("pdftotext"), "-layout", str(paper.with_suffix(".pdf")), "-"], capture_output=True, text=True
    )
    caption = printed.stdout.partition("Table 1")[2].partition("Method")[0]
    assert len([line for line in caption.split("\n") if line.strip()]) <= 2


CITING = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\begin{document}
\nocite{*}
\bibliographystyle{plain}
\bibliography{cited}
\end{document}
"""


@pytest.mark.parametrize("made", [sample_reports.small_report, sample_reports.full_report])
def test_what_a_form_cites_is_read_by_bibtex_without_a_warning(made, tmp_path):
    """With the cards as they are shipped today: each of them, regardless of what the audit's runs rest on."""
    report = made()
    shipped = {
        f"{family}/{name}": jsonio.encode(catalog.get(name).card)
        for family, catalog in (("methods", methods.CATALOG), ("datasets", datasets.CATALOG))
        for name in catalog.names()
    }
    shipped |= {f"diagnostics/{name}": looked_at(name) for name in diagnostics.CATALOG.names()}
    runs = dataclasses.replace(report, cards={**report.cards, **shipped}).runs
    found = [
        entry
        for name in [*(key.partition("/")[2] for key in shipped if key.startswith("methods/"))]
        for entry in bibliography(
            [as_method(runs[0], name)], runs[0].findings, dataclasses.replace(report, cards=shipped)
        ).entries
    ]
    entries = dict.fromkeys(one.bibtex for one in found)
    (tmp_path / "cited.bib").write_text("\n\n".join(entries), encoding="utf-8")
    paper = tmp_path / "paper.tex"
    paper.write_text(CITING, encoding="utf-8")
    built(paper)
    done = subprocess.run([needed("bibtex"), "paper"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "arning" not in done.stdout and "error" not in done.stdout, done.stdout
    built(paper)
    assert (tmp_path / "paper.bbl").read_text("utf-8").count("\\bibitem") == len(entries) > 10


def looked_at(name: str) -> dict:
    """A diagnostic's card, of a metric that every edition judges."""
    return {**jsonio.encode(diagnostics.CATALOG.get(name).card), "quantities": ["growth"]}


def as_method(run: RunAudit, name: str) -> RunAudit:
    return dataclasses.replace(
        run, record=dataclasses.replace(run.record, spec=dataclasses.replace(run.record.spec, method=name))
    )
