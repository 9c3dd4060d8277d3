"""Figures of metrics by epoch, and the numbers in these figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from fa_registry.metrics import (
    GEOMETRIC,
    REFERENCE_BATCH,
    SUBJECTS,
    Headline,
    Metric,
    headlines_of,
    label_of,
    metric_named,
    symbol_of,
)
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.paired_runs import common_bigram, common_chance
from fa_registry.records import Reading, RunAudit
from fa_registry.reporting.figures.canvas import (
    BIGRAM_LOOK,
    CHANCE_LOOK,
    CONTROL,
    LIMIT_LOOK,
    NARROW,
    WIDTH,
    Canvas,
    RenderedFigure,
    bigram_keys,
    chance_keys,
    key,
    padded,
    tick_text,
    ticks,
    whole_ticks,
)
from fa_registry.reporting.labels import group_label, short_names
from fa_registry.reporting.report_values import scalar_metric
from fa_registry.reporting.text.filters import compact
from fa_registry.reporting.view_models import Number, Row

HEIGHTS = {WIDTH: 3.2, NARROW: 2.1}  # width of a figure → its height
LEFT, RIGHT, ENTRY = 0.725, 0.075, 1.25  # inches to the left and right of the axes; of an entry of the legend
LEGEND_LETTERS, LEAST_HEIGHT = 17, 0.65  # characters of a name; smallest height of the axes as a share of the figure
MOST = 308  # decades in the range of a double


def trajectory_figure(
    panel: Panel, groups: Sequence[Group], shades: Mapping[str, tuple[str, object]], width: float = WIDTH
) -> RenderedFigure:
    """Draw one metric by epoch for the runs of one setting; `curves` returns the numbers of this figure.

    Call this function inside the context `styled`. The argument `shades` is the result of `style.colours`.
    """
    lines = curves(panel, groups)
    rule = panel_limit(panel, groups)
    band = frozen_range(groups, panel.quantity) if panel.is_headline else None
    canvas = Canvas(width, HEIGHTS[width])
    axes = canvas.figure.add_subplot()
    styles = {method: shades[method] for method, _ in lines}
    for method, style in styles.items():
        _runs(axes, [heights(panel, values) for name, values in lines if name == method], *style)
    runs = [run.record for group in groups for run in group.runs] if panel.is_headline else []
    chance, bigram = common_chance(runs), common_bigram(runs)
    levels = [*(rule or ())[1:], *(band or ()), chance, bigram]
    if rule:
        axes.axhline(heights(panel, rule[1]), **LIMIT_LOOK, zorder=3)
    if band:  # the level that trained blocks have to exceed
        axes.axhspan(*band, color=CONTROL, alpha=0.22, linewidth=0, zorder=1)
        axes.axhline(sum(band) / 2, color=CONTROL, linewidth=0.8, zorder=1)
    for level, look in ((chance, CHANCE_LOOK), (bigram, BIGRAM_LOOK)):
        if not math.isnan(level):
            axes.axhline(level, **look, zorder=1)
    _scale(axes, panel, [values for _, values in lines], levels, width)
    _legend(canvas, axes, [*_handles(styles, rule, band), *chance_keys(chance), *bigram_keys(bigram)])
    return canvas.rendered()


def _runs(axes: Axes, runs: Sequence[np.ndarray], colour: str, dash: object) -> None:
    """Draw a thin line per run; a cross marks the epoch before a non-finite value."""
    run_points = [np.column_stack([np.arange(len(run)), run]) for run in runs]  # (epochs, 2) each
    lines = LineCollection(run_points, colors=colour, linestyles=[dash], linewidths=1.2, alpha=0.9)
    axes.add_collection(lines, autolim=False)
    broken = [points[np.isfinite(points[:, 1])] for points in run_points if not np.isfinite(points[-1, 1])]
    ends = np.array([finite[-1] for finite in broken if len(finite)])  # (crosses, 2)
    if len(ends):
        axes.plot(*ends.T, "X", color=colour, markersize=6.5, mec="white", mew=0.6, zorder=4)


def _scale(axes: Axes, panel: Panel, lines: Sequence[np.ndarray], levels: Sequence[float], width: float) -> None:
    """Set limits and ticks of both axes; positions on a logarithmic y axis are decimal logarithms."""
    last = max((len(values) - 1 for values in lines), default=0)
    margin = 0.02 * max(last, 1)
    tick_epochs = whole_ticks(last, 8)
    axes.set_xticks(tick_epochs, map(str, tick_epochs))
    axes.set_xlim(-margin, max(last, 1) + margin)
    axes.set_xlabel("epoch (0 = initialisation)")
    positions = heights(panel, np.concatenate([*lines, levels]))
    positions = positions[np.isfinite(positions)]  # a limit of 0 has no position on a logarithmic axis
    min_span = 1.0 if panel.log else 0.02  # so that the axis always has ticks
    low, high = padded(positions if positions.size else (0.0, 1.0), min_span, share=0.05)
    labelled_ticks = _ticks(panel, low, high)
    axes.set_yticks([tick for tick, _ in labelled_ticks], [name for _, name in labelled_ticks])
    axes.set_ylim(low, high)
    if width == WIDTH:  # the caption of a small figure names the metric; formulas take a third of the drawing time
        axes.set_ylabel(panel.label, parse_math=not panel.is_headline)
        # Fixed label positions avoid measuring the tick labels, which takes longer than drawing them.
        axes.yaxis.set_label_coords(-0.525 / (width - LEFT - RIGHT), 0.5)


def _legend(canvas: Canvas, axes: Axes, handles: Sequence[Artist]) -> None:
    columns = int(canvas.width / ENTRY)
    rows = max(1, math.ceil(len(handles) / columns))
    legend, lower = 0.1 + 0.165 * rows, 0.46  # inches above and below the axes
    left = LEFT if canvas.width == WIDTH else LEFT - 0.22
    height = max(canvas.height, legend + lower + LEAST_HEIGHT * canvas.height)
    canvas.resize(height)
    canvas.place(left, RIGHT, lower, legend + 0.015 * height)
    axes.xaxis.set_label_coords(0.5, -0.315 / (0.985 * height - legend - lower))
    canvas.figure.legend(
        handles=handles,
        loc="upper left",
        ncols=columns,
        fontsize=7.5 if rows > 2 else 8.0,
        handlelength=1.7 if rows > 2 else 2.0,
        columnspacing=0.9,
    )


def _handles(
    styles: Mapping[str, tuple[str, object]], rule: tuple[str, float] | None, band: tuple[float, float] | None
) -> list[Artist]:
    names = short_names(list(styles), LEGEND_LETTERS)
    handles = [
        key(name, color=colour, linestyle=dash, linewidth=1.8)
        for name, (colour, dash) in zip(names, styles.values(), strict=True)
    ]
    if rule:
        handles.append(key(f"{rule[0]} limit, {compact(rule[1])}", **LIMIT_LOOK))
    if band:
        handles.append(key("frozen control, final", color=CONTROL, alpha=0.35, linewidth=6))
    return handles


def _ticks(panel: Panel, low: float, high: float) -> list[tuple[float, str]]:
    """Return the tuple (position, label) of each tick of the y axis.

    A linear axis has round percentages. A logarithmic axis has at most seven powers of ten. If a logarithmic axis spans at most two
    decades, it also has ticks at 2 times and 5 times each power of ten.
    """
    if not panel.log:
        return [(tick, tick_text(tick, panel.kind == "pct")) for tick in ticks(low, high, 6)]
    step = max(1, math.ceil((high - low) / 6))
    factors = (1, 2, 5) if high - low <= 2 else (1,)
    powers = (power for power in range(math.floor(low), math.ceil(high) + 1) if power % step == 0)
    candidates = ((power + math.log10(factor), factor, power) for power in powers for factor in factors)
    return [
        (position, compact(float(f"{factor}e{power}")))
        for position, factor, power in candidates
        if low <= position <= min(high, MOST)
    ]


REFERENCE = "Reference gradient"
SHOWN_EPOCHS = 6  # epochs in the table of a page; audit.json contains all epochs


@dataclass(frozen=True)
class Panel:
    """One figure of a metric.

    Attributes:
        axis: Description of the metric.
        label: Axis label, which may contain formulas of matplotlib's parser.
        judged: (metric, factor) of each metric whose limit is drawn in this figure; the limit is multiplied by the factor.
        is_headline: Whether the metric is a main metric, whose label has no formula and whose figure shows controls and chance.
    """

    metric: Metric
    title: str
    axis: str
    label: str
    judged: tuple[tuple[str, float], ...] = ()
    is_headline: bool = False

    @classmethod
    def of(cls, headline: Headline) -> Panel:
        """Return the figure of a main metric."""
        return cls(headline.metric, headline.metric.title, headline.axis, headline.axis_label, is_headline=True)

    @classmethod
    def named(cls, name: str, judged: tuple[tuple[str, float], ...] = (), **texts: str) -> Panel:
        """Return the figure of a built-in metric with the texts of its declaration, except those in `texts`."""
        metric = metric_named(name)
        return cls(
            metric, **{"title": metric.title, "axis": metric.words, "label": metric.words} | texts, judged=judged
        )

    @property
    def quantity(self) -> str:
        """Key of the metric's values by epoch in the record of a run."""
        return self.metric.name

    @property
    def kind(self) -> str:
        """Number format of the metric."""
        return self.metric.kind

    @property
    def log(self) -> bool:
        """Whether the axis is logarithmic, as for each metric with a geometric mean."""
        return self.metric.mean == GEOMETRIC and not self.is_headline


