"""Which sets of instruments reject what: the published case, every kind of missing figure, and the logic of all sets."""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations

import pytest

from fa_registry.protocol.rules import load_edition
from fa_registry.records import CHANCE, Waiver
from tests.analyses.builders import AGGREGATES, EXACT, SEEDS, analysed, controlled, number, row, run, shown, values

PUBLISHED = (  # settings.md §4, seed 42: accuracy, Γ, growth, ‖g_L‖; EP left out as in the published ablation of five
    ("bp", 0.615, 1.0, 4.0, 3.7e-4),
    ("fa", 0.401, 0.25, 300.0, 8.9e-7),
    ("dfa", 0.306, 0.10, 1.9e3, 4.2e-9),
    ("cb", 0.289, 0.07, 3.0, 1e-4),
    ("sb", 0.205, 0.005, 3.0, 1e-4),
)

FULL = "accuracy + Γ + D1 + D2 + D3"
WITHOUT_D3 = FULL.removesuffix(" + D3")


def published():
    runs = [
        run(method, accuracy=accuracy, growth=growth, g=g, **({} if method == "bp" else {"gamma": gamma}))
        for method, accuracy, gamma, growth, g in PUBLISHED
    ]
    return controlled(*runs, accuracy=0.349)


def decision(records, instruments, edition="2026-05", method="dfa", **changes):
    return row(analysed("ablation", records, edition, **changes).tables[0], method=method)[instruments].text


def test_the_published_ablation():
    """Accuracy and Γ reject 0 of 5 methods, the full protocol 3 of 5."""
    analysis = analysed("ablation", published())
    for chosen, rejected, names in (
        ("accuracy + Γ", 0.0, "none"),
        ("accuracy + Γ + D1", 0.0, "none"),
        ("accuracy + Γ + D1 + D2", 1.0, "dfa"),
        ("full protocol", 3.0, "dfa, cb, sb"),
    ):
        counts = row(analysis.table("sets"), instruments=chosen)
        assert shown(counts["methods_rejected"])[1] == rejected and counts["rejected"].text == names
        assert (shown(counts["methods"])[1], shown(counts["methods_unjudged"])[1]) == (5.0, 0.0)
    fa = row(analysis.tables[0], method="fa")
    assert {fa[one].text for one in ("D1", FULL.removesuffix(" + D2 + D3"), "full protocol")} == {"warns"}


def test_every_set_is_counted_and_one_more_instrument_never_takes_a_rejection_back():
    analysis = analysed("ablation", published())
    every = {cells["instruments"].text: set(cells["runs_rejected"].run_ids) for cells in analysis.table("all").rows}
    assert len(every) == 2**5 - 1 and analysis.table("all").detail
    names = ("accuracy", "Γ", "D1", "D2", "D3")
    for size in range(1, 5):
        for chosen in combinations(names, size):
            for more in set(names) - set(chosen):
                larger = [name for name in names if name in (*chosen, more)]
                assert every[" + ".join(chosen)] <= every[" + ".join(larger)]
    assert every["D1 + D2 + D3"] == every[FULL] == {"dfa-42", "cb-42", "sb-42"}


@pytest.mark.parametrize(("accuracy", "expected"), [(0.1, "rejects"), (0.11, "accepts"), ("lost", "cannot judge")])
def test_accuracy_rejects_what_is_not_above_chance(accuracy, expected):
    assert decision([run("dfa", accuracy=accuracy)], "accuracy") == expected


def test_where_chance_is_not_recorded_accuracy_cannot_judge():
    bare = run("dfa")
    bare = dataclasses.replace(bare, measurements=dataclasses.replace(bare.measurements, conventions={}))
    assert decision([bare], "accuracy") == "cannot judge"


@pytest.mark.parametrize(
    ("gamma", "expected"), [(0.01, "accepts"), (0.0, "rejects"), (-0.01, "rejects"), ("no feedback", "cannot judge")]
)
def test_gamma_rejects_what_does_not_point_along_the_gradient(gamma, expected):
    assert decision([run("dfa", gamma=gamma)], "Γ") == expected


def test_exact_credit_is_accepted_though_its_gamma_is_no_number():
    assert decision([run("bp")], "Γ", method="bp") == "accepts"
    assert decision([run("bp")], "Γ", method="bp", cards={}) == "cannot judge"


