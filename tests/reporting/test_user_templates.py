"""What is wrong with a user's templates is said before anything is written, all of it at once."""

from __future__ import annotations

import re

import pytest

from fa_registry import resources
from fa_registry.errors import InvalidFields
from fa_registry.reporting.render import check_templates, overridable, render_report, template_problems


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()

    def write(**texts):
        for name, text in texts.items():
            (folder / f"{name.replace('_', '.')}.j2").write_text(text, encoding="utf-8")
        return folder

    return write


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ok\n{{ titel }}",
            r"template index.html.j2, line 2: unknown name 'titel' \(did you mean 'title'\?\); known: .*run_count",
        ),
        ("{{ title | uper }}", r"template index.html.j2, line 1: unknown filter 'uper' \(did you mean 'upper'\?\)"),
        ("{{ title | safe }}", "line 1: unknown filter 'safe'"),
        ("ok\n{% if %}", "template index.html.j2, line 2: TemplateSyntaxError"),
        ("{{ title is wonderful }}", "line 1: TemplateAssertionError: No test named 'wonderful'"),
        ("{% autoescape false %}{% endautoescape %}", "line 1: TemplateSyntaxError: autoescape"),
    ],
)
def test_a_wrong_template_is_named_with_its_line(mine, text, words):
    (problem,) = template_problems(mine(index_html=text))
    assert re.search(words, problem)


def test_every_problem_is_named_at_once_and_nothing_is_written(mine, report, tmp_path):
    folder = mine(index_html="{{ titel }}{{ seitdem }}", form_md="{{ titel }}", indx_html="", note_md="")
    (folder / "latin.html.j2").write_bytes(b"\xe9")
    with pytest.raises(InvalidFields) as caught:
        render_report(report, tmp_path / "out", folder)
    said = "\n".join(caught.value.problems)
    assert said.count("unknown name") == 3 and "UnicodeDecodeError" in said
    assert "indx.html.j2: no page is made from it" in said and "did you mean 'index.html.j2'?" in said
    assert "note.md.j2: is written to the store" in said
    assert not (tmp_path / "out").exists()


def test_a_part_that_a_template_takes_in_is_known(mine):
    assert template_problems(mine(index_html="{% include 'mine.html.j2' %}", mine_html="{{ title }}")) == []


def test_a_link_out_of_the_folder_is_refused(mine, tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = mine(index_html="{% include 'part.j2' %}")
    (folder / "part.j2").symlink_to(tmp_path / "secret")
    assert template_problems(folder) == ["part.j2: is a link that leads out of the folder"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), "no file in it ends on .j2, so that no page would change; found nothing; known: .*form.html.j2"),
        (
            ("notes.txt", "a.css"),
            "no file in it ends on .j2, so that no page would change; found a.css, notes.txt; known",
        ),
        (("form.html", "index.html.j2"), "form.html: its name does not end on .j2, so that no page is made from it"),
        (("form.html.jinja2",), r"form.html.jinja2: its name does not end on .j2, .*\(did you mean 'form.html.j2'\?\)"),
        (("FORM.HTML.J2",), r"FORM.HTML.J2: its name does not end on .j2, .*\(did you mean 'form.html.j2'\?\)"),
    ],
)
def test_a_folder_whose_templates_would_change_no_page_is_refused(tmp_path, files, words):
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("")
    (problem,) = template_problems(folder)
    assert re.search(words, problem), problem


def test_templates_that_only_take_in_one_another_change_no_page(mine):
    problems = template_problems(mine(one_html="{% include 'two.html.j2' %}", two_html="{% include 'one.html.j2' %}"))
    assert [problem.partition(":")[0] for problem in problems] == ["one.html.j2", "two.html.j2"]


def test_what_lies_beside_templates_is_nobodys_business(mine):
    folder = mine(index_html="{{ title }}")
    (folder / "README.md").write_text("ours")
    assert template_problems(folder) == []


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InvalidFields, match="there is no folder"):
        check_templates(tmp_path / "none")
    check_templates(None)


def test_the_shipped_templates_pass_and_render_the_same_in_the_sandbox(mine, report, tmp_path):
    folder = mine()
    for name in overridable():
        (folder / name).write_bytes((resources.templates() / name).read_bytes())
    assert template_problems(folder) == []
    shipped = {path.name: path.read_bytes() for path in render_report(report, tmp_path / "shipped")}
    assert {path.name: path.read_bytes() for path in render_report(report, tmp_path / "own", folder)} == shipped
