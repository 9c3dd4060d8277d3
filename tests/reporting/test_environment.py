"""Undefined names, bare floats and hostile templates are errors; text is escaped without anyone asking."""

from __future__ import annotations

import pytest
from jinja2 import TemplateAssertionError

from fa_registry.errors import UsageError
from fa_registry.reporting.text.environment import Pages, UserEnvironment, environment


@pytest.fixture
def render(tmp_path):
    """Render one template text, as a user's template of the given name."""

    def from_text(text, name="page.html.j2", **context):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return Pages(tmp_path).render(name, context)

    return from_text


def test_an_undefined_name_is_an_error_that_names_the_template(render):
    with pytest.raises(UsageError, match=r"page\.html\.j2, line 1: UndefinedError: 'nothing' is undefined"):
        render("{{ nothing }}")


def test_a_syntax_error_names_its_line(render):
    with pytest.raises(UsageError, match=r"page\.html\.j2, line 2: TemplateSyntaxError"):
        render("fine\n{% if %}")


@pytest.mark.parametrize("name", ["default('x')", "d('x')", "format(1)", "safe", "forceescape"])
@pytest.mark.parametrize("page", ["index.html.j2", "form.md.j2"])
def test_filters_that_hide_errors_or_markup_do_not_exist(name, page):
    with pytest.raises(TemplateAssertionError, match="No filter named"):
        environment(page).from_string("{{ value | " + name + " }}")


@pytest.mark.parametrize("name", ["page.html.j2", "page.md.j2"])
@pytest.mark.parametrize("value", [0.5, float("nan"), None, True, ("a",)])
def test_what_is_neither_text_nor_a_whole_number_must_pass_a_filter(render, name, value):
    with pytest.raises(UsageError, match="line 1: TypeError: .*write numbers with num"):
        render("{{ value }}", name, value=value)


def test_what_breaks_in_a_shipped_template_is_a_bug_and_shows_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr("fa_registry.resources.templates", lambda: tmp_path)
    (tmp_path / "page.html.j2").write_text("{{ value }}", encoding="utf-8")
    with pytest.raises(TypeError, match="write numbers with num"):
        Pages().render("page.html.j2", {"value": 0.5})


def test_text_is_escaped_by_extension(render, hostile):
    assert render("<p>{{ value }}</p>", value=hostile) == "<p>&lt;script&gt;alert(1)&lt;/script&gt;{{7*7}}</p>"
    assert render("- {{ value }}", "page.md.j2", value=hostile) == "- &lt;script&gt;alert(1)&lt;/script&gt;{{7\\*7}}"


def test_macros_escape_once(render):
    macro = "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice(value) }}"
    assert render(macro, value="<") == "&lt;&lt;"
    assert render(macro, "page.md.j2", value="*") == "\\*\\*"


@pytest.mark.parametrize(
    "attack",
    [
        "{{ value.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ value.append(1) }}",
        "{{ self.__init__.__globals__ }}",
    ],
)
def test_the_sandbox_stops_a_users_template(render, attack):
    with pytest.raises(UsageError, match="SecurityError"):
        render(attack, value=[0])


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
    pages = Pages(tmp_path)
    assert [pages.render("page.html.j2", {"value": value}) for value in (1, 2)] == ["1", "2"]
    assert compiled == [1]
