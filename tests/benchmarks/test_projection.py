"""What a study would take: every run is counted in one kind, and measured seconds are multiplied by what the study holds."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks import projection
from benchmarks.projection import Kind, Projection, project, project_study, projection_lines
from fa_registry.studies.study import load_study
from tests.helpers.small import tiny_spec

CPU = torch.device("cpu")
KIND = Kind("dfa", runs=3, epochs=10, steps=1_000, step=1e-3, epoch_measuring=0.5, final_measuring=2.0, stepping="")


@pytest.fixture(autouse=True)
def quarter_second_an_epoch(monkeypatch):
    """test_run_cost.py has the real one."""
    monkeypatch.setattr(projection, "run_cost", lambda device, epochs: 0.25 * epochs)


def test_the_seconds_of_a_kind_are_those_of_all_its_runs():
    assert KIND.training == pytest.approx(3 * 1_000 * 1e-3)
    assert KIND.measuring == pytest.approx(3 * (11 * 0.5 + 2.0))
    assert Projection("s", "CPU", 1, 1, (KIND, KIND), 0.5).minutes == pytest.approx(2 * (3 + 22.5 + 3 * 0.5) / 60)


def test_seeds_and_strengths_of_the_penalty_are_one_kind_and_what_costs_more_is_another():
    changes = [{}, {"seed": 4}, {"penalty": 0.1}, {"penalty": 0.2}, {"method": "bp"}, {"control": "ladder_1"}]
    found = project([tiny_spec(**change) for change in changes], "s", CPU, replicas=1, steps=1, pixels="digits")
    assert [kind.runs for kind in found.kinds] == [2, 2, 1, 1]
    assert {kind.steps for kind in found.kinds} == {2 * math.ceil(1437 / 128)}
    assert found.besides == 0.25 * 2 and found.minutes > 6 * found.besides / 60


def test_a_penalty_is_timed_at_a_strength_that_the_study_has(monkeypatch):
    timed = []
    monkeypatch.setattr(projection, "_time", lambda spec, *rest: timed.append(spec.penalty) or KIND)
    project([tiny_spec(penalty=strength) for strength in (0.1, 0.2, 0.0)], "s", CPU)
    assert timed == [0.1, 0.0]


def test_image_files_are_not_needed_and_every_data_set_of_the_paper_is_stood_for():
    specs = load_study("paper-full").specs
    one_of_each = {spec.dataset: spec for spec in specs if spec.dataset in ("random_targets:cifar10", "lq")}
    found = project(list(one_of_each.values()), "paper-full", CPU, 1, 1, pixels="cifar_shaped:1000")
    assert {kind.name.split()[-1] for kind in found.kinds} == {"random_targets:cifar10", "lq"}
    assert all(kind.step > 0 and kind.epoch_measuring > 0 and kind.final_measuring > 0 for kind in found.kinds)
    assert [kind.steps for kind in found.kinds if kind.name.endswith("cifar10")] == [100 * math.ceil(50_000 / 128)]


def test_a_part_of_a_study_meets_no_aim():
    part = project_study("digits", CPU, replicas=1, steps=1, settings=1, pixels="digits")
    assert "aim" not in projection_lines(part)[-1] and f"1 of its {part.known} kinds" in projection_lines(part)[0]
    whole = Projection("s", "CPU", 1, 1, (KIND,), 0.5)
    assert "aim ≤ 20: met" in projection_lines(whole)[-1]
    assert projection_lines(whole)[-2] == "  starting, tracking and closing a run: 500 ms, of all 1.5 s"