GROWTH_LIMIT = (("growth", 1.0),)
PANELS = (
    Panel.named(
        "h_L", title="Scale of the stream", axis=f"median {symbol_of('h_L')}", label=r"median $\Vert h_L \Vert_2$"
    ),
    Panel.named(
        "growth_max",
        GROWTH_LIMIT,
        title=f"{metric_named('growth_max').title} per block",
        axis=f"max over l of {metric_named('growth').words}",
        label=r"$\max_l\ \Vert h_l \Vert / \Vert h_{l-1} \Vert$",
    ),
    Panel.named(
        "growth_init_max",
        (("growth_init", 1.0),),
        axis=f"max over l of {metric_named('growth_init').words}",
        label=r"$\max_l\ \Vert h_l \Vert / \Vert h_l^{(0)} \Vert$",
    ),
    Panel.named(
        "g_norm_mean_ce_L",
        (("g_norm_mean_ce", 1.0), ("g_norm", 1 / REFERENCE_BATCH)),
        title=REFERENCE,
        axis=label_of("g_norm_mean_ce_L"),
        label=r"$\Vert g_L \Vert_2$ of the mean CE",
    ),
)


def panels(groups: Sequence[Group]) -> tuple[Panel, ...]:
    """Return the figures whose metrics these runs have recorded."""
    recorded = {name for group in groups for run in group.runs for name, row in run.record.trajectory.items() if row}
    headlines = headlines_of(run.record for group in groups for run in group.runs)
    return tuple(panel for panel in (*PANELS, *map(Panel.of, headlines)) if panel.quantity in recorded)


