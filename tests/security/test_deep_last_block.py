"""A network of three tiny blocks and one deep last block, which fa trains by the exact gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.last_block import STATE, is_exact_on_top, last_block_controls
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Check, Integrity
from tests.builders import over_seeds, reading, record
from tests.helpers.plugins import installed_member
from tests.security.conftest import audited, call, judged

OURS, PUBLISHED = load_edition("2026-12"), load_edition("2026-05")
GRID = {"architectures": ["deep_last"], "datasets": ["digits"], "seeds": [1, 2, 3]}
DEEP_LAST = """
import torch
from torch import nn
from fa_registry.architectures._layers import linear
from fa_registry.architectures.base import Architecture, ArchitectureCard, Network
from fa_registry.records import Option

class Tiny(nn.Module):
    def __init__(self, width, generator):
        super().__init__()
        self.inner, self.outer = linear(width, 1, generator), linear(1, width, generator)

    def forward(self, state):
        return self.outer(torch.tanh(self.inner(state))) * 0.01

class Deep(nn.Sequential):
    def __init__(self, width, generator):
        layers = [(nn.LayerNorm(width), linear(width, width, generator), nn.GELU()) for _ in range(3)]
        super().__init__(*(layer for group in layers for layer in group))

class DeepLast(Architecture):
    card = ArchitectureCard(
        name="deep_last", line="three tiny blocks and a deep one",
        options={"num_blocks": Option(4, "blocks", least=0)}, source="an attack",
    )

    def build(self, options, image_shape, classes, generator):
        width, count = image_shape[0] * image_shape[1] * image_shape[2], int(options["num_blocks"])
        blocks = [Tiny(width, generator) for _ in range(count - 1)] + [Deep(width, generator)] * bool(count)
        return Network(nn.Flatten(), blocks, None, linear(width, classes, generator))

PLUGIN = DeepLast()
"""


def d3(report, **spec: object) -> set[tuple[str, str, str]]:
    """Verdict, outcome and state of D3, of the runs with these values."""
    return {
        (run.verdict.label, finding.outcome, finding.state)
        for run in judged(report, control="none", **spec)
        for finding in run.findings
        if finding.rule == "D3"
    }


@pytest.mark.long
def test_a_deep_last_block_gets_no_pass_without_its_own_control_and_fails_with_it(tmp_path, study):
    with installed_member(tmp_path / "site", "architectures", "deep_last", DEEP_LAST):
        report = study(epochs=8, published=True, methods=["fa", "bp"], **GRID)
        assert d3(report, method="fa") == {("WARN(D3 last block)", "warn", STATE)}
        assert d3(report, method="bp") == {("PASS", "pass", "CLEARS")}
        assert "ladder_1" in form()
        trained = ("train", "--method", "bp", "--control", "ladder_1", "--architecture", "deep_last", "--epochs", "8")
        for seed in GRID["seeds"]:
            assert call(*trained, "--seed", str(seed), "--study", "own", "--device", "cpu").exit_code == 0
        _, report = audited(Path.cwd(), "--experiment", "fa_registry", published=True)
        assert d3(report, method="fa") == {("FAIL(D3)", "fail", "UNDERCUT")}
        assert d3(report, method="bp") == {("PASS", "pass", "CLEARS")}


def form() -> str:
    (page,) = Path("pages/forms").glob("fa-*.md")
    return page.read_text(encoding="utf-8").replace("\\", "")


# The same on records alone.


ABOVE = {1: 0.80, 2: 0.81, 3: 0.80}


def seeds_of(cosines=(0.1, 0.2, 1.0), trained=(), **changes):
    """Three seeds of fa far above their frozen controls, with the ladder_1 accuracies of `trained` by seed."""
    runs = over_seeds(ABOVE, dict.fromkeys(ABOVE, 0.3))
    runs = [with_cosines(run, cosines) if run.spec.control == "none" else run for run in runs]
    controls = over_seeds({}, dict(trained))
    spec = {"control": "ladder_1", **changes}
    return [*runs, *(replace(one, run_id=f"l{one.spec.seed}", spec=replace(one.spec, **spec)) for one in controls)]


def with_cosines(run, cosines, method="fa"):
    sites = {**run.measurements.sites, "gamma_batch": tuple(map(reading, cosines))}
    measurements = replace(run.measurements, sites=sites)
    return replace(run, measurements=measurements, spec=replace(run.spec, method=method))


def depth(records, edition=OURS):
    (found,) = (finding for finding in judge_all(records, edition)[0].findings if finding.rule == "D3")
    return found


@pytest.mark.parametrize(
    ("trained", "outcome", "state"),
    [
        ({}, "warn", STATE),
        ({1: 0.5, 2: 0.5}, "warn", STATE),  # one seed without
        ({1: 0.5, 2: 0.5, 3: 0.5}, "pass", "CLEARS"),
        ({1: 0.79, 2: 0.80, 3: 0.791}, "fail", "UNDERCUT"),
        ({1: 0.1, 2: 0.1, 3: 0.1}, "pass", "CLEARS"),  # the frozen one stays the one to beat
    ],
)
def test_the_higher_of_the_two_controls_is_the_one_to_beat(trained, outcome, state):
    found = depth(seeds_of(trained=trained))
    assert (found.outcome, found.state) == (outcome, state)
    if trained == {1: 0.5, 2: 0.5, 3: 0.5}:
        assert found.reference_run_id == "l1" and found.observed.value == pytest.approx(30.33, abs=0.01)


@pytest.mark.parametrize(
    "changes",
    [{"method": "fa"}, {"penalty": 0.1}, {"control": "ladder_2"}, {"epochs": 9}],
    ids=["not bp", "penalised", "two blocks", "another setting"],
)
def test_only_bp_on_the_last_block_of_the_same_setting_is_that_control(changes):
    assert depth(seeds_of(trained=dict.fromkeys(ABOVE, 0.5), **changes)).state == STATE


@pytest.mark.parametrize("state", ["mismatch", "unverifiable"])
def test_a_control_that_is_no_evidence_is_none(state):
    records = seeds_of(trained=dict.fromkeys(ABOVE, 0.5))
    check = Check("code", "not possible", "another code")
    broken = [replace(one, integrity=Integrity(state, checks=(check,))) for one in records if one.run_id[0] == "l"]
    assert not last_block_controls(broken)
    assert depth([*(one for one in records if one.run_id[0] != "l"), *broken]).state == STATE


@pytest.mark.parametrize(
    ("cosines", "method", "concerned"),
    [
        ((0.1, 0.2, 1.0), "fa", True),
        ((0.1, 0.2, 0.98), "dfa", False),
        ((1.0, 1.0, 1.0), "own", False),  # exact at every site: backpropagation
        ((None, 0.2, 1.0), "fa", True),  # on mlp site 0 has none
        ((None, 1.0), "fa", True),  # one block, exact: nothing shows that the rule is backpropagation
        ((None, 1.0), "bp", False),
        ((None, None, None), "fa", False),
        ((), "fa", False),
    ],
)
def test_which_methods_are_exact_on_top_is_measured(cosines, method, concerned):
    assert is_exact_on_top(with_cosines(record(), cosines, method)) is concerned


def test_an_edition_that_judges_one_run_needs_the_control_too():
    assert depth(seeds_of(), PUBLISHED).state == STATE
    found = depth(seeds_of(trained={1: 0.5}), PUBLISHED)
    assert found.outcome == "pass" and found.reference_run_id == "l1"
    assert depth(seeds_of(trained={1: 0.80}), PUBLISHED).outcome == "fail"
