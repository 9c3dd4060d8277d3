"""Which runs an audit replays completely: only runs that count, in the order of the nonce, within the reader's budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from fa_registry.evidence.exclusions import RemeasuredRun
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.replay_plan import (
    LEAST_SECONDS,
    TOLERANCE,
    asked_budget,
    budget_text,
    planned_replays,
    replay_remarks,
    report_replay,
    spent_seconds,
    unfitted_runs,
)
from fa_registry.evidence.replayer import ReplayResult
from fa_registry.records import Integrity, Reading, RunRecord
from fa_registry.tracking import schema
from tests.builders import frozen, record

NONCES = [f"{number:x}" for number in range(40)]
MISMATCH = Integrity("mismatch", ("final weights differ",))
# Oldest first: three honest repetitions of each seed, then one forged run of it; and a control that was trained twice.
HONEST = [record(f"honest-{seed}-{copy}", seed=seed) for seed in (1, 2, 3) for copy in (1, 2, 3)]
FORGED = [record(f"forged-{seed}", seed=seed) for seed in (1, 2, 3)]
CONTROLS = [frozen(f"control-{seed}-{copy}", seed=seed) for seed in (1, 2, 3) for copy in (1, 2)]
DILUTED = [*HONEST, *FORGED, *CONTROLS]
COUNTED_CONTROLS = {f"control-{seed}-2" for seed in (1, 2, 3)}
EPOCHS, EPOCH_SECONDS = 10, 2.0
STEPS = ReplayResult((), 8, 120, epoch_seconds=EPOCH_SECONDS, epochs=EPOCHS)
WHOLE = ReplayResult((), 120, 120, cpu_seconds=EPOCHS * EPOCH_SECONDS, epochs=EPOCHS, is_complete=True)
PARTIAL = dataclasses.replace(WHOLE, steps=12, cpu_seconds=EPOCH_SECONDS, is_complete=False)


def changed(records: list[RunRecord], start: str, **changes) -> list[RunRecord]:
    """The records, with these changes of each one whose id has this start."""
    return [dataclasses.replace(one, **changes) if one.run_id.startswith(start) else one for one in records]


def outcomes(
    records: Sequence[RunRecord], replayed: Sequence[str] = (), exact: bool = True, whole: ReplayResult = WHOLE
) -> list[RemeasuredRun]:
    """The recomputed runs, of which some were replayed completely."""
    steps = dataclasses.replace(STEPS, exact=exact)
    return [
        RemeasuredRun(SimpleNamespace(run_id=one.run_id), one, steps, whole=whole if one.run_id in replayed else None)
        for one in records
    ]


def plan(records: Sequence[RunRecord], nonce: str = "0", replayed: Sequence[str] = (), exact: bool = True, **options):
    """The runs that are replayed in the next pass, with their limits."""
    return planned_replays(outcomes(records, replayed, exact), RemeasureOptions(nonce=nonce, **options))


def test_a_superseded_run_is_never_chosen():
    choices = [set(plan(DILUTED, nonce)) for nonce in NONCES]
    assert all(len(choice) == 4 and choice >= COUNTED_CONTROLS for choice in choices)
    assert {(choice - COUNTED_CONTROLS).pop() for choice in choices} == {one.run_id for one in FORGED}


def test_all_replays_every_run_without_a_limit_and_a_number_of_steps_none():
    everything = plan(DILUTED, replay="all", replay_budget="1s")
    assert everything.keys() == {one.run_id for one in DILUTED}
    assert {one.cpu_limit for one in everything.values()} == {float("inf")}
    for options in ({"replay": "8"}, {"replay": "off"}, {"trust_logged": True}):
        assert plan(DILUTED, **options) == {}


def test_an_adopted_run_and_one_of_a_user_supplied_loop_are_no_candidates():
    others = [record("adopted", weights="a" * 64), record("tracked", architecture_options={"structure": "x"})]
    assert plan(others) == plan(others, replay="all") == {}


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
def test_where_a_replayed_run_does_not_count_one_that_counts_is_chosen(records, expected, nonce):
    first = set(plan(DILUTED, nonce))
    further = set(plan(records, nonce, first))
    assert len(further) == len(expected) and all(one.startswith(start) for one in further for start in expected)
    assert not further or all(not one.startswith("honest") or one.endswith("-3") for one in further)
    assert plan(records, nonce, first | further) == {}


# The budget. A run costs 20 s: ten epochs of 2 s, as its first steps were measured.

SEEDS = (1, 2, 3)
STUDY = [record(f"{method}-{seed}", method=method, seed=seed) for method in ("dfa", "fa") for seed in SEEDS]
STUDY += [frozen(f"frozen-{seed}", seed=seed) for seed in SEEDS]


def kinds(chosen) -> list[str]:
    return sorted(run_id.partition("-")[0] for run_id in chosen)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("1s", []),
        ("20s", ["frozen"]),  # a control first: without one, no method's verdict is proven
        ("60s", ["dfa", "fa", "frozen"]),  # then one run of each group
        (100.0, ["dfa", "fa", "frozen", "frozen", "frozen"]),
        ("2h", ["dfa", "fa", "frozen", "frozen", "frozen"]),
    ],
)
def test_as_many_runs_are_replayed_as_fit(budget, expected):
    for nonce in NONCES:
        chosen = plan(STUDY, nonce, replay_budget=budget)
        assert kinds(chosen) == expected
        assert {one.cpu_limit for one in chosen.values()} <= {TOLERANCE * 20 + LEAST_SECONDS}


def test_what_is_left_goes_to_one_run_that_stops_at_an_epoch():
    chosen = plan(STUDY, replay_budget="49s")
    partial = [one for one in chosen.values() if not one.fits]
    assert kinds(chosen) in (["dfa", "fa", "frozen"],) and [one.cpu_limit for one in partial] == [9.0]
    assert all(one.fits for one in plan(STUDY, replay_budget="41s").values())  # less than one epoch is left


def test_where_a_run_does_not_fit_the_epochs_after_its_kept_states_are_replayed():
    keeping = [dataclasses.replace(one, provenance={schema.KEPT_STATES: [2, 5, 7]}) for one in STUDY]
    chosen = plan(keeping, replay_budget="15s")  # 6 s a run
    assert [(one.cpu_limit, one.fits) for one in chosen.values()] == [(12.0, False), (9.0, False), (3.0, False)]


def test_no_second_run_is_cut_off():
    ids = set(plan(STUDY, replay_budget="49s"))
    cut = planned_replays(outcomes(STUDY, ids, whole=PARTIAL), RemeasureOptions(nonce="0", replay_budget="19s"))
    assert cut == {}


def test_what_was_spent_is_no_longer_in_the_budget():
    ids = set(plan(STUDY, replay_budget="60s"))
    assert spent_seconds(outcomes(STUDY, ids)) == 60
    assert plan(STUDY, replayed=ids, replay_budget="60s") == {}
    assert kinds(plan(STUDY, replayed=ids, replay_budget="100s")) == ["frozen", "frozen"]


@pytest.mark.parametrize("nonce", NONCES[:10])
def test_on_another_configuration_every_run_that_fits_is_replayed_one_of_each_group_first(nonce):
    assert len(plan(STUDY, nonce, exact=False)) == len(STUDY)
    assert kinds(plan(STUDY, nonce, exact=False, replay_budget="60s")) == ["dfa", "fa", "frozen"]
    assert kinds(plan(STUDY, nonce, exact=False, replay_budget="100s")) == ["dfa", "fa", "frozen", "frozen", "frozen"]


def test_the_nonce_alone_orders_the_runs_of_a_group():
    found = {frozenset(plan(STUDY, nonce, replay_budget="60s")) for nonce in NONCES}
    assert len(found) > 10 and plan(STUDY, "a") == plan(STUDY, "a")


def test_the_report_says_what_did_not_fit_and_what_it_would_take():
    options = RemeasureOptions(nonce="0", replay_budget="60s")
    results = outcomes(STUDY, set(plan(STUDY, replay_budget="60s")))
    replay = report_replay(options, results)
    assert (replay.budget, replay.needed) == (60.0, 130.0)
    assert [one.method for one in replay.unfitted] == ["frozen", "frozen"]
    assert {one.cpu_seconds for one in replay.unfitted} == {20.0}
    assert any("--replay-budget 3m" in text for text in replay_remarks(results, replay))
    whole = outcomes(STUDY, set(plan(STUDY)))
    assert unfitted_runs(whole, options) == ([], 0.0)
    assert unfitted_runs(results, RemeasureOptions(nonce="0", replay="all")) == ([], 0.0)


def test_a_replay_that_was_cut_off_did_not_fit():
    results = outcomes(STUDY, set(plan(STUDY)), whole=PARTIAL)
    assert len(unfitted_runs(results, RemeasureOptions(nonce="0"))[0]) == 5


def test_a_remark_names_the_runs_whose_own_training_is_judged():
    judged = [dataclasses.replace(STUDY[0], recorded_result=Reading(0.75))]
    results = outcomes([*judged, *STUDY[1:]])
    (text,) = [text for text in replay_remarks(results, report_replay(RemeasureOptions(), results)) if "0.7500" in text]
    assert "dfa, seed 1" in text


@pytest.mark.parametrize(
    ("value", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5h", 5400), (7, 7), ("7", 7)]
)
def test_a_budget_is_a_time(value, seconds):
    assert asked_budget(value) == seconds and asked_budget(budget_text(seconds)) >= seconds


NO_BUDGETS = ("0", "0s", 0, -5, "-5m", "ten minutes", "", "5 d", "m", True, None, float("nan"), float("inf"), "1e3s")


@pytest.mark.parametrize("value", NO_BUDGETS)
def test_another_budget_is_refused(value):
    with pytest.raises(ValueError, match="CPU time above 0"):
        asked_budget(value)


def test_the_command_refuses_a_wrong_budget_in_one_line(registry):
    result = registry("audit", "--study", "digits", "--replay-budget", "soon")
    assert result.exit_code == 2 and "replay_budget" in result.output and "Traceback" not in result.output