def test_a_missing_figure_is_counted_apart_and_never_as_an_accept():
    runs = [run("dfa", 42, gamma="no feedback"), run("dfa", 123)]
    analysis = analysed("ablation", controlled(*runs))
    gamma = row(analysis.tables[0], method="dfa")["Γ"]
    assert (gamma.text, gamma.run_ids, gamma.n) == ("cannot judge", ("dfa-42",), 2)
    counts = row(analysis.table("sets"), instruments="Γ")
    assert [shown(counts[name])[1] for name in ("runs_rejected", "runs_unjudged", "runs")] == [0.0, 1.0, 2.0]
    assert shown(counts["methods_unjudged"])[1] == 1.0


def test_a_set_still_rejects_where_what_is_missing_could_not_save_the_run():
    dfa = controlled(run("dfa", accuracy=0.3, growth="lost", gamma="lost"))
    assert decision(dfa, WITHOUT_D3) == "cannot judge"
    assert decision(dfa, FULL) == "rejects"


def test_without_a_frozen_control_d3_and_the_protocol_cannot_judge():
    assert decision([run("dfa")], "D3") == decision([run("dfa")], "full protocol") == "cannot judge"


def test_a_rule_that_its_edition_skips_cannot_judge_alone_though_the_verdict_stands():
    alone = [run("dfa", stability_mid=0.1)]
    assert decision(alone, "d", "2026-04") == "cannot judge"
    assert decision(alone, "full protocol", "2026-04") == "accepts"


def test_in_a_strict_edition_one_rule_is_enough():
    dfa = controlled(run("dfa", growth=99.0))
    assert decision(dfa, "D1") == "warns"
    assert decision(dfa, "D1", "2026-05:strict") == decision(dfa, "full protocol", "2026-05:strict") == "rejects"


def test_one_seed_that_is_rejected_rejects_its_method():
    runs = controlled(*(run("dfa", seed, accuracy=0.3 if seed == 456 else 0.9) for seed in SEEDS))
    cell = row(analysed("ablation", runs).tables[0], method="dfa")["D3"]
    assert (cell.text, cell.run_ids, cell.reading.value, cell.n) == ("rejects", ("dfa-456",), 1.0, 3)


def test_undecided_and_waived_findings_warn():
    waiver = Waiver("D3", "known", "me", "2026-01-01", "2099-01-01", method="dfa")
    assert decision(controlled(run("dfa", accuracy=0.3)), "D3", waivers=(waiver,)) == "warns"
    assert decision(controlled(run("dfa", accuracy=0.9)), "D3", "2026-12") == "warns"  # one seed: undecided


def test_a_diverged_run_is_the_protocols_alone_to_reject():
    runs = controlled(run("dfa", status="diverged", accuracy=0.9))
    analysis = analysed("ablation", runs)
    cells = row(analysis.tables[0], method="dfa")
    assert (cells[FULL].text, cells["full protocol"].text) == ("accepts", "rejects")
    assert any(remark.startswith("Diverged runs: 1.") for remark in analysis.remarks)


def test_an_exploded_run_fires_d1():
    assert decision(controlled(run("dfa", growth=math.inf, g=1e-9)), WITHOUT_D3) == "rejects"


def test_rules_that_are_only_reported_are_no_instruments():
    analysis = analysed("ablation", published(), "2026-12")
    assert "S" not in [column.name for column in analysis.columns]
    assert any(remark.endswith("D4, S.") or "D4, S." in remark for remark in analysis.remarks)


def test_many_rules_are_shown_in_order_alone():
    from dataclasses import replace

    edition = load_edition("2026-05")
    many = tuple(replace(edition.rules[0], code=f"R{index}") for index in range(11))
    edition = replace(edition, rules=many, fail_if=(("R0",),))
    analysis = analysed("ablation", controlled(run("dfa")), edition)
    assert len(analysis.table("all").rows) == len(analysis.table("sets").rows)
    assert any(remark.startswith("13 instruments") for remark in analysis.remarks)


def gammas(*eight):
    return dict(zip(AGGREGATES, eight, strict=True))


def cells_of(*runs, method="dfa", **changes):
    return row(analysed("aggregation", runs, **changes).tables[0], method=method)


def test_spread_and_ratio_by_hand():
    cells = cells_of(run("dfa", **gammas(0.1, 0.11, 0.04, 0.05, 0.12, 0.2, 0.06, 0.08)))
    assert values(cells, "deep_mean_mean", "deep_median_mean", "all_mean_median") == [0.1, 0.04, 0.2]
    assert values(cells, "spread", "ratio") == pytest.approx([0.16, 5.0])


def test_negative_gammas_have_a_ratio_of_sizes():
    assert values(cells_of(run("dfa", **gammas(*[-0.1] * 7, -0.4))), "spread", "ratio") == pytest.approx([0.3, 4.0])


