"""Which runs a published figure is about, and what makes them another experiment."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.protocol.reproduction import reproduction
from fa_registry.protocol.reproduction.figure_verdicts import alike, differences, figure_of, nearest
from fa_registry.protocol.rules import load_edition
from fa_registry.records import REPRODUCTION_OUTCOMES, Integrity, Published, Recipe, Reference
from tests.analyses.builders import report_of, run
from tests.builders import spec
from tests.protocol.reproduction.builders import figure, row, seeds

CARDS = {
    "architectures/resmlp": {"options": {"d_hidden": {"default": 256}, "terminal_ln": {"default": True}}},
    "methods/bp": {"options": {"tau": {"default": 1.0}}},
}


def unlike(one, cards=CARDS, **changes):
    return list(differences(one, dataclasses.replace(spec(method="bp"), **changes), cards))


def test_the_published_experiment_has_no_difference():
    assert unlike(figure(0.6)) == []


def test_an_option_the_reference_does_not_name_had_its_default():
    options = {"d_hidden": 16, "num_blocks": 2}
    assert unlike(figure(0.6), architecture_options={**options, "terminal_ln": True}) == []
    (apart,) = unlike(figure(0.6), architecture_options={**options, "terminal_ln": False})
    assert apart.startswith("terminal_ln:") and "True" in apart and "False" in apart
    (apart,) = unlike(figure(0.6), cards={}, architecture_options={**options, "new": 3})
    assert apart.startswith("new:") and apart.endswith(" 3")
    (apart,) = unlike(figure(0.6), method_options={"tau": 2.0})
    assert apart.startswith("tau:") and " 1.0" in apart and apart.endswith(" 2.0")
    assert unlike(figure(0.6, method_options={"tau": 2.0}), method_options={"tau": 2.0}) == []


def test_an_option_the_runs_do_not_have_is_a_difference():
    setting = {"architecture_options": {"d_hidden": 16, "num_blocks": 2, "alpha": 1.0}}
    (apart,) = unlike(figure(0.6, setting=setting))
    assert apart.startswith("alpha:") and " 1.0" in apart


def test_the_recipe_counts():
    other = Recipe(batch_size=256)
    (apart,) = unlike(figure(0.6), recipe=other)
    assert apart.startswith("batch_size:") and " 128" in apart and apart.endswith(" 256")
    assert unlike(figure(0.6, setting={"recipe": {"batch_size": 256}}), recipe=other) == []


def found(records):
    return groups(report_of(records, load_edition("2026-05")))


def test_the_nearest_group_is_taken_and_more_runs_before_fewer():
    far = seeds(0.1, 0.1, spec={"epochs": 9})
    here, there = seeds(0.5, 0.5), seeds(0.6, 0.6, 0.6, spec={"device_class": "cuda"})
    group, apart = nearest(figure(0.6), found([*far, *here, *there]), CARDS)
    assert apart == () and len(group.runs) == 3
    assert len(alike(figure(0.6), found([*far, *here, *there]), CARDS)) == 2
    group, apart = nearest(figure(0.6), found(far), CARDS)
    assert len(apart) == 1 and apart[0].startswith("epochs:")


def test_runs_trained_here_come_before_adopted_ones():
    adopted = [run("bp", seed, spec={"weights": "ab" * 32}) for seed in (1, 2, 3)]
    group, _ = nearest(figure(0.6), found([*adopted, *seeds(0.5)]), CARDS)
    assert not group.runs[0].record.spec.weights


def test_method_penalty_control_and_network_must_be_the_same():
    for one in (
        figure(0.6, method="fa"),
        figure(0.6, penalty=0.1),
        figure(0.6, control="frozen"),
        figure(0.6, setting={"architecture": "mlp"}),
    ):
        assert nearest(one, found(seeds(0.5)), CARDS) is None


D1, D2 = load_edition("2026-05").rules[:2]
RUN = run(
    "dfa",
    accuracy=0.4,
    sites={"rho": (0.1, 0.2, 0.6)},
    lines={"g_norm_mean_ce_L": (8e-3, 1e-3, 1e-8), "growth_max": (1.0, 60.0, 70.0), "accuracy": (0.1, 0.2, 0.3)},
)


def taken(quantity, rule=None, record=RUN, **changes):
    reading = figure_of(figure(1.0, quantity=quantity, **changes), record, rule).reading
    return reading.reason or reading.value


@pytest.mark.parametrize(("site", "value"), [("0", 0.1), ("2", 0.6), ("last", 0.6), ("mid", 0.2)])
def test_sites(site, value):
    assert taken("rho", site=site) == value


def test_scalars_epochs_and_factors():
    assert taken("accuracy") == 0.4 and taken("accuracy", epoch=1) == 0.2
    assert taken("g_norm_mean_ce", site="last", epoch=0) == 8e-3
    assert taken("accuracy", factor=0.125) == pytest.approx(0.05)


def test_first_fires():
    assert taken("first_fire", D1) == 1.0 and taken("first_fire", D2) == 2.0
    quiet = dataclasses.replace(RUN, trajectory={"growth_max": RUN.trajectory["growth_max"][:1]})
    assert "never fires" in taken("first_fire", D1, quiet)
    assert "g_norm_mean_ce" in taken("first_fire", D2, quiet)


def test_never_is_reported_only_where_every_epoch_has_a_number():
    gap = run("dfa", lines={"growth_max": (1.0, "lost", 2.0)})
    assert taken("first_fire", D1, gap).endswith("lost")
    quiet = run("dfa", lines={"growth_max": (1.0, 1.5, 2.0)})
    changed = dataclasses.replace(quiet, integrity=Integrity("mismatch"))
    fire = figure(1.0, quantity="first_fire")
    never_fired = [figure_of(fire, record, D1).never for record in (quiet, gap, RUN, changed)]
    assert never_fired == [True, False, False, False]


def test_what_is_missing_says_why():
    assert "no site 7" in taken("rho", site="7")
    assert taken("nudge", site="last") == "nudge was not measured"
    assert "epoch 9" in taken("accuracy", epoch=9)
    part = run("dfa", sites={"rho": (0.1, "lost", 0.6)})
    assert taken("rho", site="1", record=part) == "lost"


SMALL, WIDE = (0.61, 0.615, 0.62), (0.3, 0.6, 0.9)


@pytest.mark.parametrize(
    ("accuracies", "outcome"),
    [
        (SMALL, "reproduced"),
        (WIDE, "not shown"),
        ((0.3, 0.301, 0.299), "differs"),
        ((0.615,), "not shown"),
        (("lost", "lost", "lost"), "not measured"),
        ((0.61, 0.62, "lost"), "not shown"),
    ],
)
def test_the_outcomes_of_an_accuracy(accuracies, outcome):
    found = row(figure(Published(mean=0.615, std=0.004, n=3)), seeds(*accuracies))
    assert found.outcome == outcome and found.outcome in REPRODUCTION_OUTCOMES
    assert len(found.measured) == len(accuracies)


def test_why_says_one_seed_and_which_number_is_missing():
    assert "two runs" in row(figure(0.6), seeds(0.6)).reason
    assert "1 of 3 runs" in row(figure(0.6), seeds(0.6, "crashed", 0.6)).reason
    assert row(figure(0.6), seeds("crashed", "crashed")).reason == "crashed"


def test_another_data_set_length_or_option_is_shown_but_not_tested():
    setting = {"dataset": "cifar10", "epochs": 100, "architecture_options": {"d_hidden": 256, "num_blocks": 2}}
    found = row(figure(0.615, setting=setting), seeds(*SMALL))
    assert found.outcome == "not comparable" and found.interval_90 is None and found.margin == 0
    assert [part.split(":")[0] for part in found.reason.split("; ")] == ["data set", "epochs", "d_hidden"]
    assert found.mean.value == pytest.approx(0.615) and found.difference.reason == "not tested"


def test_no_run_is_not_measured():
    assert "dfa on resmlp" in row(figure(0.3, method="dfa"), seeds(*SMALL)).reason
    assert row(figure(0.3, penalty=0.01), seeds(*SMALL)).outcome == "not measured"
    assert row(figure(0.3, control="frozen"), seeds(*SMALL)).outcome == "not measured"


def test_what_runs_cannot_yield_says_why():
    found = row(figure(0.3, not_measured="it counts methods"), seeds(*SMALL))
    assert (found.outcome, found.reason, found.measured) == ("not measured", "it counts methods", ())


def test_a_value_not_at_hand_is_measured_and_never_tested():
    absent = {"not_at_hand": "no copy of the paper"}
    found = row(figure(Published(), **absent), seeds(*SMALL))
    assert (found.outcome, found.interval_90, found.margin) == ("not at hand", None, 0.0)
    assert absent["not_at_hand"] in found.reason
    assert found.mean.value == pytest.approx(0.615) and len(found.measured) == 3
    longer = row(figure(Published(), setting={"epochs": 100}, **absent), seeds(*SMALL))
    assert longer.outcome == "not at hand" and "; epochs:" in longer.reason
    without_runs = row(figure(Published(), method="dfa", **absent), seeds(*SMALL))
    assert (without_runs.outcome, without_runs.measured) == ("not at hand", ())
    assert "dfa on resmlp" in without_runs.reason


def test_a_tampered_run_is_no_evidence():
    good = seeds(*SMALL)
    bad = dataclasses.replace(good[0], integrity=Integrity("mismatch"))
    found = row(figure(0.615), [bad, *good[1:]])
    assert found.outcome == "not shown" and "were not reproduced" in found.reason


def test_every_figure_has_one_row_in_order():
    several = tuple(figure(value, method=method) for value in (0.1, 0.2) for method in ("bp", "ep", "unknown"))
    report = report_of(seeds(*SMALL), load_edition("2026-05"))
    found = reproduction(Reference("study", "title", "digest", several, ("a remark",)), report)
    assert tuple(row.figure for row in found.rows) == several
    assert (found.reference, found.digest, found.remarks) == ("study", "digest", ("a remark",))
    assert [one.outcome for one in found.rows[:3]] == ["differs", "not measured", "not measured"]


def test_mean_and_deviation_are_those_of_the_runs():
    found = row(figure(0.615), seeds(*SMALL))
    assert (found.mean.value, found.std.value) == pytest.approx((0.615, 0.005))
    assert found.run_ids == ("bp-42", "bp-123", "bp-456")


def test_a_norm_is_compared_in_decades():
    runs = [run("bp", seed, h_L=value) for seed, value in ((42, 1e8), (123, 1e9))]
    found = row(figure(4e8, 4.0, quantity="h_L", scale="log10"), runs)
    assert found.outcome == "reproduced" and found.mean.value == pytest.approx(10**8.5)
    assert found.difference.value == pytest.approx(8.5 - 8.602060)
    assert row(figure(4e8, 0.5, quantity="h_L", scale="log10"), runs).outcome == "not shown"


def test_the_published_edition_says_when_a_rule_first_fires():
    """2026-12 asks of D2 that the gain is low too; the published first fires know no gain."""
    lines = {"g_norm_mean_ce_L": (1e-3, 1e-8, 1e-8), "growth_max": (1.0, 2.0, 2.0)}
    runs = [run("bp", seed, lines=lines) for seed in (42, 123)]
    found = row(figure(Published(values=(1, 1)), 5, quantity="first_fire", rule="D2"), runs)
    assert [one.reading.value for one in found.measured] == [1.0, 1.0] and found.outcome == "reproduced"
