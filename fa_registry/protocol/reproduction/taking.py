"""One run's number for one published figure: looked up where the figure says, N/A with the reason where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fa_registry.protocol.first_fire import first_fire
from fa_registry.protocol.rules import Rule
from fa_registry.protocol.takes import take, trajectory
from fa_registry.records import Measured, PublishedFigure, Reading, RunRecord


def figure_of(figure: PublishedFigure, record: RunRecord, rule: Rule | None) -> Measured:
    """In the unit of the published figure. rule: of the published edition, for a first fire."""
    reading, never = _fire(rule, record) if rule else (_number(figure, record), False)
    if record.integrity.state == "mismatch":
        reading, never = Reading(None, "its logged figures do not come out again"), False
    return Measured(record.spec.seed, record.run_id, reading, never)


def _number(figure: PublishedFigure, record: RunRecord) -> Reading:
    reading = _at_epoch(figure, record) if figure.epoch is not None else _at_the_end(figure, record)
    return reading if reading.value is None else Reading.of(reading.value * figure.factor)


def _fire(rule: Rule, record: RunRecord) -> tuple[Reading, bool]:
    """The first epoch at which the rule fires, and whether it never does: only where every epoch has a number to say so."""
    line = record.trajectory.get(trajectory(rule.quantity, rule.take))
    if not line or record.spec.weights:
        return Reading(None, f"{rule.quantity} was not followed by epoch"), False
    epoch = first_fire(rule, record)
    unknown = [reading.reason for reading in line[:epoch] if reading.value is None]
    if unknown:
        return Reading(None, f"cannot be said of every epoch: {unknown[0]}"), False
    if epoch is None:
        return Reading(None, f"it never fires in {len(line) - 1} epochs"), True
    return Reading(float(epoch)), False


def _at_epoch(figure: PublishedFigure, record: RunRecord) -> Reading:
    name = trajectory(figure.quantity, "last_site" if figure.site == "last" else "scalar")
    line = record.trajectory.get(name, ())
    if figure.epoch >= len(line):
        return Reading(None, f"{figure.quantity} was not followed to epoch {figure.epoch}")
    return line[figure.epoch]


def _at_the_end(figure: PublishedFigure, record: RunRecord) -> Reading:
    if not figure.site:
        return take(figure.quantity, "scalar", record.measurements)[0]
    row = record.measurements.sites.get(figure.quantity, ())
    if not row:
        return Reading(None, f"{figure.quantity} was not measured")
    if figure.site == "deep":
        return _mean(row[1:])
    places = {"last": len(row) - 1, "mid": (len(row) - 1) // 2}
    site = places.get(figure.site)
    site = int(figure.site) if site is None else site
    return row[site] if site < len(row) else Reading(None, f"there is no site {site}: L = {len(row) - 1}")


def _mean(row: Sequence[Reading]) -> Reading:
    """N/A as soon as one site is: a mean over fewer would be another number."""
    absent = next((reading for reading in row if reading.value is None), None)
    if absent or not row:
        return absent or Reading(None, "there is no site but site 0")
    return Reading.of(math.fsum(reading.value for reading in row) / len(row))
