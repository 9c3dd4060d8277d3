"""README tells of every method, and can be read in a few minutes."""

from __future__ import annotations

from fa_registry import methods
from tests.docs.pages import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_names_every_method():
    section = TEXT.split("## Every method")[1].split("\n## ")[0]
    listed = section.split("same suite: ")[1].split(".")[0].replace("\n", " ").split(", ")
    assert sorted(listed) == sorted(methods.CATALOG.names())


def test_it_is_short():
    assert len(TEXT.splitlines()) < 200
