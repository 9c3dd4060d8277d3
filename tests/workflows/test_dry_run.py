"""study --dry-run: what would be trained, what is there, what it would take; the store stays as it is."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

import fa_registry
from fa_registry.errors import InvalidFields
from fa_registry.jsonio import file_digest
from fa_registry.studies.study import load_study
from fa_registry.workflows import dry_run
from fa_registry.workflows.dry_run import Probe, Speed, kind

CPU = {"device": "cpu"}
PENALTY = """
[[grid]]
name = "penalised"
methods = ["dfa"]
penalties = [0.0, 0.1]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1]
epochs = [3]
controls = { shallow = true, ladder = true }
architecture_options = { d_hidden = 8, num_blocks = 2 }
"""


dry = partial(fa_registry.study, device="cpu", dry_run=True)


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): file_digest(path) for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_written(trained, workplace):
    before = files(workplace)
    result = trained("study", "tiny", "--dry-run", "--device", "cpu", "--epochs", "3")
    assert result.exit_code == 0, result.output
    assert files(workplace) == before


def test_a_store_that_is_not_there_is_not_made(workplace):
    plan = dry("digits", store=f"sqlite:///{workplace / 'none.db'}", no_probe=True)
    assert plan.complete == 0 and not (workplace / "none.db").exists()
    assert any(remark.startswith("There is no store") for remark in plan.remarks)


def test_what_is_complete_is_counted_and_costs_nothing_more(trained, monkeypatch):
    monkeypatch.setattr(dry_run, "probe", lambda specs: known_speeds(specs))
    plan = dry("tiny")
    assert (plan.runs, plan.complete, plan.control_runs) == (4, 4, 1)
    assert plan.seconds == 4 * (2 * 10 + 1) and plan.seconds_left == plan.seconds_left_by_jobs == 0
    other = dry("tiny", seeds=[1, 2], jobs=2)
    assert (other.runs, other.complete) == (8, 4)
    assert other.seconds_left == 4 * (2 * 10 + 1) and other.seconds_left_by_jobs == other.seconds_left / 2
    assert dry("tiny", force=True).complete == 0


def known_speeds(specs) -> Probe:
    """Ten seconds an epoch and one for the end, whatever is run."""
    return Probe(speeds={kind(spec).identity: Speed(10.0, 1.0) for spec in specs})


def test_settings_methods_and_controls_are_told_apart(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text() + PENALTY)
    plan = dry("tiny", no_probe=True)
    assert plan.methods == ("bp", "fa", "dfa", "dfa+pen")
    first, second = plan.settings
    assert (first.labels, first.methods, first.controls, first.epochs) == ((), ("bp", "fa", "dfa"), {"frozen": 1}, 2)
    assert (second.labels, second.methods, second.epochs) == (("penalised",), ("dfa", "dfa+pen"), 3)
    assert second.controls == {"frozen": 1, "shallow": 1, "ladder": 3}  # rung 0 is without penalty: one run for both
    assert plan.runs == first.runs + second.runs == 4 + 7
    assert plan.control_runs == 1 + 5


def test_the_sum_leaves_out_what_was_not_probed_and_says_so(registry, workplace, monkeypatch):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text() + PENALTY)
    half = known_speeds(spec for spec in load_study("tiny", CPU).specs if spec.epochs == 3)
    half.unprobed = ["the rest"]
    monkeypatch.setattr(dry_run, "probe", lambda specs: half)
    plan = dry("tiny")
    assert plan.settings[0].seconds is None and plan.settings[1].seconds == 7 * (3 * 10 + 1) == plan.seconds
    assert any("the sums are too low by them: the rest" in remark for remark in plan.remarks)


def test_json_holds_all_of_the_plan(registry):
    result = registry(
        "study", "tiny", "--dry-run", "--no-probe", "--json", "--device", "cpu", "--data", "digits_centred"
    )
    plan = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (plan["study"], plan["twin"], plan["runs"], plan["complete"]) == ("tiny", "--data digits_centred", 4, 0)
    assert plan["seconds"] is None and plan["probed"] is False
    assert plan["settings"][0]["dataset"] == "digits_centred"
    assert plan["settings"][0]["architecture_options"]["d_hidden"] == 16


def test_the_table_names_every_setting(registry):
    result = registry("study", "tiny", "--dry-run", "--device", "cpu")
    assert result.exit_code == 0
    assert "4 runs (1 of them controls) in 1 settings, 0 complete, 4 to train" in result.stdout
    assert "resmlp-16x2 · digits · 2 epochs" in result.stdout and "one process:" in result.stdout
    assert "[1/1]" in result.stderr and "ms a step: bp" in result.stderr


@pytest.mark.parametrize("words", [("study", "tiny"), ("study", "tiny", "--dry-run"), ("study", "tiny", "--json")])
def test_images_that_an_architecture_cannot_take_are_refused_before_anything_is_run(registry, workplace, words):
    path = workplace / "tiny" / "study.toml"
    text = path.read_text().replace('"resmlp"', '"vit_mini"').replace("d_hidden = 16, num_blocks = 2", "patch = 5")
    path.write_text(text)
    result = registry(*words, "--device", "cpu")
    assert result.exit_code == 2 and "Traceback" not in result.stderr
    assert "architecture_options: patch: expected a divisor of the images' 12×12 pixels, found 5" in result.stderr
    assert not (workplace / "mlartifacts").exists()


def test_the_same_is_refused_as_by_the_study_itself(registry):
    with pytest.raises(InvalidFields) as caught:
        dry("tiny", scale="x", data="lq", jobs="many")
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["jobs", "data", "scale"]
    with pytest.raises(InvalidFields, match="stop_on: unknown rule"):
        dry("tiny", stop_on="D9")
    result = registry("study", "tiny", "--no-probe")
    assert result.exit_code == 2 and "--no-probe belongs to --dry-run" in result.stderr
