"""The closed set of ways to take one number out of a run's measurements, and the name of the same number by epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fa_registry.records import Measurements, Reading

LEAST_NORM = 1e-12  # protocol.md §1 keeps growth from dividing by zero in the same way
SiteReading = tuple[Reading, int | None]  # the reading, and the site it was read at


def take(quantity: str, how: str, measurements: Measurements) -> SiteReading:
    """The reading that `how` finds of a quantity, in the quantity's own unit, and its site 0..L; N/A where it was not measured.

    how: a name of NAMES; an edition that asks for another is refused when it is read. The site is None of a scalar, and where
    nothing was measured.
    """
    absent = Reading(None, f"{quantity} was not measured")
    if how == "scalar":
        return measurements.scalars.get(quantity, absent), None
    row = measurements.sites.get(quantity, ())
    return TAKES[how](row) if row else (absent, None)


def trajectory(quantity: str, how: str) -> str:
    """Under which headline of RunRecord.trajectory the same number stands by epoch; empty where there is none."""
    name = TRAJECTORIES.get(how, "").format(quantity)
    return HEADLINES.get(name, name)


def last_site(row: Sequence[Reading]) -> SiteReading:
    """The reading at site L, whatever it is: one without a value stays without."""
    return row[-1], len(row) - 1


def max_over_sites(row: Sequence[Reading]) -> SiteReading:
    """The largest; a site that is not finite before any other. A site without a value (growth at site 0) is passed over."""
    broken = [site for site, reading in enumerate(row) if reading.not_finite]
    known = [site for site, reading in enumerate(row) if reading.value is not None]
    if broken:
        return row[broken[0]], broken[0]
    site = max(known, key=lambda index: row[index].value, default=len(row) - 1)
    return row[site], site


def max_relative_to_first(row: Sequence[Reading]) -> SiteReading:
    """The largest by the first one's size, a ratio: how far the stream has grown since the embedding. Every site has to be known.

    Not the growth from block to block, whose maximum can be small in a stream that grows steadily
    (tests/protocol/test_rules.py holds the two apart). Source: the release before arXiv 2606.21126.
    """
    largest, site = max_over_sites(row)
    for place, reading in ((site, largest), *enumerate(row)):
        if reading.value is None:
            return reading, place
    return Reading.of(largest.value / max(row[0].value, LEAST_NORM)), site


def end_share(row: Sequence[Reading]) -> SiteReading:
    """By how much of itself the mean over the sites changes when the first or the last of them is left out: the larger, 0 to ∞.

    A change of sign is a change by more than the whole. The site is the end that carries the mean. "First" and "last" are of
    the sites with a value, which need not be 0 and L. The paper's fa and dfa: .996 at site 3, 1.005 at site 0, numbered from
    their first block (tests/protocol/test_takes.py).
    """
    known = [(site, reading.value) for site, reading in enumerate(row) if reading.value is not None]
    if len(known) < 2:
        return Reading(None, f"{len(known)} sites with a value: no end can be left out"), None
    values = [value for _, value in known]
    mean = sum(values) / len(values)
    shares = []
    for site, rest in ((known[0][0], values[1:]), (known[-1][0], values[:-1])):
        change = abs(sum(rest) / len(rest) - mean)
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
HEADLINES = {"h_norm_L": "h_L"}  # logged under a shorter name than the others
