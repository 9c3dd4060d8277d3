"""The command line as a whole: what every verb runs under."""

from __future__ import annotations

import gc

import pytest
from click.testing import CliRunner

from fa_registry.cli import NEW_OBJECTS_BETWEEN_COLLECTIONS, main


@pytest.fixture
def collector():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_verb_is_not_held_up_by_searches_for_cycles(collector):
    gc.set_threshold(700)
    assert CliRunner().invoke(main, ["diff", "none.json", "none.json"]).exit_code == 2
    assert gc.get_threshold()[0] == NEW_OBJECTS_BETWEEN_COLLECTIONS
