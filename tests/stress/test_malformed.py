"""A few malformed inputs for every reader, the same each time; `make stress` tries a hundred thousand others."""

from __future__ import annotations

from tests.stress.malformed import stress


def test_what_is_malformed_is_read_or_refused_in_a_sentence(tmp_path):
    tallies = stress(tmp_path, 400, seed=1)
    assert all(tally.tried for tally in tallies.values())
    refusing = {
        name: tally for name, tally in tallies.items() if name != "pages"
    }  # other values are no reason to refuse
    assert all(tally.refused for tally in refusing.values())
    assert {name: tally.uncaught for name, tally in tallies.items() if tally.uncaught} == {}
