"""Undefined names, bare floats and hostile templates are errors; text is escaped without anyone asking."""

from __future__ import annotations

from dataclasses import fields

import pytest
from jinja2 import TemplateAssertionError, meta, nodes
from jinja2.sandbox import SandboxedEnvironment

from fa_registry import bundled_files
from fa_registry.errors import UsageError
from fa_registry.records import Reading
from fa_registry.reference.templates import text_below
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.pages.index import index_context
from fa_registry.reporting.pages.notes import ExcludedNoteContext, audit_note_context, note_context
from fa_registry.reporting.pages.paper_table import paper_table_context
from fa_registry.reporting.render import TEMPLATES
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text.environment import TemplateRenderer, environment, variables
from fa_registry.reporting.text.environment import environment as environment_contexts
from fa_registry.reporting.view_models import Number, Truncated


@pytest.fixture
def render(tmp_path):
    """Render one template text, as a user's template of the given name."""

    def from_text(text, name="page.html.j2", **context):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return TemplateRenderer(tmp_path).render(name, context)

    return from_text


@pytest.mark.parametrize("name", ["default('x')", "d('x')", "format(1)", "safe", "forceescape"])
@pytest.mark.parametrize("page", ["index.html.j2", "form.md.j2"])
def test_filters_that_hide_errors_or_markup_do_not_exist(name, page):
    with pytest.raises(TemplateAssertionError, match="No filter named"):
        environment(page).from_string("{{ value | " + name + " }}")


@pytest.mark.parametrize("name", ["page.html.j2", "page.md.j2"])
@pytest.mark.parametrize("value", [0.5, float("nan"), None, True, ("a",)])
def test_what_is_neither_text_nor_a_whole_number_must_pass_a_filter(render, name, value):
    with pytest.raises(UsageError, match="line 1: TypeError: .*write other numbers with num"):
        render("{{ value }}", name, value=value)


def test_what_breaks_in_a_shipped_template_is_a_bug_and_shows_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr("fa_registry.bundled_files.templates", lambda: tmp_path)
    (tmp_path / "page.html.j2").write_text("{{ value }}", encoding="utf-8")
    with pytest.raises(TypeError, match="write other numbers with num"):
        TemplateRenderer().render("page.html.j2", {"value": 0.5})


def test_text_is_escaped_by_extension(render, hostile):
    assert render("<p>{{ value }}</p>", value=hostile) == "<p>&lt;script&gt;alert(1)&lt;/script&gt;{{7*7}}</p>"
    assert render("- {{ value }}", "page.md.j2", value=hostile) == "- &lt;script&gt;alert(1)&lt;/script&gt;{{7\\*7}}"


def test_macros_escape_once(render):
    macro = "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice(value) }}"
    assert render(macro, value="<") == "&lt;&lt;"
    assert render(macro, "page.md.j2", value="*") == "\\*\\*"


def test_shipped_templates_run_outside_the_sandbox_and_users_inside(tmp_path):
    assert not isinstance(environment("index.html.j2"), SandboxedEnvironment)
    assert isinstance(environment("index.html.j2", tmp_path), SandboxedEnvironment)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="found no folder at .*gone"):
        environment("index.html.j2", tmp_path / "gone")


def test_a_template_is_compiled_once_for_all_its_pages(tmp_path, monkeypatch):
    (tmp_path / "page.html.j2").write_text("{{ value }}", encoding="utf-8")
    compiled = []
    kept = SandboxedEnvironment.compile
    monkeypatch.setattr(SandboxedEnvironment, "compile", lambda *a, **k: compiled.append(1) or kept(*a, **k))
    pages = TemplateRenderer(tmp_path)
    assert [pages.render("page.html.j2", {"value": value}) for value in (1, 2)] == ["1", "2"]
    assert compiled == [1]


CONTEXTS = sorted(set(TEMPLATES.values()), key=lambda kind: kind.__name__)
SHARED = {
    "style.css.j2",
    "macros.html.j2",
    "macros.md.j2",
}  # included or imported by pages, no separate context
PARTS = {
    "index.html.j2": ("index_figures.html.j2", "index_analyses.html.j2")
}  # included: they print the page's variables


def test_every_template_has_a_context_and_every_context_a_template():
    parts = {part for parts in PARTS.values() for part in parts}
    assert {path.name for path in bundled_files.templates().glob("*.j2")} == set(TEMPLATES) | SHARED | parts


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_templates_of_a_context_use_exactly_its_fields(context):
    names = [name for name, kind in TEMPLATES.items() if kind is context]
    used = [meta.find_undeclared_variables(_tree(one)) for name in names for one in (name, *PARTS.get(name, ()))]
    assert set().union(*used) == {field.name for field in fields(context)}


