"""Only runs that count in the verdict are candidates for a whole replay."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from fa_registry.evidence import replay_choice
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.replay_choice import chosen_runs, further_runs
from fa_registry.records import Integrity, RunRecord
from tests.builders import frozen, record

NONCES = [f"{number:x}" for number in range(40)]
MISMATCH = Integrity("mismatch", ("final weights differ",))
# Oldest first: three honest repetitions of each seed, then one forged run of it; and a control that was trained twice.
HONEST = [record(f"honest-{seed}-{copy}", seed=seed) for seed in (1, 2, 3) for copy in (1, 2, 3)]
FORGED = [record(f"forged-{seed}", seed=seed) for seed in (1, 2, 3)]
CONTROLS = [frozen(f"control-{seed}-{copy}", seed=seed) for seed in (1, 2, 3) for copy in (1, 2)]
DILUTED = [*HONEST, *FORGED, *CONTROLS]
COUNTED_CONTROLS = {f"control-{seed}-2" for seed in (1, 2, 3)}


def changed(records: list[RunRecord], start: str, **changes) -> list[RunRecord]:
    """The records, with these changes of each one whose id has this start."""
    return [dataclasses.replace(one, **changes) if one.run_id.startswith(start) else one for one in records]


@pytest.fixture
def choose(monkeypatch):
    """choose(records, nonce, replay): the choice of an audit before it recomputes anything."""

    def chosen(records: list[RunRecord], nonce: str, replay: str = "auto") -> set[str]:
        specs = {one.run_id: one.spec for one in records}
        monkeypatch.setattr(replay_choice, "_spec", lambda tracker, run: specs[run.run_id])
        runs = [SimpleNamespace(run_id=one.run_id) for one in records]
        return set(chosen_runs(None, runs, RemeasureOptions(nonce=nonce, replay=replay)))

    return chosen


def test_a_superseded_run_is_never_chosen(choose):
    choices = [choose(DILUTED, nonce) for nonce in NONCES]
    assert all(len(choice) == 4 and choice >= COUNTED_CONTROLS for choice in choices)
    assert {*map(lambda choice: (choice - COUNTED_CONTROLS).pop(), choices)} == {one.run_id for one in FORGED}


def test_all_replays_every_run_and_a_number_of_steps_none(choose):
    assert choose(DILUTED, "0", "all") == {one.run_id for one in DILUTED}
    assert choose(DILUTED, "0", "8") == set()


def test_an_adopted_run_and_one_of_an_own_loop_are_no_candidates(choose):
    others = [record("adopted", weights="a" * 64), record("tracked", architecture_options={"structure": "x"})]
    assert choose(others, "0") == set()


@pytest.mark.parametrize("nonce", NONCES[:10])
@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param(DILUTED, set(), id="the chosen run counts"),
        pytest.param(changed(DILUTED, "forged", integrity=MISMATCH), {"honest"}, id="every newest run is a mismatch"),
        pytest.param(changed(DILUTED, "forged", status="diverged"), {"honest"}, id="every newest run diverged"),
        pytest.param(changed(DILUTED, "control-2-2", integrity=MISMATCH), {"control-2-1"}, id="a control"),
        pytest.param(changed(changed(DILUTED, "f", integrity=MISMATCH), "h", integrity=MISMATCH), set(), id="none"),
    ],
)
def test_where_a_chosen_run_does_not_count_one_that_counts_is_chosen(choose, records, expected, nonce):
    first = choose(records, nonce)
    further = further_runs(records, RemeasureOptions(nonce=nonce, whole=frozenset(first)))
    assert len(further) == len(expected) and all(one.startswith(start) for one in further for start in expected)
    assert not further or all(not one.startswith("honest") or one.endswith("-3") for one in further)
    again = further_runs(records, RemeasureOptions(nonce=nonce, whole=frozenset(first) | further))
    assert again == frozenset()


@pytest.mark.parametrize("options", [{"trust_logged": True}, {"replay": "8"}, {"replay": "off"}, {"replay": "all"}])
def test_nothing_further_is_replayed_where_nothing_is_drawn(options):
    assert further_runs(DILUTED, RemeasureOptions(nonce="0", whole=frozenset(), **options)) == frozenset()
