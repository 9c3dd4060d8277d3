"""The files of a run: fidelity at the epochs that are due, and at no other ones."""

from __future__ import annotations

from functools import cache

import pytest

from fa_registry.metrics import FIDELITY
from fa_registry.records import NOT_DUE
from fa_registry.tracking.integrity_checks import RecordedRun, _due
from fa_registry.tracking.series_parquet import read_rows, write_series
from tests.helpers.tiny_tasks import trained


@cache
def trained_run():
    return trained(method="bp", epochs=12)


@pytest.fixture
def rows(tmp_path):
    write_series(tmp_path / "series.parquet", [(row.epoch, row.measurements) for row in trained_run()[1].rows])
    return read_rows(tmp_path / "series.parquet")


def wrong(rows) -> list[str]:
    trainer, _, outcome = trained_run()
    return list(_due(RecordedRun(trainer.setup.spec, {}, {}, outcome.final, rows)))


def changed(rows, epoch: int, names, value, reason: str = "", kind: str = ""):
    return [(*row[:3], value, reason, kind) if row[0] == epoch and row[1] in names else row for row in rows]


def test_the_rows_of_an_honest_run_are_those_that_are_due(rows):
    assert {row[0] for row in rows if row[5] == NOT_DUE} == {*range(1, 10), 11} and wrong(rows) == []


@pytest.mark.parametrize(
    ("epoch", "names", "value"),
    [
        (10, FIDELITY, None),  # left out where a rule might not fire
        (10, ("fidelity_min",), None),
        (12, FIDELITY, None),
        (3, FIDELITY, 0.5),  # invented, so that D2 does not fire
        (3, ("gain",), None),  # another metric is due at every epoch
    ],
)
def test_fidelity_at_another_epoch_is_found(rows, epoch, names, value):
    reason, kind = ("", "") if value else ("not due at this epoch", NOT_DUE)
    (text,) = wrong(changed(rows, epoch, names, value, reason, kind))
    assert str(epoch) in text


def test_an_epoch_with_a_small_reference_is_due(rows):
    small = changed(rows, 3, ("g_norm_mean_ce",), 1e-8)
    (text,) = wrong(small)
    assert "3" in text and wrong(changed(small, 3, FIDELITY, 1.0)) == []
