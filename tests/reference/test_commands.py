"""The reference of the command line tells of every verb, option and example, and is as the code is."""

from __future__ import annotations

import click
import pytest

from fa_registry.cli import main
from fa_registry.reference.__main__ import DOCS
from fa_registry.reference.commands import commands_reference


@pytest.fixture(scope="module")
def page():
    return commands_reference()


def test_the_page_in_docs_is_not_stale(page):
    assert (DOCS / "reference-cli.md").read_text(encoding="utf-8") == page, (
        "write it again: python -m fa_registry.reference --write"
    )


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_verb_has_its_options_and_examples(page, name):
    section = page.split(f"\n## fa-registry {name}\n")[1].split("\n## ")[0]
    verb = main.commands[name]
    for parameter in verb.params:
        if isinstance(parameter, click.Option):
            assert f"`{parameter.opts[0]}" in section
    for example in verb.help.split("Examples:\n")[1].splitlines():
        assert f"    {example.strip()}\n" in section
    assert f"    fa-registry {name} [OPTIONS]" in section
    assert f"(#fa-registry-{name})" in page
