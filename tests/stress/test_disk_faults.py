"""The short form of `make stress`'s faults: a write of each kind that fails in each command."""

from __future__ import annotations

import random

import pytest

from tests.commands.promotion import judged_study
from tests.helpers.stores import made_once
from tests.stress.disk_faults import COMMANDS, faults

SEED = 17


@pytest.mark.parametrize("command", COMMANDS)
def test_a_write_that_fails_is_a_sentence_and_the_command_repeated_ends_as_if_it_had_not(
    command, tmp_path_factory, undrawn, measured_once
):
    store = made_once(tmp_path_factory, "judged", judged_study)
    assert faults(command, store, random.Random(SEED), 1) == ([], [])
