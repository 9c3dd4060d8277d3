"""Pages without their pictures: making those is most of the time that a page takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from matplotlib.figure import Figure

from fa_registry.reporting.figures import accuracy_dots, gamma_null, heat_maps, page
from fa_registry.reporting.figures.canvas import RenderedFigure
from fa_registry.reporting.pages import analyses

# Where a page's pictures are made.
PICTURES = (
    (accuracy_dots, "draw"),
    (gamma_null, "draw"),
    (heat_maps, "draw"),
    (page, "trajectory_figure"),
    (analyses, "analysis_figure"),
)


class Blank(RenderedFigure):
    """A synthetic picture: no pixels, and a word for paper."""

    def saved(self, kind: str) -> bytes:
        return b"blank"


@cache
def blank() -> Blank:
    return Blank(b"", Figure())


@contextmanager
def blank_pictures() -> Iterator[pytest.MonkeyPatch]:
    """Inside, every picture of a page stays blank, until the patch that is handed out is undone."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in PICTURES:
            patch.setattr(module, name, lambda *arguments: blank())
        yield patch
