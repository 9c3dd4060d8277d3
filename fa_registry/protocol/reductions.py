"""Functions that reduce a metric of a run to one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fa_registry.records import Measurements, Reading

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
