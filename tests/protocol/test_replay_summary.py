"""The level of proof of a verdict: how far replays prove the trainings of a method and of its controls."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.errors import InvalidFields
from fa_registry.jsonio import decode, encode
from fa_registry.protocol.engine import judge_all, second_opinions
from fa_registry.protocol.grouping import groups
from fa_registry.protocol.replay_summary import FIRST, KEPT, WHOLE, nonce_text, proof_level, replays_text
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.verdict import combine_verdicts
from fa_registry.records import AuditReport, Check, Replay, RunRecord, Verdict
from tests.builders import answered, frozen, measurements, record

EDITION = load_edition("2026-12")
SEEDS = (1, 2, 3)
# level of a run → outcomes of its replays by subject
REPLAYS = {
    "replayed": {WHOLE: "agrees", FIRST: "agrees"},
    "started": {WHOLE: "not possible", FIRST: "agrees"},
    "stated": {FIRST: "not possible"},
}


def proven(run: RunRecord, level: str) -> RunRecord:
    """The run with the replays of a level instead of its own."""
    others = [check for check in run.integrity.checks if check.subject not in (WHOLE, FIRST, KEPT)]
    checks = (*others, *(Check(subject, outcome) for subject, outcome in REPLAYS[level].items()))
    return dataclasses.replace(run, integrity=dataclasses.replace(run.integrity, checks=checks))


def methods(*levels: str, **changes) -> list[RunRecord]:
    """One dfa run per seed with these levels."""
    return [
        proven(answered(record(f"r{seed}", seed=seed, **changes)), level)
        for seed, level in zip(SEEDS, levels, strict=False)
    ]


def controls(*levels: str) -> list[RunRecord]:
    return [proven(answered(frozen(f"f{seed}", seed=seed)), level) for seed, level in zip(SEEDS, levels, strict=False)]


def levels_of(records: list[RunRecord]) -> dict[str, str]:
    """Run id → level of its verdict."""
    return {run.record.run_id: run.verdict.proof for run in judge_all(records, EDITION)}


@pytest.mark.parametrize(
    ("runs", "frozen_runs", "level"),
    [
        # one replayed run of each is enough: the author could not know which
        (("started", "replayed", "started"), ("started", "started", "replayed"), "replayed"),
        (("replayed", "replayed", "replayed"), ("started", "started", "started"), "started"),
        (("started", "started", "started"), ("replayed", "replayed", "replayed"), "started"),
        (("replayed", "replayed", "stated"), ("replayed", "replayed", "replayed"), "stated"),
        (("replayed", "replayed", "replayed"), ("replayed", "stated", "replayed"), "stated"),
        (("stated", "stated", "stated"), ("replayed", "replayed", "replayed"), "stated"),
        (("replayed", "started", "started"), (), "replayed"),  # no control: the level of the runs alone
        (("started",), (), "started"),
        # the control of seed 3 is missing: D3 says so, and the level is that of the controls that exist
        (("replayed", "started", "started"), ("replayed", "started"), "replayed"),
    ],
)
def test_the_level_is_the_lowest_of_runs_and_controls(runs, frozen_runs, level):
    records = [*methods(*runs), *controls(*frozen_runs)]
    found = levels_of(records)
    assert {found[f"r{seed}"] for seed in SEEDS[: len(runs)]} == {level}


def test_a_control_has_a_level_of_its_own():
    found = levels_of([*methods("replayed", "replayed", "replayed"), *controls("started", "started", "started")])
    assert {found[f"f{seed}"] for seed in SEEDS} == {"started"}
    found = levels_of([*methods("stated", "stated", "stated"), *controls("replayed", "started", "started")])
    assert {found[f"f{seed}"] for seed in SEEDS} == {"replayed"}


@pytest.mark.parametrize("changes", [{"control": "shallow"}, {"control": "frozen_long", "epochs": 6}])
def test_every_control_that_a_verdict_needs_counts_too(changes):
    """It decides whether the frozen control may serve, so a verdict is proven no further than it is."""
    shallow = [
        dataclasses.replace(run, run_id=f"s{run.spec.seed}", spec=dataclasses.replace(run.spec, **changes))
        for run in controls("stated", "started", "started")
    ]
    records = [*methods("replayed", "replayed", "replayed"), *controls("replayed", "replayed", "replayed")]
    assert levels_of(records)["r1"] == "replayed" and levels_of([*records, *shallow])["r1"] == "stated"


def test_a_control_of_the_last_block_counts_if_the_method_needs_it():
    last = [
        dataclasses.replace(run, run_id=f"l{run.spec.seed}", spec=dataclasses.replace(run.spec, control="ladder_1"))
        for run in controls("started", "started", "started")
    ]
    exact = tuple(measurements().sites["gamma"][:1] * 2) + tuple(measurements(gamma=(0.5, 0.6, 1.0)).sites["gamma"][2:])
    for needs_it, level in ((False, "replayed"), (True, "started")):
        runs = methods("replayed", "replayed", "replayed")
        if needs_it:
            measured = dataclasses.replace(
                runs[0].measurements, sites={**runs[0].measurements.sites, "gamma_batch": exact}
            )
            runs[0] = dataclasses.replace(runs[0], measurements=measured)
        found = levels_of([*runs, *controls("replayed", "replayed", "replayed"), *last])
        assert found["r1"] == level


def test_a_run_that_does_not_count_proves_nothing_for_the_others():
    older = [dataclasses.replace(proven(answered(record("old", seed=1)), "replayed"))]
    found = levels_of([*older, *methods("started", "started", "started"), *controls("replayed")])
    assert (found["old"], found["r1"], found["r2"]) == ("replayed", "started", "started")
    older = [proven(answered(record("old", seed=1)), "stated")]
    found = levels_of([*older, *methods("replayed", "started", "started"), *controls("replayed")])
    assert (found["old"], found["r1"], found["r2"]) == ("stated", "replayed", "replayed")


@pytest.mark.parametrize(
    ("checks", "level"),
    [
        ((), "stated"),
        ((Check(FIRST, "agrees"),), "started"),
        ((Check(FIRST, "not possible"),), "stated"),
        ((Check(FIRST, "agrees"), Check(WHOLE, "agrees")), "replayed"),
        ((Check(FIRST, "agrees"), Check(WHOLE, "not possible", epochs=40)), "started"),  # stopped at the limit
        ((Check(FIRST, "agrees"), Check(KEPT, "agrees")), "started"),  # the author knows which epochs have states
        ((Check("initial weights", "agrees"), Check("final weights", "agrees")), "stated"),
    ],
)
def test_only_replays_that_agree_raise_the_level_of_a_run(checks, level):
    run = record()
    assert proof_level([dataclasses.replace(run, integrity=dataclasses.replace(run.integrity, checks=checks))]) == level


@pytest.mark.parametrize(
    ("kept", "replayed", "level"),
    [
        (range(1, 100), 5, "replayed"),
        (range(1, 100), 99, "replayed"),
        (range(1, 100), 4, "started"),
        (range(1, 99), 98, "started"),  # the author knows the epoch that has no state
        ((25, 50, 75), 3, "started"),
    ],
)
def test_epochs_that_the_nonce_chooses_among_all_prove_the_training(kept, replayed, level):
    checks = Check(FIRST, "agrees"), Check(KEPT, "agrees", epochs=replayed)
    run = dataclasses.replace(record(), provenance={"epochs_run": 100, "kept_states": list(kept)})
    assert proof_level([dataclasses.replace(run, integrity=dataclasses.replace(run.integrity, checks=checks))]) == level


@pytest.mark.parametrize(("replayed", "level"), [(2, "replayed"), (1, "started")])
def test_a_short_training_has_all_of_its_epochs_replayed(replayed, level):
    run = dataclasses.replace(record(), provenance={"epochs_run": 3, "kept_states": [1, 2]})
    checks = (Check(KEPT, "agrees", epochs=replayed),)
    assert proof_level([dataclasses.replace(run, integrity=dataclasses.replace(run.integrity, checks=checks))]) == level


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": "a" * 64},  # adopted
        {"architecture_options": {"structure": "x"}},  # the user's training loop
    ],
)
def test_a_run_that_no_command_trains_again_is_stated_despite_forged_checks(changes):
    assert proof_level([proven(record(**changes), "replayed")]) == "stated"


@pytest.mark.parametrize("state", ["trusted", "mismatch"])
def test_a_run_whose_files_were_not_compared_is_stated_despite_forged_checks(state):
    run = proven(record(), "replayed")
    assert (
        proof_level([dataclasses.replace(run, integrity=dataclasses.replace(run.integrity, state=state))]) == "stated"
    )


def test_no_run_proves_nothing():
    assert proof_level([]) == "stated" and combine_verdicts([]).proof == "stated"


def test_every_edition_and_the_group_have_the_level():
    records = [*methods("replayed", "started", "started"), *controls("replayed", "started", "started")]
    (opinion,) = second_opinions(records, [load_edition("2026-05")])
    assert {one.verdict.proof for one in opinion.judgements} == {"replayed"}
    report = AuditReport("t", "s", EDITION.reference, judge_all(records, EDITION))
    assert [group.verdict.proof for group in groups(report)] == ["replayed", "replayed"]


def test_a_group_has_the_lowest_level_of_its_verdicts():
    verdicts = [Verdict("pass", "PASS", proof=level) for level in ("replayed", "started")]
    assert combine_verdicts(verdicts).proof == "started"


def test_a_verdict_without_the_field_is_stated_and_other_words_are_refused():
    """A level is never guessed: a report of a forger may lack it, or have a word of its own."""
    fields = encode(Verdict("pass", "PASS", proof="replayed"))
    assert decode(Verdict, fields).proof == "replayed"
    assert decode(Verdict, {name: value for name, value in fields.items() if name != "proof"}).proof == "stated"
    with pytest.raises(InvalidFields, match="proof"):
        decode(Verdict, {**fields, "proof": "verified"})


@pytest.mark.parametrize(
    ("replay", "facts"),
    [
        (None, []),
        (Replay("1f", "auto"), []),
        (Replay("1f", "auto", typed=True), ["typed"]),
        (Replay("1f", "auto", audits=3), ["audit 3"]),
        (Replay("1f", "auto", typed=True, audits=2), ["typed", "audit 2"]),
        (Replay("1f", "all", typed=True, audits=2), []),  # every run was replayed
        (Replay("1f", "off", typed=True), []),
    ],
)
def test_pages_name_a_nonce_that_the_author_could_choose(replay, facts):
    text = nonce_text(replay)
    assert bool(text) == bool(facts) and all(fact in text for fact in facts)


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        (("replayed",), "all of it"),
        (("started",), "the first steps"),
        (("stated",), "nothing"),
        (("replayed", "started", "started"), "all of it for 1 of 3 seeds, the first steps for all seeds"),
        (("replayed", "started", "stated"), "all of it for 1 of 3 seeds, the first steps for 2 of 3 seeds"),
        (("replayed", "replayed", "replayed"), "all of it for all seeds"),
        (("stated", "stated"), "nothing"),
    ],
)
def test_the_text_on_replays_counts_seeds_only_where_there_are_several(levels, text):
    assert replays_text([run.integrity for run in methods(*levels)]) == text
