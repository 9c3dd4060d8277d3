"""What a run is compared with, and what its seeds amount to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fa_registry.metrics import ACCURACY, TOKEN_LOSS, declaration, own_headline
from fa_registry.protocol.engine import judge, judge_all
from fa_registry.protocol.evidence_rules import PROVING, control_doubt
from fa_registry.protocol.grouping import frozen_controls, groups
from fa_registry.protocol.paired_runs import (
    BY_HAND,
    NO_CONTROL,
    OTHER_START,
    SEVERAL,
    RunWithControl,
    SeedGroup,
    shortened,
)
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport, Check, Conformance, Integrity, Reading, Recipe
from fa_registry.records.configurations import CONFIGURATION, SAME_MACHINE
from fa_registry.statistics import (
    CROSSED,
    PAIRED,
    crossed_mean,
    paired_difference,
    t_interval,
    with_proportions,
)
from tests.builders import answered, frozen, measurements, over_seeds, record
from tests.helpers.welch import welch_interval


def given(run, accuracy):
    """The run with a frozen accuracy that its owner gave."""
    scalars = {**run.measurements.scalars, "frozen_accuracy": accuracy}
    return dataclasses.replace(run, measurements=dataclasses.replace(run.measurements, scalars=scalars))


def sized(run, count):
    """The run with a test set of so many samples, and their answers; none if the size is not known."""
    made = answered(run, count)
    conventions = {**made.measurements.conventions, "test_samples": count}
    scores = made.measurements.sample_scores if count else {}
    return dataclasses.replace(
        run, measurements=dataclasses.replace(made.measurements, conventions=conventions, sample_scores=scores)
    )


def crossed(accuracies, controls, samples=10_000):
    """The interval in percentage points of runs whose first samples are right."""
    right = [
        [np.arange(samples) < round(side[seed] * samples) for side in (accuracies, controls)] for seed in accuracies
    ]
    interval = crossed_mean([100.0 * (run.astype(int) - control) for run, control in right]).interval
    return pytest.approx((interval.low, interval.high))


def widened(interval, *shares, samples=10_000):
    """The ends in percentage points, with the error of a share of the test samples on each side."""
    scaled = dataclasses.replace(interval, low=100 * interval.low, high=100 * interval.high)
    wide = with_proportions(scaled, shares, samples, 100)
    return pytest.approx((wide.low, wide.high))


def margins(records):
    controls = {seed: run for (_, seed), (run,) in frozen_controls(records).items()}
    runs = [run for run in records if run.spec.control == "none"]
    return SeedGroup(tuple(RunWithControl(run, controls.get(run.spec.seed)) for run in runs)).margins


def test_the_interval_is_that_of_the_paired_difference():
    accuracies, controls = {1: 0.90, 2: 0.93, 3: 0.88}, {1: 0.86, 2: 0.87, 3: 0.85}
    found = margins(over_seeds(accuracies, controls))
    expected = paired_difference(accuracies, controls)
    assert found.mean == pytest.approx(100 * expected.mean)
    assert found.interval == crossed(accuracies, controls)
    assert (found.seeds, found.notes, found.test) == ((1, 2, 3), (), CROSSED)
    assert 0 < found.error_shares[1] < 1


def test_without_answers_the_error_of_the_test_set_is_that_of_two_shares():
    accuracies, controls = {1: 0.90, 2: 0.93, 3: 0.88}, {1: 0.86, 2: 0.87, 3: 0.85}
    runs = over_seeds(accuracies, controls)
    for missing in (runs[0], runs[-1]):  # of one run, or of one control
        left = [without_answers(run) if run is missing else run for run in runs]
        expected = paired_difference(accuracies, controls).interval
        found = margins(left)
        assert found.interval == widened(expected, 2.71 / 3, 2.58 / 3)
        assert (found.error_shares, found.test) == (None, f"{PAIRED} and Wilson intervals")


@pytest.mark.parametrize("samples", [360, 10_000])
def test_equal_margins_have_the_error_of_the_test_set(samples):
    accuracies, controls = {1: 0.825, 2: 0.925}, {1: 0.80, 2: 0.90}
    found = margins([sized(run, samples) for run in over_seeds(accuracies, controls)])
    assert found.interval == crossed(accuracies, controls, samples)


def test_no_interval_is_narrower_than_one_test_sample():
    """Three runs that answer like their controls: no sample shows a difference, and one more could."""
    found = margins(
        [sized(run, 360) for run in over_seeds(dict.fromkeys((1, 2, 3), 0.8), dict.fromkeys((1, 2, 3), 0.8))]
    )
    assert found.interval == pytest.approx((-100 / 720, 100 / 720)) and "no spread" in found.notes[-1]


def without_answers(run):
    return dataclasses.replace(run, measurements=dataclasses.replace(run.measurements, sample_scores={}))


def test_one_seed_has_no_interval():
    found = margins(over_seeds({1: 0.9}, {1: 0.8}))
    assert (found.mean, found.interval, found.seeds, found.notes) == (10.0, None, (1,), ())


def test_a_seed_without_partner_figure_or_end_is_left_out_and_named():
    records = over_seeds({1: 0.9, 2: 0.9, 3: None, 4: 0.9, 5: 0.9}, {1: 0.8, 3: 0.8, 4: 0.8, 5: None})
    records[3] = dataclasses.replace(records[3], status="stopped_early")
    found = margins(records)
    assert found.seeds == (1,)
    assert [note[:6] for note in found.notes] == ["seed 2", "seed 3", "seed 4", "seed 5"]
    assert NO_CONTROL in found.notes[0] and "early" in found.notes[2] and "of the control" in found.notes[3]


def test_a_seed_with_another_main_metric_is_left_out():
    """A run that declares another metric, or records another one, is not compared by a metric that it merely has too."""
    records = over_seeds({1: 0.9, 2: 0.9}, {1: 0.8, 2: 0.8})
    own = own_headline("miss", "miss", "distance", unit="cm", direction="lower")
    measured = records[1].measurements
    declared = dataclasses.replace(measured, conventions={**measured.conventions, **declaration(own)})
    records[1] = dataclasses.replace(records[1], measurements=declared)
    found = margins(records)
    assert found.seeds == (1,) and len(found.notes) == 1 and "miss" in found.notes[0]


def test_one_weights_file_under_several_seeds_is_one_value():
    """Three names for one checkpoint have no spread: their interval would be of width zero."""
    records = over_seeds({1: 0.9, 2: 0.9, 3: 0.8}, {1: 0.8, 2: 0.8, 3: 0.8})
    adopted = [
        dataclasses.replace(one, spec=dataclasses.replace(one.spec, weights=file))
        for one, file in zip(records[:3], ("ab", "ab", "cd"), strict=True)
    ]
    found = margins([*adopted, *records[3:]])
    assert found.seeds == (1, 3)
    assert any(note.startswith("seed 2") and "same weights file" in note for note in found.notes)


def test_a_diverged_seed_counts():
    """Leaving it out would judge the method by its luckier seeds."""
    records = over_seeds({1: 0.9, 2: 0.1}, {1: 0.8, 2: 0.8})
    records[1] = dataclasses.replace(records[1], status="diverged")
    assert margins(records).mean == pytest.approx(-30.0)


def test_of_a_seed_that_was_run_twice_the_newest_complete_run_counts():
    """Not their mean: an author who trains a seed again may not choose its weight."""
    again = record("again", measurements(accuracy=0.92), seed=1)
    broken = record("broken", measurements(accuracy=0.1), seed=1, status="diverged")
    found = margins([*over_seeds({1: 0.9}, {1: 0.8}), again, broken])
    assert (found.mean, found.interval) == (12.0, None)
    (note,) = found.notes
    assert all(name in note for name in ("again", "r1 (complete)", "broken (diverged)"))


def judged_runs(records):
    """The audits of the runs that are no controls, by run id."""
    return {
        run.record.run_id: run
        for run in judge_all(records, load_edition("2026-12"))
        if run.record.spec.control != "frozen"
    }


def test_a_superseded_run_is_never_a_pass_and_one_that_repeats_the_counted_run_is_judged_as_it_is():
    records = over_seeds({1: 0.9, 2: 0.91, 3: 0.92}, {1: 0.8, 2: 0.8, 3: 0.8})
    records = [with_weights(one, f"w{one.run_id}") for one in records]
    same = dataclasses.replace(records[0], run_id="same")
    other = with_weights(record("other", measurements(accuracy=0.99), seed=2), "else")
    found = judged_runs([other, *records, same])
    assert {name: run.verdict.label for name, run in found.items()} == {
        **dict.fromkeys(("r1", "r2", "r3", "same"), "PASS"),
        "other": "WARN(duplicate superseded)",
    }
    assert {run.findings[2].seeds for name, run in found.items() if name != "other"} == {3}


def with_weights(run, digest):
    """The run with this digest of its final weights."""
    return dataclasses.replace(run, provenance={"final_weights": digest})


def checked(control, **outcomes):
    """The control with these outcomes of its checks; None takes a check away."""
    found = {**dict.fromkeys(PROVING, "agrees"), **{name.replace("_", " "): one for name, one in outcomes.items()}}
    checks = tuple(Check(subject, outcome, f"why {subject}") for subject, outcome in found.items() if outcome)
    return dataclasses.replace(control, integrity=Integrity("verified", (), checks))


FAILED = Conformance("failed", ("credits",))
DOUBTED = {
    "adopted": (frozen(weights="ab"), "trained by another program and adopted"),
    "own loop": (dataclasses.replace(frozen(), provenance={"own_loop": {}}), "an own loop"),
    "own loop, recomputed": (
        dataclasses.replace(checked(frozen(), code="not possible"), provenance={"own_loop": {}}),
        "an own loop trained the control; code: why code",
    ),
    "own loop, not recomputed": (
        dataclasses.replace(frozen(), integrity=Integrity("unverifiable"), provenance={"own_loop": {}}),
        "an own loop trained the control",
    ),
    "diverged": (dataclasses.replace(frozen(), status="diverged"), "the status of the control is diverged"),
    "failed method": (
        dataclasses.replace(frozen(), conformance=FAILED),
        "the method bp of the control failed conformance",
    ),
    "another method": (
        record("f", measurements(accuracy=0.5), method="dfa", control="frozen"),
        "method dfa trained the control, expected bp",
    ),
    "unverifiable": (
        dataclasses.replace(frozen(), integrity=Integrity("unverifiable")),
        "the metrics of the control are unverifiable",
    ),
    "trusted alone": (
        dataclasses.replace(frozen(), integrity=Integrity("trusted")),
        "the metrics of the control are trusted",
    ),
    "no code": (checked(frozen(), code="not possible"), "code: why code"),
    "no steps": (checked(frozen(), first_steps="not possible"), "first steps: why first steps"),
    "no check": (checked(frozen(), initial_weights=None), "initial weights: not checked"),
    "no draw": (
        checked(frozen(), initial_weights="not possible", first_steps=None),
        "initial weights: why initial weights",
    ),
}


@pytest.mark.parametrize("control", DOUBTED)
@pytest.mark.parametrize("edition", ["2026-04", "2026-05", "2026-05:strict", "2026-12"])
def test_a_control_of_which_anything_is_not_proven_gives_no_pass(control, edition):
    doubted, why = DOUBTED[control]
    one_seed = {"2026-12": ("WARN(D3 undecided, above)", "UNDECIDED")}.get(edition)
    run = judge(record(), doubted, load_edition(edition))
    (finding,) = [finding for finding in run.findings if finding.rule in ("D3", "d")]
    label, state = one_seed or (f"WARN({finding.rule} stated)", "STATED")
    assert why in run.frozen_doubt and why in finding.sentence and finding.stated
    assert (run.verdict.label, finding.state, finding.reference_run_id) == (label, state, "f")


def test_initial_weights_that_another_machine_cannot_redraw_are_proven_by_the_first_steps():
    assert RunWithControl(record(), checked(frozen(), initial_weights="not possible")).doubt == ""


@pytest.mark.parametrize(
    ("start", "processor", "doubt"), [("ab", "A", ""), ("cd", "A", OTHER_START), ("cd", "B", ""), ("", "A", "")]
)
def test_a_control_starts_from_the_weights_of_its_run(start, processor, doubt):
    def started(one, start, processor):
        measured = dataclasses.replace(
            one.measurements,
            conventions={**dict.fromkeys((*SAME_MACHINE, *CONFIGURATION), "1"), "processor": processor},
        )
        return dataclasses.replace(one, provenance={"initial_weights": start}, measurements=measured)

    control = started(frozen(), start, processor)
    assert RunWithControl(started(record(), "ab", "A"), control).doubt == doubt


def test_where_the_whole_audit_trusts_logged_metrics_a_trusted_control_is_the_reference():
    trusted = Integrity("trusted")
    run, control = (dataclasses.replace(one, integrity=trusted) for one in (record(), frozen()))
    assert RunWithControl(run, control).doubt == ""
    adopted = dataclasses.replace(control, spec=dataclasses.replace(control.spec, weights="ab"))
    assert "adopted" in RunWithControl(run, adopted).doubt


def test_an_unproven_control_above_the_run_still_fails_it():
    assert judge(record(), checked(frozen(accuracy=0.95), code=None), EDITION).verdict.label == "FAIL(D3)"


def test_of_controls_that_differ_none_is_taken_and_of_equal_ones_the_newest():
    first, second, other = frozen("f1", 0.5), frozen("f2", 0.5), frozen("f3", 0.4)
    (audit, *_) = judge_all([record(), first, second], EDITION)
    assert (audit.frozen_run_id, audit.frozen_doubt, audit.verdict.outcome) == ("f2", "", "pass")
    for edition in ("2026-04", "2026-05", "2026-12"):
        (audit, *_) = judge_all([record(), first, second, other], load_edition(edition))
        assert (audit.frozen_run_id, audit.verdict.outcome) == ("", "incomplete")
        assert audit.frozen_doubt == SEVERAL.format(count=2, run_ids="f2 and f3")


def test_a_frozen_accuracy_given_by_hand_stands_in_and_is_named():
    runs = over_seeds({1: 0.9, 2: 0.9}, {1: 0.8})
    runs[1] = given(runs[1], Reading(0.7))
    found = margins(runs)
    assert (found.mean, found.seeds) == (15.0, (1, 2))
    assert len(found.notes) == 1 and "seed 2" in found.notes[0] and BY_HAND in found.notes[0] and found.stated


def test_a_stated_frozen_accuracy_is_not_paired():
    accuracies, stated = {1: 0.90, 2: 0.93, 3: 0.88}, {1: 0.86, 2: 0.87, 3: 0.85}
    found = margins([given(run, Reading(stated[run.spec.seed])) for run in over_seeds(accuracies, {})])
    expected = welch_interval(accuracies.values(), stated.values())
    assert found.mean == pytest.approx(100 * 0.13 / 3)
    assert (found.interval, found.test) == (
        widened(expected, 2.71 / 3, 2.58 / 3),
        "Welch's t test and Wilson intervals",
    )
    assert not margins(over_seeds(accuracies, stated)).stated


@pytest.mark.parametrize("figures", [(0.5, 0.5, 0.5), (0.5, 0.5001, 0.4999)])
def test_one_stated_number_for_all_seeds_is_one_draw(figures):
    """Twice as wide as if it were the control of each seed: √(n + 1). Digits below a test sample make no second draw."""
    runs = over_seeds({1: 0.90, 2: 0.93, 3: 0.88}, {})
    runs = [given(run, Reading(figure)) for run, figure in zip(runs, figures, strict=True)]
    runs = [sized(run, 360) for run in runs]
    alone = t_interval([0.90, 0.93, 0.88])
    centre = 2.71 / 3 - 0.5
    twice = dataclasses.replace(alone, low=centre - alone.high + alone.low, high=centre + alone.high - alone.low)
    assert margins(runs).interval == widened(twice, 2.71 / 3, 0.5, samples=360)
    assert "one stated value" in margins(runs).test


def test_one_stated_figure_among_measured_ones_makes_all_of_them_a_sample():
    runs = over_seeds({1: 0.90, 2: 0.93, 3: 0.88}, {1: 0.86, 2: 0.87})
    runs[2] = given(runs[2], Reading(0.85))
    found, expected = margins(runs), welch_interval([0.90, 0.93, 0.88], [0.86, 0.87, 0.85])
    assert found.stated and found.interval == widened(expected, 2.71 / 3, 2.58 / 3)


def test_a_trained_control_comes_before_one_given_by_hand():
    run = given(record(), Reading(0.7))
    assert RunWithControl(run, frozen("f", 0.5)).reference("accuracy") == RunWithControl(
        record(), frozen("f", 0.5)
    ).reference("accuracy")
    assert RunWithControl(run, None).reference("accuracy").reading == Reading(0.7)
    assert RunWithControl(given(run, Reading(None, "unknown")), None).reference("accuracy").reading.reason == NO_CONTROL


def test_a_control_without_the_figure_says_so():
    control = dataclasses.replace(frozen(), measurements=dataclasses.replace(measurements(), scalars={}))
    reference = RunWithControl(record(), control).reference("accuracy")
    assert "accuracy" in reference.reading.reason


def test_a_large_group_is_not_listed_in_full_by_each_of_its_runs():
    few = margins(over_seeds(dict.fromkeys(range(30), 0.9), {1: 0.8, 2: 0.7}))
    many = margins(over_seeds(dict.fromkeys(range(3000), 0.9), {1: 0.8, 2: 0.7}))
    assert (len(few.notes), few.notes[-1]) == (11, "18 more left out")
    assert (len(many.notes), many.notes[-1]) == (11, "2988 more left out")
    assert shortened(range(12)) == [*map(str, range(10)), "2 more"]


EDITION = load_edition("2026-05")


def key(run):
    return run.spec.setting.identity, run.spec.seed


def test_a_run_meets_the_frozen_control_of_its_own_setting_and_seed_only():
    run = record()
    (control,) = frozen_controls([frozen("same")])[key(run)]
    assert control.run_id == "same"
    others = [frozen("epochs", epochs=4), frozen("seed", seed=7), frozen("width", architecture_options={"d_hidden": 8})]
    assert key(run) not in frozen_controls(others)


def test_penalty_and_credit_norm_do_not_part_a_run_from_its_control():
    assert key(record(penalty=0.01)) == key(frozen())


def test_an_unfinished_control_does_not_count():
    assert frozen_controls([record("f", status="diverged", method="bp", control="frozen")]) == {}


def test_groups_hold_the_seeds_of_one_method_controls_last():
    runs = [frozen("f"), record("b", seed=7), record("a"), record("p", penalty=0.01)]
    report = AuditReport("t", "s", EDITION.reference, tuple(judge(run, None, EDITION) for run in runs))
    found = groups(report)
    assert [group.method for group in found] == ["dfa", "dfa+pen λ=0.01", "frozen"]
    assert [run.record.run_id for run in found[0].runs] == ["b", "a"]
    assert [group.control for group in found] == [False, False, True]


def test_what_is_trained_otherwise_stands_in_a_group_of_its_own():
    others = [
        record("norm", recipe=Recipe(credit_norm="none")),
        record("options", method_options={"std": 1.0}),
        record("adopted", weights="ab" * 32),
        record("adopted too", seed=7, weights="cd" * 32),
    ]
    runs = [record("a"), *others, record("b", seed=7)]
    report = AuditReport("t", "s", EDITION.reference, tuple(judge(run, None, EDITION) for run in runs))
    assert [[run.record.run_id for run in group.runs] for group in groups(report)] == [
        ["b", "a"],
        ["norm"],
        ["options"],
        ["adopted too", "adopted"],
    ]


def of_tokens(losses, stated):
    """Runs on tokens with a frozen loss per token that their author stated."""
    made = []
    for run in over_seeds(dict.fromkeys(losses, 0.5), {}):
        seed, conventions = run.spec.seed, {"test_samples": 4}
        scalars = {"token_loss": Reading(losses[seed]), "frozen_token_loss": Reading(stated[seed])}
        measured = dataclasses.replace(run.measurements, scalars=scalars, conventions=conventions)
        made.append(dataclasses.replace(run, measurements=measured))
    return made


@pytest.mark.parametrize(
    ("stated", "one_draw"),
    [
        ({1: 3.30, 2: 3.31, 3: 3.29}, True),  # less than .05 nats apart
        ({1: 3.30, 2: 3.40, 3: 3.50}, False),  # one of four samples would be .25 nats
    ],
)
def test_stated_token_losses_have_no_share_of_one_sample(stated, one_draw):
    """Losses closer than the threshold of D3 are one draw of unknown origin; others are a sample of their own."""
    losses = {1: 3.00, 2: 3.04, 3: 3.10}
    found = margins(of_tokens(losses, stated))
    mean = sum(stated.values()) / 3 - sum(losses.values()) / 3
    assert found.stated and found.mean == pytest.approx(mean)
    alone, sample = t_interval(losses.values()), welch_interval(stated.values(), losses.values())
    expected = 2 * (alone.high - alone.low) if one_draw else sample.high - sample.low
    assert found.interval[1] - found.interval[0] == pytest.approx(expected)


def test_the_step_of_a_token_loss_is_the_threshold_of_its_edition():
    (rule,) = (rule for rule in load_edition("2026-12:token").rules if rule.code == "D3")
    assert TOKEN_LOSS.resolution(360) == TOKEN_LOSS.resolution(0) == rule.threshold
    assert ACCURACY.resolution(360) == pytest.approx(100 / 360) and ACCURACY.resolution(0) == 0.0


def test_of_an_own_loop_that_cannot_be_recomputed_one_reason_is_enough():
    control, why = DOUBTED["own loop, not recomputed"]
    assert control_doubt(control) == why