def curves(panel: Panel, groups: Sequence[Group]) -> list[tuple[str, np.ndarray]]:
    """Return (method, values by epoch) of every run, in the unit of the panel's axis.

    A missing value is NaN.
    """
    return [
        (group_label(group), np.array([entry if isinstance(entry, float) else np.nan for entry in row.__json__()]))
        for group in groups
        for run in group.runs
        if (row := run.record.trajectory.get(panel.quantity))
    ]


def heights(panel: Panel, values: np.ndarray | float) -> np.ndarray:
    """Return the positions of the values on the panel's axis.

    On a logarithmic axis, a position is the decimal logarithm, or NaN if the value is not positive.
    """
    numbers = np.asarray(values, dtype=float)
    return np.log10(np.where(numbers > 0, numbers, np.nan)) if panel.log else numbers


def frozen_range(groups: Sequence[Group], headline: str) -> tuple[float, float] | None:
    """Return the smallest and largest final main metric of the frozen controls.

    Return None if no frozen control has a value.
    """
    frozen = (run.record for group in groups for run in group.runs if run.record.spec.control == "frozen")
    values = [value for record in frozen if (value := scalar_metric(record, headline).value) is not None]
    return (min(values), max(values)) if values else None


def limit(quantity: str, groups: Sequence[Group]) -> tuple[str, float] | None:
    """Return (rule, threshold) of the first rule that judges a metric, or None.

    First, search for a finding whose main metric is this metric. If there is no such finding, search for a rule of scale stability
    that judges this metric as its second metric. Growth since initialisation, for example, is a second metric.
    """
    findings = [finding for group in groups for run in group.runs for finding in run.findings if quantity]
    judging = (finding for finding in findings if finding.quantity == quantity and finding.threshold is not None)
    second = ((finding, condition) for finding in findings for condition in finding.further)
    further = (
        (finding.rule, condition.threshold)
        for finding, condition in second
        if condition.quantity == quantity and finding.quantity in SUBJECTS["scale"]
    )
    return next(((finding.rule, finding.threshold) for finding in judging), None) or next(further, None)


def panel_limit(panel: Panel, groups: Sequence[Group]) -> tuple[str, float] | None:
    """Return (rule, threshold) of the rule that judges the panel's metric, or None.

    The threshold is in the unit of the panel's axis.
    """
    limits = ((limit(quantity, groups), factor) for quantity, factor in panel.judged)
    return next(((rule_limit[0], rule_limit[1] * factor) for rule_limit, factor in limits if rule_limit), None)


def table_epochs(last: int) -> tuple[int, ...]:
    """Return at most SHOWN_EPOCHS evenly distributed epochs from 0 to `last`, both included."""
    steps = min(last, SHOWN_EPOCHS - 1)
    return tuple(dict.fromkeys(round(index * last / steps) for index in range(steps + 1))) if steps else (0,)


def table_rows(panel: Panel, groups: Sequence[Group], epochs: Sequence[int]) -> Iterator[Row[Number]]:
    """Yield one group of rows per method, with one row per seed and one number per epoch."""
    for group in groups:
        runs = [run for run in group.runs if run.record.trajectory.get(panel.quantity)]
        rows = (
            Row(
                str(run.record.spec.seed),
                tuple(_at(panel, run, epoch) for epoch in epochs),
                run_ids=(run.record.run_id,),
            )
            for run in runs
        )
        if runs:
            yield Row(group_label(group), rows=tuple(rows))


def _at(panel: Panel, run: RunAudit, epoch: int) -> Number:
    row = run.record.trajectory[panel.quantity]
    reading = row[epoch] if epoch < len(row) else Reading(None, "the run ended before this epoch")
    return Number(reading, panel.kind, (run.record.run_id,))
