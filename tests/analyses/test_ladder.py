"""Accuracy by trained blocks and by depth, by hand."""

from __future__ import annotations

import dataclasses

import pytest

from tests.analyses.builders import analysed, frozen, row, run, values


def of(*records):
    return analysed("ladder", records)


def rung(count, accuracy, seed=42, method="dfa", **changes):
    return run(method, seed, accuracy=accuracy, spec={"control": f"ladder_{count}", **changes})


def test_rungs_rise_from_the_foot_to_the_method():
    analysis = of(
        *(made for seed in (1, 2) for made in (rung(0, 0.3, seed), rung(1, 0.4, seed), run("dfa", seed, accuracy=0.6)))
    )
    assert [one["trained"].reading.value for one in analysis.rows] == [0.0, 1.0, 2.0]
    assert [one["accuracy"].reading.value for one in analysis.rows] == pytest.approx([0.3, 0.4, 0.6])
    assert [one["gain"].reading.value for one in analysis.rows] == pytest.approx([0.0, 10.0, 30.0])
    assert [one["of"].text for one in analysis.rows] == ["dfa ladder 0", "dfa ladder 1", "dfa"]
    assert analysis.remarks == ()


def test_the_frozen_control_is_the_foot_where_no_rung_0_was_run():
    analysis = of(frozen(accuracy=0.3), rung(1, 0.4), run("dfa", accuracy=0.6))
    assert [one["of"].text for one in analysis.rows] == ["frozen", "dfa ladder 1", "dfa"]
    assert [one["of"].text for one in of(frozen(accuracy=0.3), run("dfa")).rows] == [
        "frozen",
        "dfa",
    ]  # rung 1 stays open
    both = of(frozen(accuracy=0.1), rung(0, 0.3), rung(1, 0.4), run("dfa", accuracy=0.6))
    assert values(row(both.tables[0], trained=0.0), "accuracy") == [0.3]


def test_the_foot_of_a_penalised_ladder_has_no_penalty():
    analysis = of(
        rung(0, 0.3), rung(1, 0.4, penalty=0.1), rung(1, 0.9), run("dfa", accuracy=0.6, spec={"penalty": 0.1})
    )
    assert [one["accuracy"].reading.value for one in analysis.rows] == [0.3, 0.4, 0.6]


def test_rungs_of_another_method_or_setting_are_not_its_own():
    analysis = of(rung(1, 0.4, method="fa"), rung(1, 0.4, epochs=9), frozen(accuracy=0.3, epochs=9), run("dfa"))
    assert [one["of"].text for one in analysis.rows] == ["dfa"]
    assert values(analysis.rows[0], "gain") == ["no foot of the same seed: neither ladder_0 nor a frozen control"]
    assert "no rung was run between the ends of dfa in tiny setting" in analysis.remarks


def test_depths_of_one_method_stand_together():
    def deep(blocks, accuracy):
        options = {"d_hidden": 16, "num_blocks": blocks}
        made = run("dfa", accuracy=accuracy, spec={"architecture_options": options})
        return dataclasses.replace(made, run_id=f"{blocks}", setting=f"resmlp-16x{blocks}")

    control = frozen(accuracy=0.3, architecture_options={"d_hidden": 16, "num_blocks": 4})
    wide = run("dfa", spec={"architecture_options": {"d_hidden": 32, "num_blocks": 4}})
    table = of(deep(8, 0.7), deep(2, 0.5), deep(4, 0.6), control, wide).table("depth")
    assert [one["blocks"].reading.value for one in table.rows] == [2.0, 4.0, 8.0]
    assert {one["scan"].text for one in table.rows} == {"resmlp-16x2"}
    assert [values(one, "frozen")[0] for one in table.rows] == [
        "no frozen control at this depth",
        0.3,
        "no frozen control at this depth",
    ]


def test_one_depth_is_no_scan():
    assert of(run("dfa"), run("fa")).table("depth").rows == ()
