"""What a report reads of series.parquet: headlines of every epoch, sites of a few."""

from __future__ import annotations

import math

import pytest

from fa_registry import jsonio
from fa_registry.records import Measurements, Reading, SiteSeries
from fa_registry.tracking.schema import spread
from fa_registry.tracking.series import MOST_EPOCHS, read_series, write_series


def measured(epoch: int, sites: int = 3) -> Measurements:
    growth = (Reading(None, "site 0 has no block before it"), *(Reading(epoch + site) for site in range(sites - 1)))
    return Measurements({"growth": growth, "gamma": (Reading.of(math.inf),) * sites, "h_norm": growth}, {})


def test_every_site_is_read_at_evenly_spread_epochs(tmp_path):
    path = tmp_path / "series.parquet"
    write_series(path, [(epoch, measured(epoch)) for epoch in range(101)])
    found = read_series(path)[1]
    assert set(found) == {"growth", "gamma"}
    growth = found["growth"]
    assert len(growth.epochs) == MOST_EPOCHS and (growth.epochs[0], growth.epochs[-1]) == (0, 100)
    assert [reading.value for reading in growth.sites[2]] == [epoch + 1 for epoch in growth.epochs]
    assert growth.sites[0][3].reason == "site 0 has no block before it" and found["gamma"].sites[1][5].not_finite
    assert jsonio.decode(SiteSeries, jsonio.encode(growth)) == growth


def test_an_epoch_that_was_skipped_says_so(tmp_path):
    path = tmp_path / "series.parquet"
    write_series(path, [(0, measured(0)), (2, measured(2))])
    assert read_series(path)[1]["growth"].sites[1][1].reason == "not measured in this epoch"


def test_nothing_by_site_is_nothing(tmp_path):
    path = tmp_path / "series.parquet"
    write_series(path, [])
    assert read_series(path)[1] == {}
    write_series(path, [(0, Measurements({}, {"accuracy": Reading(0.5)}))])
    assert read_series(path)[1] == {}


@pytest.mark.parametrize(
    ("last", "most", "epochs"),
    [(-1, 5, ()), (0, 5, (0,)), (2, 5, (0, 1, 2)), (100, 3, (0, 50, 100)), (10, 4, (0, 3, 7, 10))],
)
def test_spread(last, most, epochs):
    assert spread(last, most) == epochs
