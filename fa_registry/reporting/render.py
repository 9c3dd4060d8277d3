"""Writing an audit's pages. The same report gives the same bytes: no clock, no random id, nothing from outside."""

from __future__ import annotations

from pathlib import Path

from fa_registry import jsonio
from fa_registry.protocol.grouping import groups
from fa_registry.records import AuditReport, RunAudit
from fa_registry.reporting.blanks import read_blanks
from fa_registry.reporting.build_form import form_context, note_context
from fa_registry.reporting.build_index import index_context
from fa_registry.reporting.contexts import variables
from fa_registry.reporting.environment import render_template
from fa_registry.reporting.naming import slug


def render_report(report: AuditReport, out: Path, templates: Path | None = None) -> list[Path]:
    """Write index.html, forms/<slug>.html and .md for every method × setting, and audit.json into `out`.

    templates: a folder whose files stand in for the shipped templates of the same name; they run in a sandbox.
    What people wrote into the blanks of forms that are already there is kept. Returns the paths written, in that order.
    Raises UsageError for a template that fails or a form whose blanks cannot be kept; then nothing has been written.
    """
    pages = {out / "index.html": render_template("index.html.j2", variables(index_context(report)), templates)}
    for group in groups(report):
        if group.control:
            continue
        name = slug(group)
        form = variables(form_context(group, report, read_blanks(out / "forms" / f"{name}.md")))
        pages[out / "forms" / f"{name}.html"] = render_template("form.html.j2", form, templates)
        pages[out / "forms" / f"{name}.md"] = render_template("form.md.j2", form, templates)
    pages[out / "audit.json"] = jsonio.pretty(report)
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # A lone surrogate in a name read from a broken store cannot be UTF-8; as \udc80 it is what JSON writes too.
        path.write_bytes(text.encode("utf-8", errors="backslashreplace"))
    return list(pages)


def note_markdown(run_audit: RunAudit, report: AuditReport) -> str:
    """The short form of one run in Markdown, for its description in MLflow."""
    return render_template("note.md.j2", variables(note_context(run_audit, report)))
