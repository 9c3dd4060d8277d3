"""Writing an audit's pages. The same report gives the same bytes: no clock, no random id, nothing from outside."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from fa_registry.records import AuditReport
from fa_registry.reporting.audit_csv import write_csv
from fa_registry.reporting.blanks import check_kept, read_blanks
from fa_registry.reporting.build_audit_table import audit_table_context
from fa_registry.reporting.build_form import form_context
from fa_registry.reporting.build_index import figures_beside, index_context
from fa_registry.reporting.contexts import variables
from fa_registry.reporting.environment import Pages
from fa_registry.reporting.exclusions import without_mismatches
from fa_registry.reporting.junit import write_junit
from fa_registry.reporting.lossless import write_report
from fa_registry.reporting.sources import Sources
from fa_registry.reporting.unfinished import unfinished
from fa_registry.reporting.user_templates import check_templates

TABLE = "audit_table.tex"  # for a paper to take in
REPORT = "audit.json"  # as it was recorded
RECORDS = {"audit.csv": write_csv, "junit.xml": write_junit, REPORT: write_report}  # for machines to read


def render_report(report: AuditReport, out: Path, templates: Path | None = None) -> list[Path]:
    """Write index.html, forms/<slug>.html, .md and .tex for every method × setting, audit_table.tex and RECORDS into `out`.

    templates: a folder whose files stand in for the shipped templates of the same name; they run in a sandbox.
    What people wrote into the blanks of forms that are already there is kept. Returns the paths written, in that order.
    Raises UsageError for a template that fails or a form whose blanks cannot be kept; then no page has been written.
    """
    check_templates(templates)
    pages = Pages(templates)
    # One page at a time is in memory, and no reader meets a half of them.
    with unfinished(out) as folder:
        written = _render(report, folder, out, pages)
        for name in written:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / name, out / name)
    return [out / name for name in written]


def _render(report: AuditReport, folder: Path, out: Path, pages: Pages) -> list[str]:
    """Write everything into `folder`; the names in their order. out: where earlier forms are."""
    shown = without_mismatches(report)
    sources = Sources.of(shown)
    names = ["index.html"]
    _write(folder / "index.html", _index(sources, pages))
    (folder / "forms").mkdir()
    for group, link in sources.forms:
        written = read_blanks(out / link.markdown)
        form = variables(form_context(group, link, sources, written))
        latex = f"{link.markdown.removesuffix('.md')}.tex"
        for name, template in ((link.href, "form.html.j2"), (link.markdown, "form.md.j2"), (latex, "form.tex.j2")):
            _write(folder / name, pages.render(template, form))
            names.append(name)
        check_kept(written, (folder / link.markdown).read_text(encoding="utf-8"), out / link.markdown)
    _write(folder / TABLE, pages.render(f"{TABLE}.j2", variables(audit_table_context(sources))))
    for name, write in RECORDS.items():
        write(report if name == REPORT else shown, folder / name)
    return [*names, TABLE, *RECORDS]


def _index(sources: Sources, pages: Pages) -> str:
    """The audit's page, written twice: without figures, to know how much room it has for them, and with them."""
    bare = index_context(sources)
    figures = figures_beside(pages.render("index.html.j2", variables(bare)), sources)
    return pages.render("index.html.j2", variables(dataclasses.replace(bare, figures=figures)))


def _write(path: Path, text: str) -> None:
    # A lone surrogate in a name read from a broken store cannot be UTF-8; as \udc80 it is what JSON writes too.
    path.write_bytes(text.encode("utf-8", errors="backslashreplace"))
