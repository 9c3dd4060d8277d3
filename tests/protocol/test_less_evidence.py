"""Less evidence never decides more: no verdict becomes a pass or a failure because something is missing or not proven."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations

import pytest

from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.rules import load_edition
from fa_registry.protocol.verdict import combine_verdicts
from fa_registry.records import CHANCE, FROZEN_LONG, Integrity, Reading, RunRecord
from tests.builders import answered, frozen, measurements, record

EDITION = load_edition("2026-12")
SEEDS = (1, 2, 3)
Weakening = Callable[[RunRecord], RunRecord | None]


def with_measured(run: RunRecord, **changes) -> RunRecord:
    return dataclasses.replace(run, measurements=dataclasses.replace(run.measurements, **changes))


def without_convention(name: str) -> Weakening:
    def weakened(run: RunRecord) -> RunRecord:
        kept = {key: value for key, value in run.measurements.conventions.items() if key != name}
        return with_measured(run, conventions=kept)

    return weakened


def without_site_metric(name: str) -> Weakening:
    def weakened(run: RunRecord) -> RunRecord:
        row = tuple(Reading(None, "not measured") for _ in run.measurements.sites[name])
        return with_measured(run, sites={**run.measurements.sites, name: row})

    return weakened


def of_controls(change: Weakening, seeds: Sequence[int] = SEEDS) -> Weakening:
    return lambda run: change(run) if run.spec.control == "frozen" and run.spec.seed in seeds else run


def of_runs(change: Weakening) -> Weakening:
    return lambda run: change(run) if run.spec.control == "none" else run


def unverifiable(run: RunRecord) -> RunRecord:
    return dataclasses.replace(run, integrity=Integrity("unverifiable"))


# Each takes away one piece of evidence and changes no number.
WEAKENINGS: dict[str, Weakening] = {
    "controls unverifiable": of_controls(unverifiable),
    "control of seed 2 adopted": of_controls(
        lambda run: dataclasses.replace(run, spec=dataclasses.replace(run.spec, weights="ab")), (2,)
    ),
    "no control of seed 3": of_controls(lambda run: None, (3,)),
    "longer controls unverifiable": lambda run: unverifiable(run) if run.spec.control == FROZEN_LONG else run,
    "no longer control of seed 3": lambda run: None if (run.spec.control, run.spec.seed) == (FROZEN_LONG, 3) else run,
    "two seeds": lambda run: run if run.spec.seed != 1 else None,
    "runs unverifiable": of_runs(unverifiable),
    "chance not recorded": without_convention(CHANCE),
    "test set not sized": without_convention("test_samples"),
    "scores not recorded": lambda run: with_measured(run, sample_scores={}),
    "no gain": of_runs(without_site_metric("gain")),
    "no growth since initialisation": of_runs(without_site_metric("growth_init")),
}
CLEARS, NEAR_CHANCE = (0.9, 0.91, 0.9), (0.12, 0.13, 0.12)
# accuracies, those of the frozen controls, other values of the runs
STUDIES: dict[str, tuple[tuple[float, ...], tuple[float, ...], dict[str, float]]] = {
    "clears": (CLEARS, (0.5, 0.51, 0.5), {}),
    "undercut": ((0.4, 0.41, 0.4), (0.5, 0.51, 0.5), {}),
    # the margins scatter more than either side: Welch's interval is narrower than the paired interval
    "paired wider than Welch": ((0.50, 0.49, 0.48), (0.49, 0.50, 0.51), {}),
    "at the limit": ((0.52, 0.53, 0.515), (0.5, 0.5, 0.5), {}),
    "equal margins at the limit": ((0.52,) * 3, (0.5,) * 3, {}),
    "at chance": ((0.08, 0.081, 0.08), (0.3, 0.31, 0.3), {}),
    "control at chance": (CLEARS, (0.09, 0.11, 0.1), {}),
    "both near chance": (NEAR_CHANCE, (0.09, 0.11, 0.1), {}),
    "exploded": (CLEARS, (0.5, 0.51, 0.5), {"growth": 60.0}),
    "exploded at floor": (CLEARS, (0.5, 0.51, 0.5), {"growth": 60.0, "g_norm": 1e-6, "gain": 1e-4}),
}


def stated(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs with the accuracies of their controls as numbers that the author states, and without the controls."""
    accuracy = {run.spec.seed: run.measurements.scalars["accuracy"] for run in records if run.spec.control == "frozen"}
    return [
        with_measured(run, scalars={**run.measurements.scalars, "frozen_accuracy": accuracy[run.spec.seed]})
        for run in records
        if run.spec.control == "none"
    ]


def full_evidence(study: str) -> list[RunRecord]:
    accuracies, controls, others = STUDIES[study]
    runs = [record(f"r{seed}", measurements(accuracy=accuracies[seed - 1], **others), seed=seed) for seed in SEEDS]
    runs += [frozen(f"f{seed}", controls[seed - 1], seed=seed) for seed in SEEDS]
    longer = {"method": "bp", "control": FROZEN_LONG, "epochs": 6}
    runs += [record(f"l{seed}", measurements(accuracy=controls[seed - 1]), **longer, seed=seed) for seed in SEEDS]
    return [answered(run) for run in runs]


def outcome(records: Sequence[RunRecord]) -> str:
    """The outcome of the method's verdict over its seeds."""
    judged = judge_all(records, EDITION)
    return combine_verdicts(audit.verdict for audit in judged if audit.record.spec.control == "none").outcome


@cache
def outcome_without(study: str, names: frozenset[str]) -> str:
    records = full_evidence(study)
    for name in sorted(names):
        records = [weakened for run in records if (weakened := WEAKENINGS[name](run)) is not None]
    return outcome(records)


@pytest.mark.parametrize(
    ("study", "expected"),
    [*zip(STUDIES, ("pass", "fail", "warn", "warn", "warn", "fail", "warn", "warn", "warn", "fail"), strict=True)],
)
def test_the_studies_cover_every_verdict(study, expected):
    assert outcome_without(study, frozenset()) == expected


@pytest.mark.parametrize("study", STUDIES)
def test_taking_evidence_away_never_makes_a_verdict_harder_or_milder(study):
    """From all evidence, and from every single missing piece, to each further missing piece."""
    for count in range(2):
        for missing in map(frozenset, combinations(WEAKENINGS, count)):
            before = outcome_without(study, missing)
            for name in WEAKENINGS.keys() - missing:
                after = outcome_without(study, missing | {name})
                assert after in (before, "warn", "incomplete"), (sorted(missing), name)


@pytest.mark.parametrize("study", STUDIES)
def test_a_stated_control_decides_nothing_that_a_proven_one_does_not(study):
    assert outcome(stated(full_evidence(study))) in (outcome_without(study, frozenset()), "warn")


def test_an_unproven_control_never_fails_and_never_passes_by_the_margin():
    for study in ("clears", "undercut", "paired wider than Welch"):
        records = [WEAKENINGS["controls unverifiable"](run) for run in full_evidence(study)]
        finding = judge_all(records, EDITION)[0].findings[2]
        assert (finding.outcome, finding.state, finding.test) == (
            "warn",
            "UNDECIDED",
            "Welch's t test and Wilson intervals",
        )
        assert finding.undecided[0] == "control unproven"
