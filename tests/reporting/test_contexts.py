"""The template contract: template names, documented fields and the variables a template uses are the same."""

from __future__ import annotations

from dataclasses import fields

import pytest
from jinja2 import meta, nodes

from fa_registry import resources
from fa_registry.reporting.lookups import Frozen
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.pages.index import audit_table_context, index_context
from fa_registry.reporting.pages.notes import audit_note_context, excluded_note_context, note_context
from fa_registry.reporting.render import TEMPLATES
from fa_registry.reporting.sources import Sources
from fa_registry.reporting.text.environment import environment, variables

SHARED = {
    "style.css.j2",
    "macros.html.j2",
    "macros.md.j2",
    "macros.tex.j2",
}  # included or imported by pages, no context of their own
PARTS = {
    "index.html.j2": ("index_figures.html.j2", "index_analyses.html.j2")
}  # included: they print the page's variables


def test_every_template_has_a_context_and_every_context_a_template():
    parts = {part for parts in PARTS.values() for part in parts}
    assert {path.name for path in resources.templates().glob("*.j2")} == set(TEMPLATES) | SHARED | parts


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_uses_exactly_the_documented_fields(name):
    used = [meta.find_undeclared_variables(_tree(one)) for one in (name, *PARTS.get(name, ()))]
    assert set().union(*used) == {field.name for field in fields(TEMPLATES[name])}


@pytest.mark.parametrize("name", sorted(SHARED))
def test_shared_files_use_no_variable_of_a_page(name):
    assert meta.find_undeclared_variables(_tree(name)) == set()


@pytest.mark.parametrize("context", sorted(set(TEMPLATES.values()), key=lambda kind: kind.__name__))
def test_every_field_has_help_and_unit(context):
    lacking = [
        field.name for field in fields(context) if not (field.metadata.get("help") and field.metadata.get("unit"))
    ]
    assert lacking == []
    assert context.__doc__


def test_the_real_contexts_are_those_of_their_templates(report):
    sources = Sources.of(report)
    form = form_context(*next(sources.forms), sources, {})
    made = {
        "index.html.j2": index_context(sources),
        "form.html.j2": form,
        "form.md.j2": form,
        "form.tex.j2": form,
        "audit_table.tex.j2": audit_table_context(sources),
        "note.md.j2": note_context(report.runs[0], report, Frozen.of(report)),
        "excluded_note.md.j2": excluded_note_context(report.excluded[0], report),
        "audit_note.md.j2": audit_note_context(sources),
        "compare.html.j2": compare_context(report, sources.groups),
    }
    assert {name: type(context) for name, context in made.items()} == dict(TEMPLATES)
    for context in made.values():
        assert set(variables(context)) == {field.name for field in fields(context)}


def _tree(name: str) -> nodes.Template:
    made = environment(name)
    return made.parse(made.loader.get_source(made, name)[0])
