"""Comparison operators, and reductions of a metric to one number, that an edition may use.

The rules of an edition are data and cannot add operators or reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fa_registry.records import Measurements, Reading


@dataclass(frozen=True)
class LimitCheck:
    """Result of a comparison with a limit. If it has no result, `fires` is None, and `reason` says why."""

    fires: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Operator:
    """Comparison of a metric with a limit.

    `compare` is a function of the observed reading, the threshold and the reference. `describe` is a text template for the
    requirement, such as `at least {threshold:g} pp above the frozen control`.
    """

    compare: Callable[[Reading, float, Reading | None], LimitCheck]
    describe: str
    needs_reference: bool = False


def above(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed > threshold.

    Both values are in the unit of the metric. Without an observed value, the result is None. The operator fires if the value is
    not finite.
    """
    if observed.not_finite:  # inf and nan count as above every limit
        return LimitCheck(True)
    if observed.value is None:
        return LimitCheck(None, observed.reason)
    return LimitCheck(observed.value > threshold)


def below(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed < threshold.

    Both values are in the unit of the metric. Without an observed value, the result is None. A value that is not finite
    is treated as missing, because a run that explodes has not collapsed (tests/protocol/test_engine.py).
    """
    if observed.value is None:
        return LimitCheck(None, observed.reason)
    return LimitCheck(observed.value < threshold)


def below_reference_plus(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if observed − reference < threshold.

    Observed value and reference are fractions 0..1; the threshold is in percentage points. If one of the values is missing, the
    result is None. Source: D3 of arXiv 2606.21126.
    """
    if observed.value is None or reference is None or reference.value is None:
        missing = observed if observed.value is None else reference
        return LimitCheck(None, missing.reason if missing else "no frozen control of the same setting and seed")
    return LimitCheck(margin_pp(observed.value, reference.value) < threshold)


def above_reference_minus(observed: Reading, threshold: float, reference: Reading | None = None) -> LimitCheck:
    """Fire if reference − observed < threshold, for metrics such as a loss, where a lower value is better.

    All three values are in the unit of the metric. If observed value or reference are missing, the result is None.
    """
    if observed.value is None or reference is None or reference.value is None:
        missing = observed if observed.value is None else reference
        return LimitCheck(None, missing.reason if missing else "no frozen control of the same setting and seed")
    from fa_registry.metrics import TOKEN_LOSS  # imports numpy, which --help does not need

    return LimitCheck(TOKEN_LOSS.difference(observed.value, reference.value) < threshold)


def margin_pp(accuracy: float, reference: float) -> float:
    """Return accuracy − reference in percentage points; both arguments are fractions."""
    from fa_registry.metrics import ACCURACY  # imports numpy, which --help does not need

    return ACCURACY.difference(accuracy, reference)


OPERATORS: dict[str, Operator] = {
    "above": Operator(above, "at most {threshold:g}"),
    "below": Operator(below, "at least {threshold:g}"),
    "below_reference_plus": Operator(
        below_reference_plus, "at least {threshold:g} pp above the frozen control", needs_reference=True
    ),
    "above_reference_minus": Operator(
        above_reference_minus, "at least {threshold:g} nats below the frozen control", needs_reference=True
    ),
}


LEAST_NORM = 1e-12  # lower bound of a divisor, as for growth in protocol.md §1
SiteReading = tuple[Reading, int | None]  # the reading and its site


def take(metric: str, reduction: str, measurements: Measurements) -> SiteReading:
    """Reduce a metric of a run to one reading and its site 0..L. `reduction` is one of NAMES.

    The reading is in the unit of the metric, and N/A if the metric was not measured. The site is None for a scalar metric and for
    a metric that was not measured.
    """
    absent = Reading(None, f"{metric} was not measured")
    if reduction == "scalar":
        return measurements.scalars.get(metric, absent), None
    row = measurements.sites.get(metric, ())
    return TAKES[reduction](row) if row else (absent, None)


def trajectory(metric: str, reduction: str) -> str:
    """Return the key of a reduced metric in RunRecord.trajectory, or "" if it is not logged by epoch."""
    name = TRAJECTORIES.get(reduction, "").format(metric)
    return HEADLINES.get(name, name)


def last_site(row: Sequence[Reading]) -> SiteReading:
    """Return the reading at site L, even if it has no value."""
    return row[-1], len(row) - 1


def max_over_sites(row: Sequence[Reading]) -> SiteReading:
    """Return the largest reading, or the first reading that is not finite.

    Sites without a value are skipped.
    """
    non_finite_sites = [site for site, reading in enumerate(row) if reading.not_finite]
    sites_with_value = [site for site, reading in enumerate(row) if reading.value is not None]
    if non_finite_sites:
        return row[non_finite_sites[0]], non_finite_sites[0]
    site = max(sites_with_value, key=lambda index: row[index].value, default=len(row) - 1)
    return row[site], site


def max_relative_to_first(row: Sequence[Reading]) -> SiteReading:
    """Return the largest reading divided by the first reading.

    For the norm of the state, this is the growth since the embedding. Every site needs a value. The growth from block to block is
    another metric, whose maximum can be small although the norm grows steadily (tests/protocol/test_rules.py distinguishes the two
    metrics). Source: rule (a) of the first release of edition 2026-04, published before arXiv 2606.21126.
    """
    largest, site = max_over_sites(row)
    for reading_site, reading in ((site, largest), *enumerate(row)):
        if reading.value is None:
            return reading, reading_site
    return Reading.of(largest.value / max(row[0].value, LEAST_NORM)), site


def end_share(row: Sequence[Reading]) -> SiteReading:
    """Return the relative change of the mean if the first or last site is left out.

    The result, 0 to ∞, is the larger of the two changes, together with the site that was left out. If the mean changes its
    sign, the change is larger than 1. Only sites with a value are used, so the first and the last of these sites need not be 0 and
    L. For fa and dfa of the paper, the results are .996 at site 3 and 1.005 at site 0 (tests/protocol/test_reductions.py). The
    paper numbers sites from the first block.
    """
    site_values = [(site, reading.value) for site, reading in enumerate(row) if reading.value is not None]
    if len(site_values) < 2:
        return Reading(None, f"{len(site_values)} sites have a value; leaving out one site needs at least 2"), None
    values = [value for _, value in site_values]
    mean = sum(values) / len(values)
    shares = []
    for site, remaining_values in ((site_values[0][0], values[1:]), (site_values[-1][0], values[:-1])):
        change = abs(sum(remaining_values) / len(remaining_values) - mean)
        shares.append((change / abs(mean) if mean else float("inf") if change else 0.0, site))
    share, site = max(shares)
    return Reading.of(share), site


TAKES: dict[str, Callable[[Sequence[Reading]], SiteReading]] = {
    "end_share": end_share,
    "last_site": last_site,
    "max_over_sites": max_over_sites,
    "max_relative_to_first": max_relative_to_first,
}
NAMES = ("scalar", *TAKES)
TRAJECTORIES = {"scalar": "{}", "last_site": "{}_L", "max_over_sites": "{}_max"}
HEADLINES = {"h_norm_L": "h_L"}  # logged under a shorter name
