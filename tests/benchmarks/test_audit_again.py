"""The audit that measures again: its study trains as many runs as it says, and only of so many is the aim."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.audit_again import AGAIN, LOGGED, RUNS, UNTAKEN, VERBS, WIDTH, again_lines, targets
from benchmarks.filled_study import study_text
from benchmarks.verb_cost import Cost, Costs
from fa_registry.cli import main
from fa_registry.studies.study import load_study


def made(runs: int, wall: float) -> Costs:
    return Costs(runs, dict.fromkeys(VERBS, Cost(90.0, wall, 500.0)))


def test_the_study_is_as_many_runs_as_said_of_one_epoch_on_the_digits_study_s_network(tmp_path):
    (tmp_path / "study.toml").write_text(study_text(RUNS, epochs=1, width=WIDTH), encoding="utf-8")
    study = load_study(str(tmp_path / "study.toml"))
    assert len(study.specs) == RUNS and {spec.epochs for spec in study.specs} == {1}
    assert {spec.architecture_options["d_hidden"] for spec in study.specs} == {256}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_every_verb_takes_the_options_it_is_given(verb):
    assert CliRunner().invoke(main, [*verb, "--help"]).exit_code == 0


def test_one_audit_measures_again_and_the_other_does_not():
    assert "--trust-logged" in VERBS[LOGGED] and "--trust-logged" not in VERBS[AGAIN]


@pytest.mark.parametrize(("wall", "words"), [(59.9, "met (59.9 s)"), (60.1, "MISSED (60.1 s)")])
def test_the_aim_is_said_met_or_missed(wall, words):
    assert again_lines(made(RUNS, wall))[-1].endswith(words)


def test_fewer_runs_meet_no_aim_in_time():
    assert "by the clock: " not in "\n".join(again_lines(made(10, 1.0)))


@pytest.mark.parametrize(("cpu", "met"), [(129.9, True), (130.1, False)])
def test_what_taking_steps_again_may_cost(cpu, met):
    costs = dict.fromkeys(VERBS, Cost(100.0, 1.0, 500.0)) | {AGAIN: Cost(cpu, 1.0, 500.0)}
    assert [aim[2] for aim in targets(Costs(15, costs))] == [met]
    del costs[UNTAKEN]  # a record of before
    assert targets(Costs(15, costs)) == []
