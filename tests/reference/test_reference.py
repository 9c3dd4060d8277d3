"""The references of the command line and of the templates list everything there is, and agree with the code."""

from __future__ import annotations

import re
from dataclasses import fields

import click
import pytest

from fa_registry.cli import main
from fa_registry.reference.__main__ import PAGES, commands_reference, stale
from fa_registry.reference.__main__ import main as write_pages
from fa_registry.reference.templates import templates_reference
from fa_registry.reporting.render import TEMPLATES
from fa_registry.reporting.text.environment import FORBIDDEN_FILTERS, environment


@pytest.fixture(scope="module")
def page():
    return commands_reference()


def test_what_is_generated_is_not_stale():
    assert stale() == []


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_has_its_options_and_examples(page, name):
    section = page.split(f"\n## fa-registry {name}\n")[1].split("\n## ")[0]
    command = main.commands[name]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert (f"`{parameter.opts[0]}" in section) is not parameter.hidden
    for example in command.help.split("Examples:\n")[1].splitlines():
        assert f"    {example.strip()}\n" in section
    assert f"    fa-registry {name} [OPTIONS]" in section
    assert f"(#fa-registry-{name})" in page


@pytest.mark.long
def test_a_page_that_is_stale_or_not_there_is_reported_and_written(tmp_path, capsys):
    assert write_pages(["--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("is stale;") == len(PAGES)
    assert write_pages(["--folder", str(tmp_path), "--write"]) == 0
    assert stale(tmp_path) == [] and write_pages(["--folder", str(tmp_path)]) == 0
    (tmp_path / "docs" / "reference-cli.md").write_text("old", encoding="utf-8")
    assert stale(tmp_path) == ["docs/reference-cli.md"]


@pytest.fixture(scope="module")
def template_page():
    return templates_reference()


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_template_and_variable_is_listed_with_its_type_and_text(template_page, name):
    assert f"`{name}`" in template_page
    heading = next(line for line in template_page.splitlines() if line.startswith("### ") and f"`{name}`" in line)
    section = template_page.partition(f"{heading}\n")[2].partition("\n### ")[0]
    for field in fields(TEMPLATES[name]):
        row = next(line for line in section.splitlines() if line.startswith(f"| `{field.name}` |"))
        assert all(cell.strip() for cell in row.strip("|").split(" | ")) and row.count(" | ") == 2


def test_records_inside_of_records_are_listed_and_every_link_leads_somewhere(template_page):
    heads = {line.removeprefix("### ").lower() for line in template_page.splitlines() if line.startswith("### ")}
    links = set(re.findall(r"\]\(#([a-z]+)\)", template_page))
    assert {"number", "reading", "seedvalue"} <= heads
    assert links <= heads


def test_the_attributes_of_a_docstring_are_in_the_list(template_page):
    section = template_page.partition("\n### Estimate\n")[2].partition("\n### ")[0]
    assert "`n`: whole number." in section
    assert "`of`, computed:" in section
    assert not re.search(r"(?m)^(Attributes|Args):", template_page)


def test_our_own_filters_are_listed_with_where_they_are(template_page):
    for name, function in environment("audit_table.tex.j2").filters.items():
        if function.__module__.startswith("fa_registry"):
            assert f"| `{name}` | " in template_page
    assert all(name in template_page for name in ("| `num` |", "| `fence` |", "`*.md.j2`"))


def test_what_a_sandboxed_template_has_is_what_the_page_says(template_page, tmp_path):
    filters = environment("index.html.j2", tmp_path).filters
    for name, function in filters.items():
        assert not function.__module__.startswith("fa_registry") or f"`{name}`" in template_page
    assert all(f"`{name}`" in template_page and name not in filters for name in FORBIDDEN_FILTERS)
