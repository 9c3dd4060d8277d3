"""README can be read in a few minutes."""

from __future__ import annotations

from tests.docs.pages import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 180
