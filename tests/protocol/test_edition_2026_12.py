"""What edition 2026-12 judges that 2026-05 does not: growth since initialisation, far seeds, chance, and the size of Γ."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fa_registry.metrics import label_of
from fa_registry.protocol.engine import judge, judge_all
from fa_registry.protocol.rule_evaluation import decide, first_fire, required
from fa_registry.protocol.rules import load_edition
from fa_registry.records import NORMALISED, REPLACED, RESIDUAL, STREAM, FurtherLimit, Integrity, Reading
from fa_registry.records.configurations import CONFIGURATION, SAME_MACHINE
from tests.builders import BEST_P, TEST_SET, answered, frozen, measurements, over_seeds, reading, record, series

EDITION = load_edition("2026-12")
D1, _, D3, D4, _ = EDITION.rules
SINCE = D1.either[0].threshold


def findings(**figures):
    return judge(record(measured=measurements(**figures)), frozen(), EDITION).findings


def test_an_embedding_that_explodes_while_every_block_is_quiet_fires_d1():
    """dfa+pen on Fashion-MNIST: growth 1.01 in every block, 1,270 since initialisation."""
    finding = findings(growth=1.01, growth_init=1270.0)[0]
    assert (finding.outcome, finding.state, finding.quantity) == ("fail", "EXPLODED", "growth_init")
    assert (finding.observed, finding.threshold, finding.crossed) == (Reading(1270.0), SINCE, "above")
    assert finding.further == (FurtherLimit("growth", 50.0),)
    assert finding.site == 2


@pytest.mark.parametrize(
    ("growth", "since", "outcome", "shown"),
    [
        (60.0, 1.0, "fail", "growth"),
        (60.0, 1e6, "fail", "growth"),  # both: what the published rule sees comes first
        (1.0, 1e6, "fail", "growth_init"),
        (1.0, 1.0, "pass", "growth"),
        (60.0, None, "fail", "growth"),
        (None, 1e6, "fail", "growth_init"),
        (1.0, None, "not_applicable", "growth"),  # never a pass where one of the two is missing
        (None, 1.0, "not_applicable", "growth"),
    ],
)
def test_either_growth_fires_the_rule_and_both_are_needed_to_clear_it(growth, since, outcome, shown):
    finding = findings(growth=growth, growth_init=since)[0]
    assert (finding.outcome, finding.quantity) == (outcome, shown)


def test_a_missing_growth_is_named_next_to_the_one_that_is_known():
    finding = findings(growth=1.5, growth_init=None)[0]
    assert "growth since init" in finding.sentence


def test_the_rule_requires_both_limits():
    assert f"at most {SINCE:g}" in required(D1)
    moved = load_edition("2026-12", {"D1.growth_init": 2000.0})
    assert moved.rules[0].either[0].threshold == 2000.0 and moved.overrides == {"D1.growth_init": 2000.0}
    assert judge(record(measured=measurements(growth_init=1270.0)), None, moved).findings[0].outcome == "pass"


def test_an_alternative_is_followed_by_epoch_too():
    lines = {"growth_max": series(1.0, 1.0, 1.0), "growth_init_max": series(1.0, 1.0, 2 * SINCE)}
    assert first_fire(D1, record(trajectory=lines)) == 2
    assert first_fire(D1, record(trajectory={**lines, "growth_max": series(1.0, 60.0, 1.0)})) == 1
    assert first_fire(D1, record(trajectory={"growth_max": lines["growth_max"]})) is None


def test_an_alternative_without_a_word_of_its_own_has_its_rules():
    own = dataclasses.replace(D1, either=(dataclasses.replace(D1.either[0], fired="SWOLLEN"),))
    readings = [reading(1.0), reading(1e6)]
    assert [decide(rule, readings).state for rule in (D1, own)] == ["EXPLODED", "SWOLLEN"]
    assert [decide(rule, readings).shown for rule in (D1, own)] == [1, 1]


# Seeds far from the others.

NEAR = [0.10, 0.101, 0.099, 0.1005, 0.0995, 0.1, 0.1003, 0.0997, 0.1001]


def margins(values, edition=EDITION):
    """D3 of margins over a control of .8."""
    runs = over_seeds({seed: 0.8 + value for seed, value in enumerate(values)}, dict.fromkeys(range(len(values)), 0.8))
    return judge_all(runs, edition)[0].findings[2]


def test_a_seed_far_from_the_others_leaves_depth_undecided_whatever_the_interval():
    """Nine seeds 10 pp above frozen and one 5 pp below: the interval clears 2 pp, one seed in ten is a failure."""
    far = margins([*NEAR, -0.05])
    assert far.interval[0] > 2
    assert (far.outcome, far.state, far.crossed) == ("warn", "UNDECIDED", "")
    assert "seed 9" in far.sentence and "-5.00 pp" in far.sentence


def test_far_seeds_leave_a_failure_undecided_too():
    assert margins([-value for value in NEAR]).state == "UNDERCUT"
    far = margins([*(-value for value in NEAR), 0.05])
    assert far.interval[1] < 2 and (far.outcome, far.state, far.crossed) == ("warn", "UNDECIDED", "")


def test_a_seed_apart_by_less_than_counts_is_not_far():
    assert margins([*NEAR, 0.115]).state == "CLEARS"


def test_a_finding_over_seeds_says_on_what_its_interval_rests():
    assert "3 seeds" in margins(NEAR[:3]).basis
    assert "Shapiro-Wilk test, 9 seeds" in margins(NEAR).basis
    assert margins(NEAR[:1]).basis == ""


# Chance.


def over_controls(accuracies, controls, **conventions):
    """D3 of three seeds; conventions that replace those of the records, None for a convention that is not recorded."""
    runs = over_seeds(dict(enumerate(accuracies)), dict(enumerate(controls)))
    runs = [answered(run, conventions.get("test_samples")) for run in runs]
    recorded = {name: value for name, value in (TEST_SET | conventions).items() if value is not None}
    runs = [
        dataclasses.replace(run, measurements=dataclasses.replace(run.measurements, conventions=recorded))
        for run in runs
    ]
    return judge_all(runs, EDITION)[0].findings[2]


HALF = (0.50, 0.51, 0.50)


@pytest.mark.parametrize(
    ("accuracies", "controls", "state", "undecided"),
    [
        (HALF, (0.3,) * 3, "CLEARS", ()),
        ((0.086, 0.087, 0.088), (0.02,) * 3, "AT CHANCE", ()),  # the control does not matter
        ((0.086, 0.087, 0.088), (0.3,) * 3, "AT CHANCE", ()),
        (HALF, (0.02,) * 3, "UNDECIDED", ("control at chance",)),
        (HALF, (0.09, 0.11, 0.10), "UNDECIDED", ("control at chance",)),
        (HALF, (0.1,) * 3, "UNDECIDED", ("control at chance",)),
        (HALF, (0.104,) * 3, "UNDECIDED", ("control at chance",)),  # another test set of this size could have .098
        (HALF, (0.108,) * 3, "CLEARS", ()),
        (HALF, (0.09, 0.11, 0.16), "UNDECIDED", ("control at chance",)),  # by chance better than chance
        ((0.08, 0.09, 0.08), (0.09, 0.11, 0.10), "AT CHANCE", ()),
        (
            (0.11, 0.10, 0.11),
            (0.09, 0.11, 0.10),
            "UNDECIDED",
            ("control at chance", "margin at the limit", "accuracy at chance"),
        ),
        ((0.11, 0.5, 0.9), (0.3,) * 3, "UNDECIDED", ("margin at the limit", "accuracy at chance")),
        ((0.25, 0.26, 0.25), (0.3,) * 3, "UNDERCUT", ()),
    ],
)
def test_the_method_and_its_control_have_to_exceed_chance(accuracies, controls, state, undecided):
    """Chance has to be below the whole interval: the mean of a method at chance exceeds it in half of all studies."""
    finding = over_controls(accuracies, controls)
    assert (finding.state, finding.undecided) == (state, undecided)
    outcome = {"CLEARS": "pass", "UNDECIDED": "warn"}.get(state, "fail")
    assert finding.outcome == outcome
    assert ("the accuracy, 95 % " in finding.sentence) == (state == "AT CHANCE" or "accuracy at chance" in undecided)


def started(run, digest):
    """The run as it is recorded: the weights of a network without blocks have another digest than those of one with blocks."""
    conventions = {**run.measurements.conventions, **dict.fromkeys((*SAME_MACHINE, *CONFIGURATION), "1")}
    measured = dataclasses.replace(run.measurements, conventions=conventions)
    return dataclasses.replace(
        run, provenance={"initial_weights": f"{digest} of {run.spec.seed}"}, measurements=measured
    )


@pytest.mark.parametrize(
    ("shallow", "undecided"),
    [
        ((0.49, 0.50, 0.49), ("control below shallow",)),  # frozen blocks lose 19 pp, and trained ones gain 1
        ((0.60, 0.61, 0.60), ("control below shallow",)),  # trained blocks lose too
        ((0.35, 0.36, 0.35), ()),  # frozen blocks lose 5 pp, and trained ones gain 15
        ((0.302, 0.30, 0.301), ()),  # not shown to be below
        ((0.2, 0.21, 0.2), ()),
        ((0.35,), ()),  # one seed shows nothing
    ],
)
def test_a_control_that_is_worse_than_no_blocks_does_not_decide_alone(shallow, undecided):
    runs = [started(run, "blocks") for run in over_seeds(dict(enumerate(HALF)), dict.fromkeys(range(3), 0.3))]
    without_blocks = [
        answered(record(f"s{seed}", measurements(accuracy=value), method="bp", control="shallow", seed=seed))
        for seed, value in enumerate(shallow)
    ]
    without_blocks = [started(run, "no blocks") for run in without_blocks]
    finding = judge_all([*runs, *without_blocks], EDITION)[0].findings[2]
    assert (finding.state, finding.undecided) == ("UNDECIDED" if undecided else "CLEARS", undecided)
    changed = [dataclasses.replace(run, integrity=Integrity("mismatch")) for run in without_blocks]
    assert judge_all([*runs, *changed], EDITION)[0].findings[2].state == "CLEARS"


@pytest.mark.parametrize("fault", ["unproven", "one seed missing"])
def test_a_control_without_blocks_confirms_only_if_it_is_proven_for_every_seed(fault):
    runs = over_seeds(dict(enumerate(HALF)), dict.fromkeys(range(3), 0.3))
    without_blocks = [
        answered(record(f"s{seed}", measurements(accuracy=0.35), method="bp", control="shallow", seed=seed))
        for seed in range(3)
    ]
    assert judge_all([*runs, *without_blocks], EDITION)[0].findings[2].state == "CLEARS"
    if fault == "unproven":
        without_blocks[0] = dataclasses.replace(without_blocks[0], integrity=Integrity("unverifiable"))
    else:
        del without_blocks[0]
    finding = judge_all([*runs, *without_blocks], EDITION)[0].findings[2]
    assert (finding.state, finding.undecided) == ("UNDECIDED", ("control below shallow",))


SPREAD = {
    seed: round(0.31 + 0.02 * seed, 4) for seed in range(10)
}  # margins of 1, 3, … 19 pp; the mean clears the limit of 2 pp


@pytest.mark.parametrize(
    ("replayed", "state"),
    [((), "CLEARS"), ((5,), "CLEARS"), ((0, 9), "CLEARS"), ((0,), "UNDECIDED"), (tuple(SPREAD), "CLEARS")],
)
def test_what_an_audit_elsewhere_trained_itself_must_lie_on_the_side_of_the_verdict(replayed, state):
    """On another configuration no digest can agree, so an author could record any result for the seeds that are not replayed."""
    runs = over_seeds(SPREAD, dict.fromkeys(SPREAD, 0.3))
    seen = [
        dataclasses.replace(run, recorded_result=Reading(0.5)) if run.spec.seed in replayed else run for run in runs
    ]
    finding = judge_all(seen, EDITION)[0].findings[2]
    assert (finding.state, finding.undecided) == (state, ("replay on the other side",) if state == "UNDECIDED" else ())


@pytest.mark.parametrize("growth", [2.0, 60.0])
@pytest.mark.parametrize(
    ("stream", "small", "large", "inapplicable"),
    [
        (RESIDUAL, "pass", "fail", ""),
        (None, "pass", "fail", ""),  # not recorded, as in a user's own loop
        (REPLACED, "not_applicable", "not_applicable", "no residual stream"),
        (NORMALISED, "not_applicable", "fail", ""),  # a norm hides small and large growth alike
    ],
)
def test_d1_is_about_a_stream(growth, stream, small, large, inapplicable):
    runs = over_seeds(dict(enumerate(HALF)), dict.fromkeys(range(3), 0.3))
    runs = [with_stream(run, stream, growth if run.spec.control == "none" else 2.0) for run in runs]
    judged = judge_all(runs, EDITION)[0]
    finding = judged.findings[0]
    assert finding.outcome == (small if growth == 2.0 else large)
    assert (finding.inapplicable, finding.observed.value is None) == (inapplicable, bool(inapplicable))
    expected = {"pass": "PASS", "fail": "WARN(D1)", "not_applicable": "PASS" if inapplicable else "INCOMPLETE"}
    assert judged.verdict.label == expected[finding.outcome]
    published = judge_all(runs, load_edition("2026-05"))[0].findings[0]
    assert published.outcome == ("pass" if growth == 2.0 else "fail")


def with_stream(run, stream, growth):
    measured = measurements(growth=growth, accuracy=run.measurements.scalars["accuracy"].value)
    conventions = {**run.measurements.conventions, STREAM: stream}
    conventions = {name: value for name, value in conventions.items() if value is not None}
    measured = dataclasses.replace(measured, conventions=conventions, sample_scores=run.measurements.sample_scores)
    trajectory = {"growth_max": series(1.0, growth)}
    return dataclasses.replace(run, measurements=measured, trajectory=trajectory)


LONG = "depends on the length of training"


def long_controls(accuracies, **changes):
    """Controls frozen_long of seeds 0, 1, …, of twice the epochs of the base spec."""
    fields = {"method": "bp", "control": "frozen_long", "epochs": 6, **changes}
    return [
        answered(record(f"long{seed}", measurements(accuracy=value), **fields, seed=seed))
        for seed, value in enumerate(accuracies)
    ]


@pytest.mark.parametrize(
    ("accuracies", "frozen", "longer", "state", "undecided"),
    [
        (HALF, 0.3, (0.31, 0.3, 0.31), "CLEARS", ()),
        (HALF, 0.3, (0.6, 0.61, 0.6), "UNDECIDED", (LONG,)),  # above over frozen, below over frozen_long
        (HALF, 0.3, (0.48, 0.49, 0.485), "UNDECIDED", (LONG,)),  # over frozen_long, the interval contains the limit
        ((0.25, 0.26, 0.25), 0.3, (0.31, 0.3, 0.31), "UNDERCUT", ()),
        ((0.25, 0.26, 0.25), 0.3, (0.15, 0.16, 0.15), "UNDECIDED", (LONG,)),  # the longer control got worse
        ((0.25, 0.26, 0.25), 0.3, (0.235, 0.24, 0.23), "UNDERCUT", ()),  # an open margin contradicts nothing
        ((0.08, 0.081, 0.08), 0.02, (0.3, 0.3, 0.3), "AT CHANCE", ()),
    ],
)
def test_the_margins_over_both_frozen_controls_have_to_agree_about_the_limit(
    accuracies, frozen, longer, state, undecided
):
    runs = [*over_seeds(dict(enumerate(accuracies)), dict.fromkeys(range(3), frozen)), *long_controls(longer)]
    finding = judge_all(runs, EDITION)[0].findings[2]
    assert (finding.state, finding.undecided) == (state, undecided)
    mean_margin = 100 * (sum(accuracies) - sum(longer)) / 3
    assert finding.over_frozen_long.mean == pytest.approx(mean_margin)
    low, high = finding.over_frozen_long.interval
    assert low < mean_margin < high and finding.over_frozen_long.seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("longer", "changes", "undecided"),
    [
        ((0.31, 0.3), {}, ("seeds left out",)),  # one seed has no such control
        ((0.31, 0.3, 0.31), {"weights": "ab"}, ("control unproven",)),
        ((0.6, 0.61, 0.6), {"epochs": 8}, ()),  # not twice the epochs: of another setting
        ((0.6, 0.61, 0.6), {"epochs": 7}, ()),
        ((), {}, ()),
    ],
)
def test_a_longer_control_that_is_incomplete_or_not_proven_decides_nothing(longer, changes, undecided):
    runs = over_seeds(dict(enumerate(HALF)), dict.fromkeys(range(3), 0.3))
    finding = judge_all([*runs, *long_controls(longer, **changes)], EDITION)[0].findings[2]
    assert finding.undecided == undecided and (finding.state == "CLEARS") == (not undecided)
    published = judge_all([*runs, *long_controls(longer, **changes)], load_edition("2026-05"))[0].findings[2]
    assert published.outcome == "pass"


@pytest.mark.long
def test_a_method_at_chance_passes_in_few_studies():
    """Three seeds guess ten classes on 360 samples; the controls answer by chance too, so 2 pp above them is luck."""
    draws = np.random.default_rng(51).binomial(360, 0.1, size=(400, 2, 3)) / 360
    passed = [over_controls(method, control, test_samples=360).outcome == "pass" for method, control in draws.tolist()]
    assert sum(passed) <= 4


@pytest.mark.parametrize("missing", ["chance", "test_samples"])
@pytest.mark.parametrize("accuracies", [HALF, (0.086, 0.087, 0.088), (0.25, 0.26, 0.25)])
def test_without_chance_or_the_size_of_the_test_set_nothing_is_decided(missing, accuracies):
    finding = over_controls(accuracies, (0.3,) * 3, **{missing: None})
    assert (finding.outcome, finding.undecided) == ("warn", ("test set unknown",))


@pytest.mark.parametrize(("samples", "state"), [(10_000, "CLEARS"), (360, "UNDECIDED")])
def test_equal_margins_are_no_certainty(samples, state):
    """+3 pp in three seeds: the test set alone leaves .34 pp open with 10,000 samples, 1.8 pp with 360."""
    finding = over_controls((0.53,) * 3, (0.5,) * 3, test_samples=samples)
    assert finding.state in (state, "OTHER SET")
    assert finding.undecided == (() if state == "CLEARS" else ("margin at the limit",))


# The size of Γ.


def test_a_gamma_that_is_specific_but_tiny_is_too_small():
    finding = findings(gamma_deep_mean=0.002)[3]
    assert (finding.outcome, finding.state, finding.quantity) == ("warn", "TOO SMALL", "gamma_deep_mean")
    assert (finding.observed, finding.threshold, finding.crossed) == (Reading(0.002), 0.05, "below")
    assert not finding.gating and FurtherLimit("gamma_null_p", 0.05) in finding.further
    assert label_of("gamma_deep_mean") in finding.sentence


def test_what_is_not_specific_is_not_called_small():
    finding = findings(gamma_deep_mean=0.002, gamma_null_p=(BEST_P, 0.3, BEST_P))[3]
    assert (finding.state, finding.quantity) == ("NOT SPECIFIC", "gamma_null_p")


def test_the_rule_names_the_smallest_gamma_that_counts():
    assert "Γ at least 0.05" in findings()[3].limit
    assert findings()[3].state == "SPECIFIC"
