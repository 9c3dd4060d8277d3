"""Undefined names, bare floats and hostile templates are errors; text is escaped without anyone asking."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from types import SimpleNamespace

import pytest
from jinja2 import TemplateAssertionError, meta, nodes

from fa_registry import bundled_files
from fa_registry.errors import UsageError
from fa_registry.records import Reading
from fa_registry.reporting.pages.comparison import compare_context
from fa_registry.reporting.pages.form import form_context, form_page_context
from fa_registry.reporting.pages.index import audit_table_context, index_context
from fa_registry.reporting.pages.notes import audit_note_context, excluded_note_context, note_context
from fa_registry.reporting.render import TEMPLATES, template_problems
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text import environment as environment_sandbox
from fa_registry.reporting.text.environment import TemplateRenderer, UserEnvironment, environment, variables
from fa_registry.reporting.text.environment import environment as environment_contexts
from fa_registry.reporting.view_models import Number, Truncated
from tests.helpers.limited import CEILING, run_limited


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
    assert not isinstance(environment("index.html.j2"), UserEnvironment)
    assert isinstance(environment("index.html.j2", tmp_path), UserEnvironment)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="found no folder at .*gone"):
        environment("index.html.j2", tmp_path / "gone")


def test_a_template_is_compiled_once_for_all_its_pages(tmp_path, monkeypatch):
    (tmp_path / "page.html.j2").write_text("{{ value }}", encoding="utf-8")
    compiled = []
    kept = UserEnvironment.compile
    monkeypatch.setattr(UserEnvironment, "compile", lambda *a, **k: compiled.append(1) or kept(*a, **k))
    pages = TemplateRenderer(tmp_path)
    assert [pages.render("page.html.j2", {"value": value}) for value in (1, 2)] == ["1", "2"]
    assert compiled == [1]


SHARED = {
    "style.css.j2",
    "macros.html.j2",
    "macros.md.j2",
    "macros.tex.j2",
}  # included or imported by pages, no separate context
PARTS = {
    "index.html.j2": ("index_figures.html.j2", "index_analyses.html.j2")
}  # included: they print the page's variables


def test_every_template_has_a_context_and_every_context_a_template():
    parts = {part for parts in PARTS.values() for part in parts}
    assert {path.name for path in bundled_files.templates().glob("*.j2")} == set(TEMPLATES) | SHARED | parts


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
    group, link = next(sources.forms)
    form = form_context(group, link, sources, {})
    made = {
        "index.html.j2": index_context(sources),
        "form.html.j2": form_page_context(form, group, sources),
        "form.md.j2": form,
        "form.tex.j2": form,
        "audit_table.tex.j2": audit_table_context(sources),
        "note.md.j2": note_context(report.runs[0], sources),
        "excluded_note.md.j2": excluded_note_context(report.excluded[0], report),
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


@pytest.fixture
def hurried(monkeypatch):
    """Pages that may take no more than an instant."""
    monkeypatch.setattr(environment_sandbox, "SECONDS", 0.02)


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
        ("\n{{ value.__class__ }}", "line 2: SecurityError: a template cannot use '__class__' of Number"),
        ("{{ value._private }}", "unknown field of Number '_private'; known: kind, reading, run_ids"),
        ("{{ value.runids }}", r"unknown field of Number 'runids' \(did you mean 'run_ids'\?\)"),
        ("{{ listed.first(1, value) }}", "cannot use 'first' of Truncated.*; it can use: left, shown, total"),
        ("{{ value['__init__'] }}", "cannot use '__init__'"),
        ("{{ value | attr('__init__') }}", "No filter named 'attr'"),
        (
            "{{ [value] | map(attribute='__class__') | list | length ~ [value] | map(attribute='__class__') | join }}",
            "cannot use",
        ),
        ("{{ '{:9}'.format(1) }}", "cannot use 'format' of str"),
        ("{{ [].append(1) }}", "cannot use 'append'"),
        ("{{ self.__init__ }}", "cannot use '__init__'"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ '%9d' % 3 }}", "the operator % of texts is not available"),
        ("{% autoescape false %}{{ value.kind }}{% endautoescape %}", "line 1: TemplateSyntaxError: autoescape"),
        (
            "{% include '../secret.j2' %}",
            "line 1: TemplateNotFound: template ../secret.j2 not found; a template can include",
        ),
        ("{% include '/etc/passwd' %}", "template /etc/passwd not found; a template can include"),
    ],
)
def test_what_a_template_may_not_touch(render_untrusted, text, message):
    with pytest.raises(UsageError, match=rf"template page\.html\.j2.*{message}"):
        render_untrusted(text, listed=Truncated((1,), 4))


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(20) }}",
        "{% for a in range(99) recursive %}{% if loop.depth < 5 %}{{ loop(range(25)) }}{% endif %}{% endfor %}",
        "{% for a in range(99999) %}{% include 'part.html.j2' %}{% endfor %}",
    ],
)
def test_a_page_that_does_not_end_is_stopped(render_untrusted, hurried, tmp_path, text):
    (tmp_path / "part.html.j2").write_text("x" * 50)
    with pytest.raises(
        UsageError, match=r"page\.html\.j2, line 1: SecurityError: the page takes more than 0\.02 s; a loop"
    ):
        render_untrusted(text)


def test_comparing_slicing_and_dicts_still_work(render_untrusted):
    text = "{{ 1 if [1, 2] == [1] + [2] }}{{ 'abc'[1:] }}{{ {'a' ~ 1: 2}.a1 }}{{ 3 if 5000 is gt(4999) }}{{ 4 if 1 < 2 < 3 }}"
    assert render_untrusted(text) == "1bc234"


@pytest.mark.parametrize("text", ["{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% include 'page.html.j2' %}"])
def test_a_template_that_calls_itself_is_stopped(render_untrusted, text):
    with pytest.raises(
        UsageError, match="page.html.j2, line 1: RecursionError: templates or macros are nested too deep"
    ):
        render_untrusted(text)


def test_every_page_has_its_own_clock(tmp_path, monkeypatch):
    clock = iter(range(99))
    monkeypatch.setattr(environment_sandbox, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(environment_sandbox, "SECONDS", 3)
    (tmp_path / "page.html.j2").write_text("{% for a in range(3) %}{% endfor %}x")
    pages = TemplateRenderer(tmp_path)
    assert [pages.render("page.html.j2", {}) for _ in range(3)] == ["x"] * 3


DOUBLED = "{% set n = namespace(a='aaaaaaaa') %}{% for _ in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}"
LISTED = "{% set n = namespace(a=[]) %}{% for x in range(99999) %}{% set n.a = n.a + [x] * 999999 %}{% endfor %}"
WIDER = "gives a value of more than 67,108,864 characters or entries"
BITS = "gives a value of more than 4,096 bits"
MEMORY = r"MemoryError: the page needs more than 268,435,456 bytes of memory"
HUNGRY = {
    "{{ 'a' * 10**10 }}": rf"the operator \* {WIDER}",
    "{{ 10**10 * 'a' }}": rf"the operator \* {WIDER}",
    "{% set x = [0] * 10**9 %}": rf"the operator \* {WIDER}",
    "{% set x = 'a' * 2**26 %}{{ x + 'b' }}": rf"the operator \+ {WIDER}",
    "{{ 9 ** 99999 }}": rf"the operator \*\* {BITS}",
    "{{ 2**2000 * 2**2000 * 2**2000 }}": rf"the operator \* {BITS}",
    "{{ '%010000000000d' % 1 }}": "the operator % of texts is not available",
    "{{ '{:>10000000000}'.format(1) }}": "cannot use 'format' of str",
    "{{ 'a' | indent(width=10**9) }}": "No filter named 'indent'",
    "{{ 'a' | center(10**10) }}": "No filter named 'center'",
    "{{ 'a'.ljust(10**10) }}": "cannot use 'ljust' of str",
    "{{ 'a'.join(['b'] * 10**7) }}": "cannot use 'join' of str",
    "{{ 'a' | replace('a', 'a' * 10**4)" + " | replace('a', 'a' * 10**4)" * 3 + " }}": MEMORY,
    DOUBLED: MEMORY,
    LISTED: MEMORY,
    "{% for x in range(99999) %}{% for y in range(9) %}{{ 'a' * 10**6 }}{% endfor %}{% endfor %}": MEMORY,
    "{{ range(99999) | map('string') | join('a' * 10**5) }}": MEMORY,
    "{% for x in range(99999) %}{{ loop.cycle('a' * 10**6, 'b' * 10**6) }}{% endfor %}": MEMORY,
    "{% macro m(x) %}{{ x ~ m(x ~ x) }}{% endmacro %}{{ m('aaaaaaaa') }}": MEMORY,
    "{% set x %}{% for x in range(99999) %}{{ 'a' * 10**5 }}{% endfor %}{% endset %}": MEMORY,
    "{{ 'a' * 2**26 }}b": "expected a page of at most 67,108,864 characters, found 67,108,865",
    "{{ '<' * 2**26 }}": MEMORY,
}


def test_a_template_takes_no_more_memory_than_a_page_may(tmp_path):
    """Each in turn in one process: the bound of the first is gone when the second begins."""
    setup = f"""
