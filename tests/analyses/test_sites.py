"""The gradient and Γ site by site, by hand."""

from __future__ import annotations

import dataclasses

import pytest

from tests.analyses.builders import SEEDS, analysed, frozen, row, run, values


def of(*records):
    return analysed("per-layer", records)


def test_norms_are_geometric_means_and_cosines_plain_ones():
    runs = [
        run("dfa", seed, sites={"g_norm_mean_ce": (g, 1e-6, 1e-8), "gamma": (gamma, 0.0, 0.1)})
        for seed, g, gamma in ((1, 1e-2, 0.2), (2, 1e-4, 0.4))
    ]
    first = row(of(*runs).tables[0], site=0.0)
    assert values(first, "g", "gamma") == pytest.approx([1e-3, 0.3])
    assert values(row(of(*runs).tables[0], site=2.0), "g", "gamma") == pytest.approx([1e-8, 0.1])
    ends = row(of(*runs).table("ends"), method="dfa")
    assert values(ends, "g_first", "g_last", "fall") == pytest.approx([1e-3, 1e-8, 1e5])


def test_a_site_that_is_exact_by_construction_says_so():
    analysis = of(*(run(method, sites={"gamma": (0.1, 0.2, 1.0)}) for method in ("fa", "dfa", "bp")))
    for method, expected in (("fa", ["yes", "yes", "exact by construction"]), ("dfa", ["yes"] * 3)):
        assert [row["counts"].text for row in analysis.rows if row["method"].text == method] == expected
    assert {row["counts"].text for row in analysis.rows if row["method"].text == "bp"} == {"exact by construction"}


def test_what_was_not_measured_says_why():
    analysis = of(run("dfa", g="lost", sites={"gamma": (0.1, "noise", 0.2)}))
    cells = row(analysis.tables[0], site=1.0)
    assert values(cells, "g", "gamma", "gamma_input") == ["lost", "noise", "gamma_block_input was not measured"]
    assert values(row(analysis.table("ends"), method="dfa"), "fall") == ["lost"]


def test_no_fall_over_a_gradient_of_zero():
    cells = row(of(run("dfa", sites={"g_norm_mean_ce": (1.0, 1.0, 0.0)})).table("ends"), method="dfa")
    assert values(cells, "fall") == ["‖g_L‖ is 0"]


def test_controls_are_not_methods():
    assert of(*(run("bp", seed, spec={"control": "frozen"}) for seed in SEEDS)).rows == ()


def on(network, method, seed, accuracy, control=""):
    made = (
        frozen(seed, accuracy, architecture=network)
        if control
        else run(method, seed, accuracy=accuracy, spec={"architecture": network})
    )
    return dataclasses.replace(made, run_id=f"{network}-{made.run_id}", setting=f"{network} · digits")


def records():
    for network, accuracy in (("resmlp", 0.9), ("vit_mini", 0.3)):
        for seed in (1, 2):
            yield on(network, "dfa", seed, accuracy + 0.01 * seed)
            yield on(network, "", seed, 0.5, "frozen")


def test_the_margin_is_over_the_networks_own_control():
    analysis = analysed("cross-architecture", list(records()))
    cells = {name: row(analysis.tables[0], architecture=name) for name in ("resmlp", "vit_mini")}
    assert values(cells["resmlp"], "accuracy", "frozen", "margin") == pytest.approx([0.915, 0.5, 41.5])
    assert values(cells["vit_mini"], "margin") == pytest.approx([-18.5])
    assert cells["vit_mini"]["verdict"].text.startswith("FAIL")


def test_a_method_is_counted_over_networks():
    cells = row(analysed("cross-architecture", list(records())).table("methods"), method="dfa")
    assert values(cells, "architectures", "above", "settings") == [2.0, 1.0, 2.0]
    assert (cells["passes"].text, cells["fails"].text) == ("resmlp · digits", "vit_mini · digits")


def test_without_a_control_there_is_no_margin():
    cells = row(analysed("cross-architecture", [run("dfa")]).tables[0], method="dfa")
    assert values(cells, "margin") == ["no frozen control of the same setting and seed"]
    found = row(analysed("cross-architecture", [run("dfa")]).table("methods"), method="dfa")
    assert values(found, "settings") == [0.0] and found["fails"].text == "nowhere"


def test_a_single_network_is_called_so():
    assert any("of the network resmlp" in remark for remark in analysed("cross-architecture", [run("dfa")]).remarks)
    assert not any(
        "all runs are of the network" in remark for remark in analysed("cross-architecture", list(records())).remarks
    )
