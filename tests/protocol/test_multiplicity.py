"""Several methods in one audit are several chances, and page one states that."""

from __future__ import annotations

import dataclasses

from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.grouping import compared_methods
from fa_registry.protocol.rules import load_edition
from tests.builders import frozen, measurements, record

EDITION = load_edition("2026-12")
SEEDS = (1, 2, 3)


def remark(**methods):
    """methods: name → accuracies of three seeds, with frozen controls of .5."""
    runs = [
        record(f"{method}{seed}", measurements(accuracy=value), method=method, seed=seed)
        for method, values in methods.items()
        for seed, value in zip(SEEDS, values, strict=True)
    ]
    runs += [frozen(f"f{seed}", seed=seed) for seed in SEEDS]
    return " ".join(compared_methods(judge_all(runs, EDITION)))


CLEAR, NEAR, UNDER = (0.9, 0.901, 0.899), (0.545, 0.56, 0.55), (0.3, 0.31, 0.3)


def test_one_method_is_one_chance():
    assert remark(bp=CLEAR) == ""


def test_the_probability_is_that_of_methods_exactly_at_the_limit():
    """1 − .975ⁿ: two methods 5 %, eighteen 37 %."""
    assert "2 methods are" in remark(bp=CLEAR, dfa=UNDER)
    assert "5% of such audits" in remark(bp=CLEAR, dfa=UNDER)
    eighteen = remark(**{f"m{index}": UNDER for index in range(18)})
    assert "18 methods" in eighteen and "37% of" in eighteen and "Holm" not in eighteen


def test_holm_names_those_that_clear_over_all_methods():
    """Margins of 4.5, 6 and 5 pp clear 2 pp alone (p = .009), not as one of four; 40 pp do."""
    alone = judge_all([record("r1"), frozen()], EDITION)
    assert list(compared_methods(alone)) == []
    remarks = remark(bp=CLEAR, dfa=NEAR, fa=UNDER, ep=UNDER)
    assert "limit: 2." in remarks and "all 4 methods: bp." in remarks
    assert "2 methods: bp, dfa." in remark(bp=CLEAR, dfa=NEAR)
    assert "4 methods: none." in remark(fa=UNDER, dfa=NEAR, ep=UNDER, drtp=UNDER)


def test_stated_margins_and_those_without_spread_are_no_error():
    assert "2 methods: bp, dfa." in remark(bp=(0.9,) * 3, dfa=(0.8,) * 3)
    runs = judge_all(
        [record(f"r{seed}", measurements(accuracy=0.9 + seed / 100), seed=seed) for seed in SEEDS], EDITION
    )
    stated = [
        dataclasses.replace(run, findings=tuple(dataclasses.replace(one, stated=True) for one in run.findings))
        for run in runs
    ]
    assert list(compared_methods(stated)) == []


def test_a_margin_that_a_far_seed_leaves_undecided_clears_by_no_procedure():
    """Its p-value is small all the same."""
    near = [0.60, 0.601, 0.599, 0.6005, 0.5995, 0.6, 0.6003, 0.5997, 0.6001, 0.45]
    runs = [record(f"r{seed}", measurements(accuracy=value), seed=seed) for seed, value in enumerate(near)]
    runs += [record(f"b{seed}", measurements(accuracy=0.9), method="bp", seed=seed) for seed in range(10)]
    runs += [frozen(f"f{seed}", seed=seed) for seed in range(10)]
    (remarks,) = compared_methods(judge_all(runs, EDITION))
    assert "limit: 1." in remarks
    assert remarks.endswith("2 methods: bp.")
