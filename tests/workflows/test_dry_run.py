"""study --dry-run: what would be trained, what is there, what it would take; the store stays as it is."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest
import torch

import fa_registry
from fa_registry import datasets
from fa_registry.errors import InvalidFields
from fa_registry.jsonio import file_digest
from fa_registry.studies.study import load_study
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer
from fa_registry.workflows import dry_run
from fa_registry.workflows.dry_run import EVAL_SAMPLES, FEW, Probe, kind, probe, random_splits

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
    return Probe(speeds={kind(spec).identity: (10.0, 1.0) for spec in specs})


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


FIELDS = {"method": "dfa", "architecture": "resmlp", "dataset": "digits", "seed": 1, "epochs": 5, "device": "cpu"}
SMALL = {"d_hidden": 8, "num_blocks": 2}


def spec(**fields):
    return parse_spec({**FIELDS, "architecture_options": SMALL, **fields})


def test_runs_that_take_as_long_an_epoch_are_of_one_kind():
    one = kind(spec())
    for other in ({"seed": 2}, {"epochs": 9}, {"penalty": 0.1}, {"control": "ladder_1"}):
        assert kind(spec(**other)) == one, other
    for other in ({"method": "fa"}, {"dataset": "digits_centred"}, {"batch_size": 64}, {"architecture_options": {}}):
        assert kind(spec(**other)) != one, other
    assert kind(spec(method="bp", control="frozen")) != kind(spec(method="bp"))


def test_every_kind_is_probed_once_and_every_run_has_a_cost():
    specs = [spec(), spec(seed=2), spec(penalty=0.1), spec(method="bp"), spec(method="bp", control="frozen", epochs=3)]
    found = probe(specs)
    assert set(found.speeds) == {kind(spec).identity for spec in specs} and len(found.speeds) == 3
    assert all(found.seconds([spec]) > 0 for spec in specs)
    assert not (found.random or found.failures or found.unprobed)


def test_a_cost_is_of_all_epochs_and_one_final_measurement():
    one = spec()
    found = Probe(speeds={kind(one).identity: (2.0, 0.5)})
    assert found.seconds([one]) == 5 * 2.0 + 0.5
    assert found.seconds([spec(method="fa")]) is None


def test_without_its_files_a_data_set_is_probed_with_random_images_of_its_shape(tmp_path):
    one = spec(dataset="cifar10", architecture_options={"d_hidden": 4, "num_blocks": 1})
    found = probe([one])
    assert found.random == {"cifar10"} and found.seconds([one]) > 0


def test_random_images_are_of_the_cards_shape_and_classes():
    card = dataclasses.replace(datasets.get("cifar100").card, train_samples=1000)
    splits = random_splits(card, torch.device("cpu"))
    assert splits.train_images.shape[1:] == splits.test_images.shape[1:] == (3, 32, 32)
    assert len(splits.test_labels) == 200 and len(splits.train_labels) == 400
    assert splits.train_labels.max() == 99 and splits.train_labels.dtype == torch.int64


def test_when_the_time_is_used_up_the_rest_is_named():
    found = probe([spec(), spec(dataset="digits_centred")], budget=-1.0)
    assert found.unprobed == ["resmlp-8x2 · digits", "resmlp-8x2 · digits_centred"] and not found.speeds


@pytest.mark.parametrize(("seconds", "sizes"), [(1.0, {FEW}), (0.0, {FEW, 128})])
def test_a_step_that_takes_long_is_reckoned_from_a_few_samples(monkeypatch, seconds, sizes):
    seen = set()
    genuine = Trainer.step
    monkeypatch.setattr(
        Trainer, "step", lambda self, images, labels: seen.add(len(labels)) or genuine(self, images, labels)
    )
    monkeypatch.setattr(dry_run, "_timed", lambda work, task: (work(), seconds)[1])
    card = datasets.get("digits").card
    task = dry_run._task(spec(), card, random_splits(card, torch.device("cpu")))
    assert dry_run.step_seconds(Trainer(task)) == seconds * 128 / FEW
    assert seen == sizes


@pytest.mark.parametrize(("step", "samples"), [(0.01, EVAL_SAMPLES), (0.2, 16), (2.0, 2)])
def test_the_longer_a_step_the_fewer_samples_are_measured(monkeypatch, step, samples):
    seen = set()
    monkeypatch.setattr(dry_run, "measure", lambda task, moments=(): seen.add(len(task.eval_batch[1])))
    card = datasets.get("digits").card
    task = dry_run._task(spec(), card, random_splits(card, torch.device("cpu")))
    dry_run._measuring_seconds(task, step)
    assert seen == {samples}
