"""The templates that `list` names are those that a user may replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_registry.errors import UnknownName
from fa_registry.reporting.render import overridable
from fa_registry.workflows.looking import members


def test_templates_are_listed_with_their_line_and_file():
    rows = {row["name"]: row for row in members("templates")}
    assert list(rows) == overridable() and "note.md.j2" not in rows
    assert rows["index.html.j2"]["line"] == "the whole audit on one page."
    assert rows["macros.html.j2"]["line"] == "taken in by pages."
    assert all(Path(row["file"]).is_file() for row in rows.values())


def test_an_unknown_family_is_told_which_there_are():
    with pytest.raises(UnknownName, match=r"'template' \(did you mean 'templates'\?\)"):
        members("template")
