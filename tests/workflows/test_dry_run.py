"""study --dry-run: what would be trained, what is there, what it would take; the store stays as it is."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

import fa_registry
from fa_registry import datasets
from fa_registry.datasets._files import ImageFiles
from fa_registry.datasets._raw_images import RawImages
from fa_registry.errors import InvalidFields
from fa_registry.jsonio import file_digest
from fa_registry.studies.study import load_study
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer
from fa_registry.workflows import dry_run
from fa_registry.workflows import probe as probing
from fa_registry.workflows.dry_run import shared
from fa_registry.workflows.probe import STEPS, Probe, RunTime, Stopwatch, kind, probe, training_seconds, uncached

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
    assert any("does not exist yet, so no run is complete" in remark for remark in plan.remarks)


A_RUN = RunTime(training=8.0, measuring=2.0, final=1.0)
SECONDS = 2 * 10 + 2 + 1  # of two epochs: the first measurement is before them


def known_times(specs, *_) -> Probe:
    """Eight seconds an epoch, two a measurement and one for the end, for every run."""
    return Probe(times={kind(spec).identity: A_RUN for spec in specs})


def test_what_is_complete_is_counted_and_costs_nothing_more(trained, monkeypatch):
    monkeypatch.setattr(dry_run, "probe", known_times)
    monkeypatch.setattr(dry_run, "usable_cores", lambda: 4)
    plan = dry("tiny")
    assert (plan.runs, plan.complete, plan.control_runs) == (4, 4, 1)
    assert plan.seconds == 4 * SECONDS and plan.seconds_left == plan.seconds_left_by_jobs == 0
    other = dry("tiny", seeds=[1, 2], jobs=2)
    assert (other.runs, other.complete) == (8, 4)
    assert other.seconds_left == 4 * SECONDS and other.seconds_left_by_jobs == other.seconds_left / 2
    assert dry("tiny", force=True).complete == 0


def test_more_jobs_than_cores_take_no_less_time(registry, monkeypatch):
    monkeypatch.setattr(dry_run, "probe", known_times)
    monkeypatch.setattr(dry_run, "usable_cores", lambda: 2)
    plan = dry("tiny", jobs=4)
    assert plan.seconds_by_jobs == plan.seconds / 2
    assert any(
        "The times for 4 runs in parallel assume that only 2 runs are trained at a time" in remark
        for remark in plan.remarks
    )


@pytest.mark.parametrize(
    ("is_gpu", "reason"),
    [
        (False, "only 1 run is trained at a time, because this machine has 1 core."),
        (True, "runs on one GPU are trained one after another."),
    ],
)
def test_one_core_is_not_taken_for_one_gpu(registry, monkeypatch, is_gpu, reason):
    monkeypatch.setattr(dry_run, "probe", known_times)
    monkeypatch.setattr(dry_run, "usable_cores", lambda: 1)
    monkeypatch.setattr(dry_run, "on_gpu", lambda specs: is_gpu)
    plan = dry("tiny", jobs=4)
    assert f"The times for 4 runs in parallel assume that {reason}" in plan.remarks


def test_a_long_run_is_not_shared_by_two():
    assert shared([5, 1, 1, 1], 2) == 5 and shared([1, 1, 5], 2) == 6 and shared([], 2) == 0


@pytest.mark.parametrize(("cpu", "is_busy"), [(9.5, False), (4.0, True)])
def test_a_busy_machine_is_reported(registry, monkeypatch, cpu, is_busy):
    def found(specs, *_):
        known = known_times(specs)
        known.wall, known.cpu = 10.0, cpu
        return known

    monkeypatch.setattr(dry_run, "probe", found)
    plan = dry("tiny")
    opening = "This machine is busy: timed steps waited for a processor during "
    remarks = [remark for remark in plan.remarks if remark.startswith(opening)]
    assert bool(remarks) is is_busy and plan.waiting == pytest.approx(1 - cpu / 10)
    assert not remarks or ("during 60% of the time" in remarks[0] and "2.5 times as long" in remarks[0])


@pytest.mark.parametrize(
    ("asked", "why"),
    [({"no_probe": True}, "--no-timing"), ({"executor": "elsewhere"}, "may train on other machines")],
)
def test_what_is_not_timed_has_no_time_and_a_reason(registry, monkeypatch, asked, why):
    monkeypatch.setattr(dry_run, "probe", lambda *_: pytest.fail("timed"))
    checked = dry_run.checked_study
    monkeypatch.setattr(  # no such executor is installed
        dry_run,
        "checked_study",
        lambda chosen, jobs, edition, stop_on, executor, **named: checked(chosen, jobs, edition, stop_on, "", **named),
    )
    plan = dry("tiny", **asked)
    assert plan.seconds is plan.seconds_left is plan.seconds_by_jobs is plan.seconds_left_by_jobs is None
    assert any("No time was estimated for the study" in remark and why in remark for remark in plan.remarks)
    assert all(why in setting.no_time for setting in plan.settings) and not plan.probed


def test_settings_methods_and_controls_are_distinguished(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text() + PENALTY)
    plan = dry("tiny", no_probe=True)
    assert plan.methods == ("bp", "fa", "dfa", "dfa+pen")
    first, second = plan.settings
    assert (first.labels, first.methods, first.controls, first.epochs) == ((), ("bp", "fa", "dfa"), {"frozen": 1}, 2)
    assert (second.labels, second.methods, second.epochs) == (("penalised",), ("dfa", "dfa+pen"), 3)
    assert second.controls == {
        "frozen": 1,
        "shallow": 1,
        "ladder": 3,
    }  # zero trained blocks have no penalty: one run for both
    assert plan.runs == first.runs + second.runs == 4 + 7
    assert plan.control_runs == 1 + 5


def test_a_study_has_no_time_unless_all_of_it_was_timed(registry, workplace, monkeypatch):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text() + PENALTY)
    specs = load_study("tiny", CPU).specs
    half = known_times(spec for spec in specs if spec.epochs == 3)
    half.reasons = {kind(spec).identity: "no files" for spec in specs if spec.epochs == 2}
    monkeypatch.setattr(dry_run, "probe", lambda *_: half)
    plan = dry("tiny")
    assert plan.settings[0].seconds is None and plan.settings[1].seconds == 7 * (3 * 10 + 2 + 1)
    assert plan.seconds is plan.seconds_left is plan.seconds_by_jobs is None
    assert any(f"No time was estimated for {plan.settings[0].setting}: no files" in remark for remark in plan.remarks)


def test_json_holds_all_of_the_plan(registry):
    result = registry(
        "study", "tiny", "--dry-run", "--no-timing", "--json", "--device", "cpu", "--replace-dataset", "digits_centred"
    )
    plan = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (plan["study"], plan["twin"], plan["runs"], plan["complete"]) == (
        "tiny",
        "--replace-dataset digits_centred",
        4,
        0,
    )
    assert plan["seconds"] is None and plan["probed"] is False
    assert plan["settings"][0]["dataset"] == "digits_centred"
    assert plan["settings"][0]["architecture_options"]["d_hidden"] == 16


def test_the_table_names_every_setting(registry):
    result = registry("study", "tiny", "--dry-run", "--device", "cpu")
    assert result.exit_code == 0
    assert "4 runs (1 of them controls) in 1 settings, 0 complete, 4 to train" in result.stdout
    assert "resmlp-16x2 · digits · 2 epochs" in result.stdout and "one process:" in result.stdout
    assert (
        "[4/4]" in result.stderr
        and "frozen · resmlp-16x2 · digits: " in result.stderr
        and "ms per step" in result.stderr
    )


@pytest.mark.parametrize("message", [("study", "tiny"), ("study", "tiny", "--dry-run"), ("study", "tiny", "--json")])
def test_images_that_an_architecture_cannot_take_are_refused_before_anything_is_run(registry, workplace, message):
    path = workplace / "tiny" / "study.toml"
    text = path.read_text().replace('"resmlp"', '"vit_mini"').replace("d_hidden = 16, num_blocks = 2", "patch = 5")
    path.write_text(text)
    result = registry(*message, "--device", "cpu")
    assert result.exit_code == 2 and "Traceback" not in result.stderr
    assert "architecture_options: patch: expected a divisor of the image size 12×12, found 5" in result.stderr
    assert not (workplace / "mlartifacts").exists()


def test_the_same_is_refused_as_by_the_study_itself(registry):
    with pytest.raises(InvalidFields) as caught:
        dry("tiny", scale="x", data="lq", jobs="many")
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["jobs", "data", "scale"]
    with pytest.raises(InvalidFields, match="stop_on: unknown rule"):
        dry("tiny", stop_on="D9")
    result = registry("study", "tiny", "--no-timing")
    assert result.exit_code == 2 and "--no-timing needs --dry-run" in result.stderr


FIELDS = {"method": "dfa", "architecture": "resmlp", "dataset": "digits", "seed": 1, "epochs": 5, "device": "cpu"}
SMALL = {"d_hidden": 8, "num_blocks": 2}


def spec(**fields):
    return parse_spec({**FIELDS, "architecture_options": SMALL, **fields})


def test_runs_whose_steps_compute_the_same_are_of_one_kind():
    one = kind(spec())
    for other in ({"seed": 2}, {"epochs": 9}):
        assert kind(spec(**other)) == one, other
    for other in (
        {"method": "fa"},
        {"dataset": "digits_centred"},
        {"batch_size": 64},
        {"architecture_options": {}},
        {"penalty": 0.1},
        {"control": "ladder_1"},
    ):
        assert kind(spec(**other)) != one, other
    assert kind(spec(penalty=0.1)) == kind(spec(penalty=0.2))
    assert kind(spec(method="bp", control="frozen")) != kind(spec(method="bp"))


def test_every_kind_is_timed_once_and_every_run_has_a_time(monkeypatch):
    genuine, timed = probing.run_time, []
    monkeypatch.setattr(probing, "run_time", lambda task, *given: timed.append(task.spec) or genuine(task, *given))
    specs = [spec(), spec(seed=2), spec(penalty=0.1), spec(method="bp"), spec(method="bp", control="frozen", epochs=3)]
    found = probe(specs)
    assert set(found.times) == {kind(spec).identity for spec in specs} and len(timed) == len(found.times) == 4
    assert len(found.seconds(specs)) == 5 and min(found.seconds(specs)) > 0 and found.wall > 0 < found.cpu
    assert not (found.failures or found.reasons)


@pytest.mark.parametrize(
    ("specs", "shares"), [([{}, {"method": "fa"}, {"method": "bp"}], [2, 1]), ([{}, {"seed": 2}], [1, 1])]
)
def test_as_many_processes_time_as_will_train(monkeypatch, specs, shares):
    """Here in turns; two runs of one kind are timed by both."""
    asked = []

    class Here:
        def run(self, jobs, work, resources, stop, tell):
            asked.extend([resources.at_once, [len(job.kinds) for job in jobs]])

    monkeypatch.setattr(probing.executors.CATALOG, "get", lambda name: Here() if name == "local" else None)
    monkeypatch.setattr(probing, "usable_cores", lambda: 2)
    probe([spec(**fields) for fields in specs], at_once=8)
    assert asked == [2, shares]


def test_a_time_is_of_all_epochs_all_measurements_and_the_end():
    one = spec()
    found = Probe(times={kind(one).identity: RunTime(2.0, 0.5, 0.25)})
    assert found.seconds([one]) == [5 * 2.5 + 0.5 + 0.25]
    assert found.seconds([one, spec(method="fa")]) is None


def test_the_times_are_processor_seconds_on_a_cpu():
    """A process that waited half of the time: a second of the clock a look, half a one of work."""
    looks = count()
    stopwatch = Stopwatch(torch.device("cpu"), lambda: (now := next(looks), now / 2))
    assert stopwatch.time(lambda: None) == 0.5 and (stopwatch.wall, stopwatch.cpu) == (1, 0.5)


@pytest.mark.parametrize("batch_size", [128, 16])
def test_an_epoch_is_its_timed_steps_and_as_long_ones_for_the_rest(monkeypatch, batch_size):
    """By a clock that only a step moves: a second each. Of many batches some are taken, whole ones."""
    moved, sizes = [0.0], []
    genuine = Trainer.step

    def step(self, images, labels):
        moved[0] += 1
        sizes.append(len(labels))
        return genuine(self, images, labels)

    monkeypatch.setattr(Trainer, "step", step)
    trainer = Trainer(build_setup(spec(batch_size=batch_size), torch.device("cpu")))
    stopwatch = Stopwatch(torch.device("cpu"), lambda: (moved[0], moved[0]))
    seconds = training_seconds(trainer, stopwatch)
    assert seconds == -(-len(trainer.setup.splits.train_labels) // batch_size)
    assert len(sizes) == STEPS and set(sizes) == {batch_size}


@pytest.mark.parametrize("left", [6.0, 1e9])
def test_steps_that_take_too_long_have_no_time_and_no_guess(monkeypatch, left):
    clock = count()
    stopwatch = Stopwatch(torch.device("cpu"), lambda: (now := float(next(clock)), now))  # a second a look
    found = probing.run_time(build_setup(spec(), torch.device("cpu")), stopwatch, left)
    assert (found is None) is (left == 6.0)


def test_without_its_files_a_data_set_has_no_time(tmp_path):
    one = spec(dataset="cifar10", architecture_options={"d_hidden": 4, "num_blocks": 1})
    found = probe([one], root=tmp_path)
    assert found.seconds([one]) is None and not found.failures
    assert "the data set cannot be read on this machine: data set cifar10" in found.reasons[kind(one).identity]


def test_decoding_for_the_probe_keeps_nothing(tmp_path):
    card = datasets.get("mnist").card
    images, labels = torch.zeros(4, *card.image_shape, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    raw = RawImages(images, labels, images.clone(), labels.clone())

    class Decoded:
        packed = packed_md5 = ""

        def decode(self, root, files):
            return raw

    small = ImageFiles(card=dataclasses.replace(card, train_samples=4, files=()), format=Decoded())
    uncached(small).raw(tmp_path)
    assert not list(tmp_path.iterdir())
    small.raw(tmp_path)
    assert list(tmp_path.iterdir())
    labels_permuted = datasets.get("random_targets:mnist")
    assert not uncached(labels_permuted).source.is_cached and uncached(datasets.get("digits")) is datasets.get("digits")


def test_when_the_seconds_are_used_up_the_rest_has_no_time():
    specs = [spec(), spec(dataset="digits_centred")]
    found = probe(specs, budget=-1.0)
    assert not found.times and set(found.reasons) == {kind(spec).identity for spec in specs}
