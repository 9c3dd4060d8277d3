"""The margin over the frozen control on each network, calculated by hand."""

from __future__ import annotations

import dataclasses

import pytest

from tests.analyses.builders import analysed, frozen, row, run, values


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
    assert "no frozen control" in values(cells, "margin")[0]
    found = row(analysed("cross-architecture", [run("dfa")]).table("methods"), method="dfa")
    assert values(found, "settings") == [0.0] and found["fails"].text == "nowhere"


def test_a_single_network_is_called_so():
    assert any("of the network resmlp" in remark for remark in analysed("cross-architecture", [run("dfa")]).remarks)
    assert not any("of the network" in remark for remark in analysed("cross-architecture", list(records())).remarks)
