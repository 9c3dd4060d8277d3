"""A failing template is named with the line and, where one takes in another, the innermost."""

from __future__ import annotations

import pytest

from fa_registry.errors import UsageError
from fa_registry.reporting.text.environment import Pages


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("\n\n{{ nothing }}", r"template inner\.html\.j2, line 3: UndefinedError: 'nothing' is undefined"),
        ("\n{% if %}", r"template inner\.html\.j2, line 2: TemplateSyntaxError"),
        ("{% include 'gone.j2' %}", r"template inner\.html\.j2, line 1: TemplateNotFound: there is no gone\.j2; a"),
        ("{{ [] | first }}{{ 'x' + 1 }}", r"template inner\.html\.j2, line 1: "),
    ],
)
def test_the_innermost_template_is_named(tmp_path, inner, words):
    (tmp_path / "page.html.j2").write_text("\n{% include 'inner.html.j2' %}")
    (tmp_path / "inner.html.j2").write_text(inner)
    with pytest.raises(UsageError, match=words):
        Pages(tmp_path).render("page.html.j2", {})
