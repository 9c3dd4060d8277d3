"""The short form of tests/stress/server_outage.py: the server of a study is killed once while it trains."""

from __future__ import annotations

import pytest

from tests.end_to_end.conftest import skipped
from tests.helpers.postgres import missing
from tests.stress.server_outage import of_postgresql, of_server


@pytest.mark.long
def test_a_server_that_is_killed_while_a_study_trains_loses_no_run_and_no_point(tmp_path):
    assert of_server(tmp_path, kills=1) == (1, 0, "")


@pytest.mark.long
def test_nor_does_a_database_that_goes_away_while_a_study_writes_to_it(tmp_path):
    if missing():
        skipped(missing())
    assert of_postgresql(tmp_path, kills=2) == (2, 0, "")
