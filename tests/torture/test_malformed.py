"""A few malformed inputs for every reader; `make torture` tries a hundred thousand."""

from __future__ import annotations

import random

from tests.torture.malformed import torture


def test_what_is_malformed_is_read_or_refused_in_a_sentence(tmp_path):
    seed = random.randrange(2**32)
    tallies = torture(tmp_path, 400, seed)
    assert all(tally.refused for tally in tallies.values())
    uncaught = {name: tally.uncaught for name, tally in tallies.items() if tally.uncaught}
    assert not uncaught, f"seed {seed}"
