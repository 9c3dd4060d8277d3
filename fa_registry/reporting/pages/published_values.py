"""The table that compares the published values of a study with the measured values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fa_registry.metrics import kind_of
from fa_registry.records import (
    REPRODUCTION_OUTCOMES,
    FigureVerdict,
    MeasuredFigure,
    PublishedFigure,
    Reading,
    Reproduction,
)
from fa_registry.reporting.text.filters import KINDS, compact, reading
from fa_registry.reporting.view_models import EntryValue

WORST_FIRST = ("differs", "not shown", "reproduced", "not comparable", "not at hand", "not measured")
TESTED = WORST_FIRST[:3]
SITES: Mapping[str, str] = MappingProxyType({"last": "site L", "mid": "site ⌊L/2⌋", "": ""})


def reproduction_table(
    reproduction: Reproduction | None, run_ids: Collection[str] | None = None
) -> ReproductionTable | None:
    """Return the table of published values. Values that differ are first.

    Args:
        reproduction: The comparison with the values in the study's reference.toml.
        run_ids: If given, the table contains only values that were compared with these runs.

    Returns:
        None if the study has no reference.toml.
    """
    if reproduction is None:
        return None
    selected_rows = [row for row in reproduction.rows if run_ids is None or set(row.run_ids) & set(run_ids)]
    ordered = sorted(selected_rows, key=lambda row: WORST_FIRST.index(row.outcome))
    return ReproductionTable(
        study=reproduction.reference,
        title=reproduction.title,
        digest=reproduction.digest,
        counts=counts(selected_rows),
        tested=tuple(_row(row) for row in ordered if row.outcome in TESTED),
        untested=tuple(_row(row) for row in ordered if row.outcome not in TESTED),
        remarks=reproduction.remarks,
    )


def counts(rows: Sequence[FigureVerdict]) -> tuple[tuple[str, int], ...]:
    """Return (outcome, number of published values) for every outcome, including zeros."""
    tally = Counter(row.outcome for row in rows)
    return tuple((outcome, tally[outcome]) for outcome in REPRODUCTION_OUTCOMES)


def _row(row: FigureVerdict) -> ReproductionRow:
    figure = row.figure
    factor = "" if figure.factor == 1 else f"measured values are multiplied by {figure.factor:g}"
    assumed = figure.setting.assumed if figure.setting else ""
    margin = f"the margin: {figure.margin.why}" if row.outcome in TESTED else ""
    return ReproductionRow(
        outcome=row.outcome,
        quantity=quantity_text(figure),
        method=figure.label,
        setting=setting_text(figure),
        published=published_text(figure),
        measured=measured_text(row),
        each=tuple(EntryValue(f"seed {run.seed}: {_of_run(figure, run)}", (run.run_id,)) for run in row.measured),
        reason=row.reason,
        source=figure.source,
        remarks=tuple(filter(None, (figure.remark, factor, assumed, margin))),
    )


def quantity_text(figure: PublishedFigure) -> str:
    """Return the metric with its site and epoch: `g_norm_mean_ce, site 4`, or `first fire of D1`."""
    if figure.rule:
        return f"first fire of {figure.rule}"
    site = SITES.get(figure.site, f"site {figure.site}")
    epoch = "" if figure.epoch is None else f"epoch {figure.epoch}"
    return ", ".join(part for part in (figure.quantity, site, epoch) if part)


def setting_text(figure: PublishedFigure) -> str:
    """Return architecture, options, data set and epochs of a published value.

    The text is empty if the value does not belong to one setting.
    """
    setting = figure.setting
    if setting is None:
        return ""
    options = ", ".join(f"{name}={value}" for name, value in setting.architecture_options.items())
    network = f"{setting.architecture} ({options})" if options else setting.architecture
    return f"{network} · {setting.dataset} · {setting.epochs} epochs"


def published_text(figure: PublishedFigure) -> str:
    """Return the published value as text.

    Examples: `61.5 % ± 0.4 % (3)`, `8, 11, 8`, `4×10⁸ to 5×10⁸`, `below 5`, `never`, `not at hand`.
    """
    if figure.not_at_hand:
        return "not at hand"
    published = figure.published

    def text(value: float) -> str:
        return KINDS["pct"](value) if kind_of(figure.quantity) == "pct" else compact(value)

    if published.never:
        return "never"
    if published.values:
        return ", ".join(map(text, published.values))
    if published.mean is not None:
        return f"{text(published.mean)} ± {text(published.std)} ({published.n})"
    if published.value is not None:
        return text(published.value)
    if published.low is not None:
        return f"{text(published.low)} to {text(published.high)}"
    return f"below {text(published.below)}" if published.below is not None else f"above {text(published.above)}"


def measured_text(row: FigureVerdict) -> str:
    """Return `mean ± standard deviation (runs)`, the list of epochs of first fire, or a dash without runs."""
    if not row.measured:
        return "—"
    if row.figure.rule:
        return ", ".join(_of_run(row.figure, run) for run in row.measured)
    mean = _shown(row.figure, row.mean)
    if row.mean.value is None:
        return mean
    spread = "" if row.std.value is None else f" ± {_shown(row.figure, row.std)}"
    return f"{mean}{spread} ({sum(run.reading.value is not None for run in row.measured)})"


def _of_run(figure: PublishedFigure, measured: MeasuredFigure) -> str:
    return "never" if measured.never else _shown(figure, measured.reading)


def _shown(figure: PublishedFigure, value: Reading) -> str:
    if figure.rule and value.value is not None:
        return f"{value.value:.0f}"
    return reading(value, "pct" if kind_of(figure.quantity) == "pct" else "num")


@dataclass(frozen=True)
class ReproductionRow:
    """A published value and the measured value, as text.

    Attributes:
        each: One measured value per compared run.
    """

    outcome: str
    quantity: str
    method: str
    setting: str
    published: str
    measured: str
    each: tuple[EntryValue, ...]
    reason: str
    source: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class ReproductionTable:
    """The published values of a study.

    Attributes:
        digest: Digest of the file reference.toml that contains the published values.
        counts: For each outcome, the tuple (outcome, number of published values), including zeros.
        tested: Rows with a statistical test; values that differ are first.
        untested: The other rows.
    """

    study: str
    title: str
    digest: str
    counts: tuple[tuple[str, int], ...]
    tested: tuple[ReproductionRow, ...]
    untested: tuple[ReproductionRow, ...]
    remarks: tuple[str, ...]
