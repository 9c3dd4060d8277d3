"""The records of the figures that the templates receive as variables."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.reporting.figures.canvas import RenderedFigure
from fa_registry.reporting.view_models import Number, Row


@dataclass(frozen=True)
class PageFigure:
    """A figure of a page, with the table of its numbers.

    Attributes:
        alt: Alternative text.
        drawn: The figure as a PNG; it also gives the files of the folder figures/.
        table: Title of the table of numbers. If the table contains only a part of the numbers, the title names this part.
        line: Heading of the second column of the table, such as Site; empty if a group has only one row.
        columns: Headings of the columns of numbers.
        groups: Rows of the table, one group per method; empty if the page shows no table.
    """

    title: str
    alt: str
    caption: str
    drawn: RenderedFigure
    table: str = ""
    line: str = ""
    columns: tuple[str, ...] = ()
    groups: tuple[Row[Number], ...] = ()


@dataclass(frozen=True, slots=True)
class MapCell:
    """A rectangle of a map: left column, top row, numbers of columns and rows, colour, title."""

    x: int
    y: int
    width: int
    height: int
    fill: str
    title: str


@dataclass(frozen=True)
class LayerPanel:
    """The part of a map that shows one metric.

    Attributes:
        alt: Alternative text.
        epochs: The epoch of each column.
        sites: The site of each row; the last site is at the top.
        methods: For each method and each choice of the map's seeds, the cells.
        colours: For each colour of the colour bar, the tuple (left edge, width, colour).
        ticks: For each tick of the colour bar, the tuple (position, text).
    """

    title: str
    alt: str
    epochs: tuple[int, ...]
    sites: tuple[int, ...]
    methods: tuple[tuple[tuple[MapCell, ...], ...], ...]
    colours: tuple[tuple[int, int, str], ...]
    ticks: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class LayerMap:
    """A map of metrics by site and epoch, in which the reader chooses the method and the seed.

    Attributes:
        seeds: The choices of seeds; the first is the mean over seeds.
        opened: Place of the method that is chosen when the page opens, the one with the worst verdict.
    """

    title: str
    caption: str
    methods: tuple[str, ...]
    seeds: tuple[str, ...]
    panels: tuple[LayerPanel, ...]
    opened: int = 0


@dataclass(frozen=True)
class FigureFile:
    """A figure in files next to the pages; `name` is their path without suffix."""

    title: str
    setting: str
    name: str


@dataclass(frozen=True)
class SettingFigures:
    """The figures of one setting.

    Attributes:
        map: The map by site and epoch; None if no run was measured by site and epoch, or the map has too many cells.
        heat_maps: The heat maps of the means over seeds. Next to a map, the page shows only their tables.
        layers: On the comparison page, the figure by site; None if no site was measured.
    """

    setting: str
    figures: tuple[PageFigure, ...]
    map: LayerMap | None = None
    heat_maps: tuple[PageFigure, ...] = ()
    layers: PageFigure | None = None

    @property
    def drawn(self) -> tuple[PageFigure, ...]:
        """The figures that the page shows: without a map, also the heat maps."""
        return self.figures if self.map else (*self.figures, *self.heat_maps)