import gc
from pathlib import Path
from fa_registry.errors import UsageError
from fa_registry.reporting.text import environment
environment.MEMORY = 2**28
pages, texts = Path({str(tmp_path)!r}), {list(HUNGRY)!r}
"""
    code = """
for place, text in enumerate(texts):
    (pages / f"page{place}.html.j2").write_text(text)
    try:
        print(len(environment.TemplateRenderer(pages).render(f"page{place}.html.j2", {})))
    except UsageError as error:
        print(error)
    gc.collect()  # what a page that failed has made is held by its traceback
print(resource.getrlimit(resource.RLIMIT_AS))
"""
    ended = run_limited(setup, code)
    *printed, limit = ended.printed.splitlines()
    assert limit == f"({CEILING}, {CEILING})" and len(printed) == len(HUNGRY)
    for line, (text, message) in zip(printed, HUNGRY.items(), strict=True):
        assert re.search(rf"^template page\d+\.html\.j2(, line 1)?: .*{message}", line), f"{text[:200]}: {line[:300]}"
    assert ended.grown < 2**29


@pytest.mark.parametrize("kind", ["pipe", "large", "folded"])
def test_a_file_that_is_no_template_is_reported_before_it_is_read(tmp_path, monkeypatch, kind):
    path = tmp_path / "form.html.j2"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        path.write_text("x" * (2**20 + 1))
    else:
        monkeypatch.setattr(environment_sandbox, "MEMORY", 2**28)
        path.write_text(
            "{{ 'aaaaaaaa'" + " | replace('a', 'aaaaaaaaaaaaaaaa')" * 9 + " }}"
        )  # worked out while it is compiled
    text = {
        "pipe": "form.html.j2: is no regular file",
        "large": "form.html.j2: has 1,048,577 bytes, expected at most 1,048,576",
        "folded": "template form.html.j2: MemoryError: the page needs more than 268,435,456 bytes of memory; shorten the page",
    }
    assert template_problems(tmp_path) == [text[kind]]
