"""A user's template touches fields and nothing else, and comes to an end, whatever it says."""

from __future__ import annotations

import pytest

from fa_registry.errors import UsageError
from fa_registry.records import Reading
from fa_registry.reporting.text import sandbox
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
def poor(monkeypatch):
    """Budgets that are spent at once; the real ones differ in nothing but their size."""
    monkeypatch.setattr(sandbox.Budget.__init__, "__defaults__", (3000, 3000))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{{ value.run_ids | join(' + ') }}", "r1 + r2"),
        ("{{ ['<', value.kind] | join }}", "&lt;num"),
        ("{{ '<' ~ value.kind ~ 3 }}", "&lt;num3"),
        ("{{ ('<' | e) ~ '<' }}", "&lt;&lt;"),
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
        "{% for a in range(60) %}{% for b in range(60) %}{% endfor %}{% endfor %}",
        "{% for a in range(100) %}{{ range(100) | list | length }}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(20) }}",
        "{% for a in range(99) recursive %}{% if loop.depth < 9 %}{{ loop(range(9)) }}{% endif %}{% endfor %}",
    ],
)
def test_a_loop_without_end_is_stopped(render, poor, text):
    with pytest.raises(UsageError, match=r"page\.html\.j2, line 1: SecurityError: expected at most 3,000 steps a page"):
        render(text)


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(100) %}" + "x" * 50 + "{% endfor %}",
        "{% for a in range(100) %}{{ long }}{% endfor %}",
        "{% set a %}{{ long }}{{ long }}{% endset %}" + "{{ a }}" * 50,
        "{% for a in range(100) %}{% include 'part.html.j2' %}{% endfor %}",
        "{% macro m() %}" + "x" * 50 + "{% endmacro %}" + "{{ m() }}" * 99,
    ],
)
def test_a_page_without_end_is_stopped(render, poor, tmp_path, text):
    (tmp_path / "part.html.j2").write_text("x" * 50)
    with pytest.raises(UsageError, match="SecurityError: expected at most 3,000 characters a page"):
        render(text, long="y" * 50)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'x' * 10**9 }}",
        "{{ 10**9 * [1] }}",
        "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set s = 'x' * 9999 %}{{ s | replace('x', s) }}",
        "{% set s = 'x' * 9999 %}{{ (range(999) | list) | join(s) }}",
    ],
)
def test_a_huge_value_is_refused_before_it_is_made(render, text):
    with pytest.raises(UsageError, match="line 1: SecurityError: expected values of at most 1,000,000"):
        render(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 10 ** 99999999 }}",
        "{% set n = namespace(a=9) %}{% for i in range(99) %}{% set n.a = n.a * n.a %}{% endfor %}",
    ],
)
def test_a_huge_number_is_refused(render, text):
    with pytest.raises(UsageError, match="whole numbers of at most 4,096 bits"):
        render(text)


DOUBLED = "{% set n = namespace(a=START) %}{% for i in range(40) %}{% set n.a = PAIR %}{% endfor %}"
LISTS = DOUBLED.replace("START", "[1]").replace("PAIR", "[n.a, n.a]")
TUPLES = DOUBLED.replace("START", "(1,)").replace("PAIR", "(n.a, n.a)")


@pytest.mark.parametrize(
    "use",
    [
        "{{ n.a | string | length }}",
        "{{ n.a | e }}",
        "{{ n.a ~ '' }}",
        "{{ n.a | join }}",
        "{{ [[n.a]] | map('string') | list | length }}",
        "{{ 'y' if n.a == [n.a, n.a] }}",
        "{{ 'y' if n.a is eq([n.a, n.a]) }}",
        "{{ 'y' if (n.a, n.a) in [n.a] }}",
        "{{ [n.a, n.a] | sort | length }}",
        "{{ {n.a: 1} | length }}",
        "{{ {}[n.a] }}",
        "{{ {}.get(n.a) }}",
        "{% include n.a %}",
        "{{ n.a | num }}",
        "{{ 1.5 | num(n.a) }}",
        "{% macro m() %}{% endmacro %}{{ m(n.a) }}",
    ],
)
@pytest.mark.parametrize("made", [LISTS, TUPLES])
def test_a_list_that_unfolds_without_end_is_not_unfolded(render, made, use):
    with pytest.raises(
        UsageError, match=r"SecurityError: expected (values of at most 1,000,000|text or a number|lists nested)"
    ):
        render(made + use)


def test_a_list_that_is_printed_is_named_by_its_type(render):
    with pytest.raises(UsageError, match="may print text and whole numbers, found list; write"):
        render(LISTS + "{{ n.a }}")


def test_a_list_that_is_too_deep_is_refused_before_python_breaks_over_it(render):
    deep = "{% set n = namespace(a=(1,)) %}{% for i in range(9999) %}{% set n.a = (n.a,) %}{% endfor %}{{ {n.a: 1} }}"
    with pytest.raises(UsageError, match="SecurityError: expected lists nested at most 20 deep"):
        render(deep)


@pytest.mark.parametrize("use", ["{{ value | string }}", "{{ [value] | join }}", "{{ value ~ '' }}"])
def test_a_record_is_not_written_out_whole(render, use):
    with pytest.raises(UsageError, match="expected text or a number, found Number; join a list's entries, show a rec"):
        render(use)


@pytest.mark.parametrize(
    "use", ["s.upper()", "s | upper", "s[1:]", "s ~ s", "s + s", "s == t", "[s, t] | sort", "s in t", "m(s)"]
)
def test_what_is_done_to_a_long_text_is_paid_for(render, poor, use):
    """3,000 steps are 150,000 characters looked through."""
    made = "{% macro m(x) %}{% endmacro %}{% for i in range(9) %}{% set x = USE %}{% endfor %}"
    with pytest.raises(UsageError, match="SecurityError: expected at most 3,000 steps a page"):
        render(made.replace("USE", use), s="x" * 50_000, t="x" * 49_999 + "y")


def test_a_number_of_a_billion_digits_is_not_written(render):
    with pytest.raises(UsageError, match="SecurityError: expected at most 10,000 digits"):
        render("{{ 1.5 | num(10 ** 9) }}")


def test_comparing_slicing_and_dicts_still_work(render):
    text = "{{ 1 if [1, 2] == [1] + [2] }}{{ 'abc'[1:] }}{{ {'a' ~ 1: 2}.a1 }}{{ 3 if 5000 is gt(4999) }}{{ 4 if 1 < 2 < 3 }}"
    assert render(text) == "1bc234"


@pytest.mark.parametrize("text", ["{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% include 'page.html.j2' %}"])
def test_a_template_that_calls_itself_is_stopped(render, text):
    with pytest.raises(
        UsageError, match="page.html.j2, line 1: RecursionError: templates or macros are nested too deep"
    ):
        render(text)


def test_every_page_has_its_own_budget(tmp_path, poor):
    (tmp_path / "page.html.j2").write_text("{% for a in range(1000) %}{% endfor %}x")
    pages = Pages(tmp_path)
    assert [pages.render("page.html.j2", {}) for _ in range(3)] == ["x"] * 3
