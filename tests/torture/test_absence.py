"""The short form of tests/torture/absence.py: the server of a study is killed once while it trains."""

from __future__ import annotations

import pytest

from tests.torture.absence import absence


@pytest.mark.long
def test_a_server_that_is_killed_while_a_study_trains_loses_no_run_and_no_point(tmp_path):
    assert absence(tmp_path, kills=1) == (1, 0, "")
