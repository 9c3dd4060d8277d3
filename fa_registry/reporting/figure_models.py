"""The records of the figures that the templates receive as variables."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.reporting.view_models import Number, Row


@dataclass(frozen=True)
class Picture:
    """A figure of a metric by epoch.

    Attributes:
        alt: Alternative text.
        uri: The SVG as a data URI.
        epochs: The epochs in the table of numbers.
        rows: For each run, the tuple (method, seed, one number per epoch in `epochs`); empty if the page has no space for a table.
        drawn: The figure as bytes, as it is stored in the folder figures/ (figures.canvas.RenderedFigure).
    """

    title: str
    alt: str
    caption: str
    uri: str
    epochs: tuple[int, ...]
    rows: tuple[tuple[str, int, tuple[Number, ...]], ...]
    drawn: bytes = b""


@dataclass(frozen=True)
class FigurePanel:
    """A figure that does not show a metric by epoch.

    Attributes:
        alt: Alternative text.
        uri: The SVG as a data URI.
        table: Title of the table of numbers. If the table contains only a part of the numbers, the title names this part.
        columns: Headings of the columns of the table.
        groups: Rows of the table; empty if the page has no space for a table.
        drawn: The figure as bytes, as it is stored in the folder figures/ (figures.canvas.RenderedFigure).
    """

    title: str
    alt: str
    caption: str
    uri: str
    table: str
    columns: tuple[str, ...]
    groups: tuple[Row[Number], ...]
    drawn: bytes = b""


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
    """

    title: str
    caption: str
    methods: tuple[str, ...]
    seeds: tuple[str, ...]
    panels: tuple[LayerPanel, ...]


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
        pictures: Figures of metrics by epoch.
        `plates`: Other figures.
        map: The map by site and epoch; None if no run was measured by site and epoch, or the page had no space for the map.
        heat_maps: The heat maps of the means over seeds. The page shows only their tables, because the map has the same numbers.
        full: False if the page had no space for all figures.
        layers: On the comparison page, the tuple ((data URI, alternative text),) of the figure by site; empty if no site was
            measured.
    """

    setting: str
    pictures: tuple[Picture, ...]
    plates: tuple[FigurePanel, ...] = ()
    map: LayerMap | None = None
    heat_maps: tuple[FigurePanel, ...] = ()
    full: bool = True
    layers: tuple[tuple[str, str], ...] = ()
