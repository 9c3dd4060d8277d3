"""A user's template touches fields and nothing else, and comes to an end, whatever it says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fa_registry.errors import UsageError
from fa_registry.records import Reading
from fa_registry.reporting.text import environment
from fa_registry.reporting.text.environment import Pages
from fa_registry.reporting.values import Listed, Number

VALUE = Number(Reading(0.5), "num", ("r1", "r2"))


@pytest.fixture
def render(tmp_path):
    def from_text(text, name="page.html.j2", **context):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return Pages(tmp_path).render(name, {"value": VALUE, **context})

    return from_text


@pytest.fixture
def hurried(monkeypatch):
    """Pages that may take no more than an instant."""
    monkeypatch.setattr(environment, "SECONDS", 0.02)


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
def test_what_a_template_needs_works(render, text, shown):
    assert render(text, listed=Listed((1,), 4)) == shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n{{ value.__class__ }}", "line 2: SecurityError: a template may not touch '__class__' of Number"),
        ("{{ value._private }}", "unknown field of Number '_private'; known: kind, reading, run_ids"),
        ("{{ value.runids }}", r"unknown field of Number 'runids' \(did you mean 'run_ids'\?\)"),
        ("{{ listed.first(1, value) }}", "may not touch 'first' of Listed.*; it may touch: left, shown, total"),
        ("{{ value['__init__'] }}", "may not touch '__init__'"),
        ("{{ value | attr('__init__') }}", "No filter named 'attr'"),
        (
            "{{ [value] | map(attribute='__class__') | list | length ~ [value] | map(attribute='__class__') | join }}",
            "touch",
        ),
        ("{{ '{:9}'.format(1) }}", "may not touch 'format' of str"),
        ("{{ [].append(1) }}", "may not touch 'append'"),
        ("{{ self.__init__ }}", "may not touch '__init__'"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ '%9d' % 3 }}", "text % values is not available"),
        ("{% autoescape false %}{{ value.kind }}{% endautoescape %}", "line 1: TemplateSyntaxError: autoescape"),
        ("{% include '../secret.j2' %}", "line 1: TemplateNotFound: there is no ../secret.j2; a template takes"),
        ("{% include '/etc/passwd' %}", "there is no /etc/passwd; a template takes"),
    ],
)
def test_what_a_template_may_not_touch(render, text, words):
    with pytest.raises(UsageError, match=rf"template page\.html\.j2.*{words}"):
        render(text, listed=Listed((1,), 4))


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(20) }}",
        "{% for a in range(99) recursive %}{% if loop.depth < 5 %}{{ loop(range(25)) }}{% endif %}{% endfor %}",
        "{% for a in range(99999) %}{% include 'part.html.j2' %}{% endfor %}",
    ],
)
def test_a_page_that_does_not_end_is_stopped(render, hurried, tmp_path, text):
    (tmp_path / "part.html.j2").write_text("x" * 50)
    with pytest.raises(
        UsageError, match=r"page\.html\.j2, line 1: SecurityError: expected a page within 0\.02 s; a loop"
    ):
        render(text)


def test_a_list_that_is_printed_is_named_by_its_type(render):
    with pytest.raises(UsageError, match="may print text and whole numbers, found tuple; write"):
        render("{{ value.run_ids }}")


def test_comparing_slicing_and_dicts_still_work(render):
    text = "{{ 1 if [1, 2] == [1] + [2] }}{{ 'abc'[1:] }}{{ {'a' ~ 1: 2}.a1 }}{{ 3 if 5000 is gt(4999) }}{{ 4 if 1 < 2 < 3 }}"
    assert render(text) == "1bc234"


@pytest.mark.parametrize("text", ["{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% include 'page.html.j2' %}"])
def test_a_template_that_calls_itself_is_stopped(render, text):
    with pytest.raises(
        UsageError, match="page.html.j2, line 1: RecursionError: templates or macros are nested too deep"
    ):
        render(text)


def test_every_page_has_its_own_clock(tmp_path, monkeypatch):
    clock = iter(range(99))
    monkeypatch.setattr(environment, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(environment, "SECONDS", 3)
    (tmp_path / "page.html.j2").write_text("{% for a in range(3) %}{% endfor %}x")
    pages = Pages(tmp_path)
    assert [pages.render("page.html.j2", {}) for _ in range(3)] == ["x"] * 3