@pytest.mark.parametrize(
    ("last", "reason"),
    [(-0.1, "no ratio: the eight aggregates differ in sign"), (0.0, "no ratio: at least one aggregate is 0")],
)
def test_no_ratio_over_zero(last, reason):
    assert values(cells_of(run("dfa", **gammas(*[0.1] * 7, last))), "ratio") == [reason]


def test_a_missing_aggregate_leaves_no_spread_of_the_others():
    cells = cells_of(run("dfa", **gammas(*[0.1] * 7, "site 0: noise")))
    assert values(cells, "deep_mean_mean", "spread", "ratio") == [0.1, "site 0: noise", "site 0: noise"]


def test_means_over_seeds_carry_their_interval_and_runs_stay_apart():
    runs = [run("dfa", seed, **gammas(*[0.1 * (1 + place)] * 8)) for place, seed in enumerate(SEEDS)]
    analysis = analysed("aggregation", runs)
    cell = row(analysis.tables[0], method="dfa")["deep_mean_mean"]
    assert cell.reading.value == pytest.approx(0.2) and cell.n == 3
    assert cell.interval == pytest.approx(
        (0.2 - 0.1 * 4.302652729911275 / 3**0.5, 0.2 + 0.1 * 4.302652729911275 / 3**0.5)
    )
    each = row(analysis.table("runs"), seed=123.0)
    assert values(each, "deep_mean_mean", "spread") == pytest.approx([0.2, 0.0])


def test_exact_credit_has_no_aggregates():
    cells = cells_of(run("bp", sites={"gamma": (1.0, 1.0, 1.0)}), method="bp")
    assert values(cells, "deep_mean_mean", "spread") == [EXACT, EXACT]
    assert cells["carrier"].text == "N/A"


@pytest.mark.parametrize(
    ("sites", "carrier", "share"),
    [
        ((9.0, 0.1, -0.3), "site 2", 0.75),  # site 0 is no deep site
        ((0.0, 0.2, 0.2), "none", 0.5),
        ((0.0, 0.0, 0.0), "none", "every Γ is 0"),
        ((0.1, 0.2, "noise"), "N/A", "noise"),
    ],
)
def test_the_carrier_holds_more_than_half(sites, carrier, share):
    cells = cells_of(run("dfa", sites={"gamma": sites}))
    assert cells["carrier"].text == carrier and values(cells, "share") == [
        pytest.approx(share) if isinstance(share, float) else share
    ]


def test_the_published_fa_is_carried_by_an_exact_site_that_does_not_count():
    """Γ = .016 .072 −.085 .997 by block input: the last is exact by construction, and its mean is .25 only through it."""
    analysis = analysed("aggregation", [run("fa", sites={"gamma": (0.016, 0.072, -0.085, 0.997)})])
    counts = [cells["counts"].text for cells in analysis.table("sites").rows]
    assert "aggregates" in counts[0] and counts[1:3] == ["yes", "yes"] and counts[3].startswith("exact")
    cells = row(analysis.tables[0], method="fa")
    assert cells["carrier"].text == "site 2" and values(cells, "share") == pytest.approx([0.085 / 0.157])


def test_a_single_site_is_called_so():
    assert cells_of(run("fa", sites={"gamma": (0.1, 0.2, 1.0)}), method="fa")["carrier"].text.startswith("site 1,")


def test_runs_of_unequal_depth_have_the_sites_they_have():
    deep, shallow = run("dfa", 1, sites={"gamma": (0.1,) * 3}), run("dfa", 2, sites={"gamma": (0.3,) * 2})
    table = analysed("aggregation", [deep, shallow]).table("sites")
    assert values(row(table, site=1.0), "gamma") == pytest.approx([0.2])
    assert values(row(table, site=2.0), "gamma") == [0.1]


@pytest.mark.parametrize(("loss", "expected"), [(2.30, "accepts"), (2.31, "rejects"), ("lost", "cannot judge")])
def test_a_loss_per_token_rejects_what_is_not_below_that_of_guessing(loss, expected):
    """The entropy of ten tokens that are equally frequent, ln 10 = 2.303."""
    records = [of_tokens(run("dfa"), loss)]
    analysis = analysed("ablation", records, "2026-12:token")
    assert row(analysis.tables[0], method="dfa")["loss per token"].text == expected
    assert "loss per token" in analysis.remarks[0] and "accuracy" not in repr(analysis.tables)


def of_tokens(record, loss):
    scalars = {name: value for name, value in record.measurements.scalars.items() if name != "accuracy"}
    scalars["token_loss"] = number(loss)
    measured = dataclasses.replace(record.measurements, scalars=scalars, conventions={CHANCE: math.log(10)})
    return dataclasses.replace(record, measurements=measured)