@pytest.mark.parametrize("name", sorted(SHARED))
def test_shared_files_use_no_variable_of_a_page(name):
    assert meta.find_undeclared_variables(_tree(name)) == set()


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_field_has_a_text(context):
    assert list(text_below(context)) == [field.name for field in fields(context)]
    assert all(text_below(context).values()) and context.__doc__


@pytest.mark.long
def test_the_real_contexts_are_those_of_their_templates(report):
    sources = Sources.of(report)
    group, link = next(sources.forms)
    form = form_context(group, link, sources)
    made = {
        "index.html.j2": index_context(sources),
        "form.html.j2": form,
        "form.md.j2": form,
        "audit_table.tex.j2": paper_table_context(sources),
        "audit_table_notes.tex.j2": paper_table_context(sources),
        "note.md.j2": note_context(report.runs[0], sources),
        "excluded_note.md.j2": ExcludedNoteContext("NOT JUDGED", "broken", "e" * 32, report.edition, ""),
        "audit_note.md.j2": audit_note_context(sources),
        "compare.html.j2": compare_context(report, sources.groups),
    }
    assert {name: type(context) for name, context in made.items()} == dict(TEMPLATES)
    for context in made.values():
        assert set(variables(context)) == {field.name for field in fields(context)}


def _tree(name: str) -> nodes.Template:
    made = environment_contexts(name)
    return made.parse(made.loader.get_source(made, name)[0])


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("\n\n{{ nothing }}", r"template inner\.html\.j2, line 3: UndefinedError: 'nothing' is undefined"),
        ("\n{% if %}", r"template inner\.html\.j2, line 2: TemplateSyntaxError"),
        (
            "{% include 'gone.j2' %}",
            r"template inner\.html\.j2, line 1: TemplateNotFound: template gone\.j2 not found; a",
        ),
        ("{{ [] | first }}{{ 'x' + 1 }}", r"template inner\.html\.j2, line 1: "),
    ],
)
def test_the_innermost_template_is_named(tmp_path, inner, text):
    (tmp_path / "page.html.j2").write_text("\n{% include 'inner.html.j2' %}")
    (tmp_path / "inner.html.j2").write_text(inner)
    with pytest.raises(UsageError, match=text):
        TemplateRenderer(tmp_path).render("page.html.j2", {})


VALUE = Number(Reading(0.5), "num", ("r1", "r2"))


@pytest.fixture
def render_untrusted(tmp_path):
    def from_text(text, name="page.html.j2", **context):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return TemplateRenderer(tmp_path).render(name, {"value": VALUE, **context})

    return from_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{{ value.run_ids | join(' + ') }}", "r1 + r2"),
        ("{{ ['<', value.kind] | join }}", "&lt;num"),
        ("{{ '<' ~ value.kind ~ 3 }}", "&lt;num3"),
        ("{{ (value.kind | e) ~ '<' }}", "num&lt;"),
        ("{{ value | number }}", "0.500"),
        ("{{ 'a-b' | replace('-', '<') }}", "a&lt;b"),
        ("{% for one in value.run_ids %}{{ loop.index }}{{ one.upper() }}{% endfor %}", "1R12R2"),
        ("{% macro m(x) %}{{ x }}{{ caller() }}{% endmacro %}{% call m(1) %}2{% endcall %}", "12"),
        ("{% set n = namespace(a=1) %}{% set n.a = n.a + 2 * 3 %}{{ n.a }}", "7"),
        ("{{ {'a': 'b'}.a }}{{ {'a': 'b'}.items() | map('first') | join }}", "ba"),
        ("{{ listed.left }}", "3"),
    ],
)
def test_what_a_template_needs_works(render_untrusted, text, shown):
    assert render_untrusted(text, listed=Truncated((1,), 4)) == shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n{{ value.__class__.__name__ }}", "line 2: SecurityError"),
        ("{{ value.runids }}", r"line 1: UndefinedError: .*'runids'.*'run_ids'"),
        ("{{ value['__init__']() }}", "line 1: SecurityError"),
        ("{{ [].append(1) }}", "line 1: SecurityError"),
        ("{% include '../secret.j2' %}", "line 1: TemplateNotFound"),
        ("{% include '/etc/passwd' %}", "line 1: TemplateNotFound"),
    ],
)
def test_a_wrong_or_private_name_is_an_error_with_its_line(render_untrusted, text, message):
    with pytest.raises(UsageError, match=rf"template page\.html\.j2, {message}"):
        render_untrusted(text)


@pytest.mark.parametrize("text", ["{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% include 'page.html.j2' %}"])
def test_a_template_that_calls_itself_is_stopped(render_untrusted, text):
    with pytest.raises(
        UsageError, match="page.html.j2, line 1: RecursionError: templates or macros are nested too deep"
    ):
        render_untrusted(text)
