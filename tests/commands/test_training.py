"""The train command, and everything it refuses before a run exists."""

from __future__ import annotations

import errno
import json
from functools import partial
from pathlib import Path

import pytest
from mlflow import MlflowClient
from safetensors import SafetensorError

from fa_registry import process_ownership
from fa_registry.errors import Interrupted, PluginError, StoreError
from fa_registry.studies import training_job
from fa_registry.studies.training_job import training_steps
from fa_registry.studies.training_plan import TrainingJob
from fa_registry.tracking import resume_upload, schema
from fa_registry.tracking.base import RetentionOptions
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.writer import RunWriter
from fa_registry.training import checkpoint, loop
from fa_registry.training.loop import run_to_completion
from fa_registry.training.specs import parse_spec
from tests.commands.conftest import TRAIN, fields, long
from tests.helpers.dead_process import killed_tag
from tests.tracking.conftest import TINY

pytestmark = pytest.mark.long


def runs():
    return MlflowTracker().search({})


def test_a_run_is_trained_once_and_again_only_by_force(registry):
    first = json.loads(registry(*TRAIN, "--json").stdout)
    assert first["trained"] and first["status"] == "complete" and 0 < first["headline"]["accuracy"] < 1
    second = json.loads(registry(*TRAIN, "--json").stdout)
    assert (second["run_id"], second["trained"], len(runs())) == (first["run_id"], False, 1)
    assert json.loads(registry(*TRAIN, "--force", "--json").stdout)["run_id"] != first["run_id"]


def test_all_wrong_fields_are_named_at_once_and_nothing_is_written(registry):
    wrong = "train --method dfaa --architecture resnlp --dataset digit --epochs notafloat --penalty -1 --device cpu"
    result = registry(*wrong.split(), "--set", "learning_rate=fast", "--set", "colour=red")
    named = ["method", "architecture", "dataset", "epochs", "penalty", "seed", "learning_rate", "colour"]
    assert sorted(fields(result)) == sorted(named) and "'dfa'" in result.stderr
    assert runs() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--device", "cuda"), "no CUDA device"),
        (("--set", "architecture.num_blocks=0"), "control=shallow"),  # more wrong values: training/test_specs.py
        (("--set", "nonsense"), "NAME=VALUE"),
        (("--set", "learning_rate="), "--set learning_rate=:"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_exit_2(registry, change, message):
    result = registry(*TRAIN, *change)
    assert result.exit_code == 2 and message in result.stderr
    assert runs() == []


def test_a_run_that_diverges_is_marked_so_and_does_not_crash(registry):
    result = json.loads(registry(*TRAIN, "--set", "learning_rate=1e30", "--epochs", "3", "--json").stdout)
    assert result["status"] == "diverged"
    run = MlflowTracker().get(result["run_id"])
    assert run.state == "FINISHED" and run.tags[schema.TAG_STATUS] == "diverged" and run.tags[schema.TAG_NOT_FINITE]


def test_training_that_breaks_leaves_no_run_that_says_running(registry, monkeypatch):
    def broken(*arguments, **named):
        raise error

    for error, code in ((RuntimeError("on fire"), 1), (PluginError("no credit today"), 2)):
        monkeypatch.setattr("fa_registry.studies.training_job.train_epochs", broken)
        result = registry(*TRAIN)
        assert result.exit_code == code and result.stderr.count(str(error)) == 1, result.stderr
    assert [(run.state, run.tags[schema.TAG_STATUS]) for run in runs()] == [("FAILED", "failed")] * 2


def test_a_run_that_mlflow_started_is_taken_over(registry, monkeypatch):
    tracker = MlflowTracker()
    launched = tracker.create("launched by mlflow run", {}, {"seed": "'7'"})
    monkeypatch.setenv("MLFLOW_RUN_ID", launched)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", tracker.experiment_id)
    assert json.loads(registry(*TRAIN, "--json").stdout)["run_id"] == launched
    assert [run.name for run in runs()] == ["dfa · resmlp-16x2 · digits · 1 epochs · s7"]


def test_a_run_that_is_there_in_another_experiment_is_named_with_the_page_of_that_one(registry, monkeypatch):
    assert registry(*TRAIN, "--experiment", "mine").exit_code == 0
    again = registry(*TRAIN)  # of an experiment that does not exist yet
    (run,) = runs()
    experiment = MlflowTracker(experiment="mine").experiment_id
    assert again.exit_code == 0 and f"/#/experiments/{experiment}/runs?" in again.stdout
    assert f"/#/experiments/{experiment}/runs/{run.run_id}?workflowType=machine_learning" in again.stdout

    def gone(*_):
        raise StoreError("the server has gone")

    monkeypatch.setattr(MlflowTracker, "publish_views", gone)
    answer = registry(*TRAIN)
    assert answer.exit_code == 0 and run.run_id in answer.stdout and "the server has gone" in answer.stderr


def test_a_run_that_mlflow_began_without_an_experiment_name_is_put_away(registry, monkeypatch):
    tracker = MlflowTracker(experiment_id="0")
    for state in ("FINISHED", "RUNNING"):  # the second call's own is still MLflow's to end
        launched = MlflowClient().create_run("0", run_name="gifted-crab-796").info.run_id  # as MLflow itself does
        monkeypatch.setenv("MLFLOW_RUN_ID", launched)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "0")
        assert registry("doctor").exit_code == 0
        assert tracker.get(launched).name == "mlflow run: doctor"
        if state == "FINISHED":
            tracker.finish(launched, state)
    kept = tracker.search({schema.TAG_KIND: schema.LAUNCH})
    assert [run.run_id for run in kept] == [launched]


def test_a_launched_run_that_is_not_there_changes_nothing(registry, monkeypatch):
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    assert registry("doctor").exit_code == 0


EPOCHS = 3


def job(**changes) -> TrainingJob:
    return TrainingJob(parse_spec(TINY | {"epochs": EPOCHS}), MlflowTracker().uri, **changes)


def train(stop=lambda: False, **changes) -> str:
    return run_to_completion(training_steps(job(**changes), stop, lambda news: None)).run_id


def test_a_second_attempt_closes_the_first_whose_process_was_killed(workplace):
    """A study's worker, in the very study that continues."""
    tags = {schema.TAG_SPEC: job().spec.identity, schema.TAG_STATUS: "running", schema.TAG_PROCESS: killed_tag()}
    first = MlflowTracker().create("first", tags, {})
    train()
    assert MlflowTracker().get(first).state == "KILLED"


def stop_after(epochs: int):
    """A stop request that comes true when `epochs` have been asked about and passed."""
    asked = iter(range(epochs))
    return lambda: next(asked, None) is None


def content(run_id: str, name: str) -> bytes:
    return MlflowTracker().artifact(run_id, name).read_bytes()


def assert_equal_runs(one: str, other: str) -> None:
    assert one != other
    starts = {json.loads(content(run_id, schema.PROVENANCE))["initial_weights"] for run_id in (one, other)}
    assert len(starts) == 1
    for name in (schema.step_checkpoint(8), schema.FINAL, schema.FEEDBACK, schema.SERIES, schema.MEASUREMENTS):
        assert content(one, name) == content(other, name), name


def assert_like_undisturbed(run_id: str) -> None:
    assert_equal_runs(run_id, train(yields=False))  # otherwise `train` would return the finished run


@pytest.mark.parametrize("epochs", [1, long(0), long(2)])
def test_stopped_after_any_epoch_it_ends_like_an_undisturbed_run(workplace, epochs):
    with pytest.raises(Interrupted, match=f"after epoch {epochs} of {EPOCHS}"):
        train(stop_after(epochs))
    resumed = train()
    assert_like_undisturbed(resumed)
    assert json.loads(content(resumed, schema.PROVENANCE))["resumed_from"] == epochs


@pytest.fixture
def machines(workplace, monkeypatch):
    """A store that is no file, and a function that makes this another machine, with no resume file of the one before."""
    monkeypatch.setattr(resume_upload, "sqlite_path", lambda uri: None)

    def another(name: str) -> Path:
        monkeypatch.setattr("fa_registry.studies.training_job.resume_folder", lambda registry: workplace / name)
        return workplace / name

    return another


def states() -> set[str]:
    """The runs that have a state to resume from in the store, as a tag or as files."""
    ids = [run.run_id for run in runs()]
    kept = {run_id for run_id in ids if (files_of(run_id) / schema.STATE).exists()}
    return kept | {run.run_id for run in runs() if schema.TAG_STATE in run.tags}


def files_of(run_id: str) -> Path:
    return Path(MlflowClient().get_run(run_id).info.artifact_uri.removeprefix("file://"))


def test_another_machine_goes_on_where_the_first_was_stopped(machines):
    machines("first")
    with pytest.raises(Interrupted, match=f"after epoch 2 of {EPOCHS}"):
        train(stop_after(2))
    assert states() == {runs()[0].run_id}
    assert not machines("second").exists()
    resumed = train()
    assert json.loads(content(resumed, schema.PROVENANCE))["resumed_from"] == 2
    assert states() == set() and not list(machines("second").iterdir())
    machines("third")
    assert_like_undisturbed(resumed)


def test_a_machine_that_was_lost_leaves_its_last_epochs_in_the_store(machines, monkeypatch):
    """Its power is cut after the third epoch: training resumes from the second, twice, always from the later state."""
    machines("first")
    monkeypatch.setattr("fa_registry.training.resume.SECONDS_BETWEEN", -1.0)
    monkeypatch.setattr(resume_upload, "SECONDS_BETWEEN", -1.0)
    monkeypatch.setattr(resume_upload, "SHARE", 0)
    genuine, lives = RunWriter.on_epoch, [3, 2]

    def cut(writer, row, trainer):
        genuine(writer, row, trainer)
        if lives and row.epoch == lives[-1]:
            lives.pop()
            raise Lost

    def ended(writer, error):
        MlflowTracker().finish(writer.run_id, "KILLED")  # as another worker that wants its specification closes it
        writer.abandon()

    monkeypatch.setattr(RunWriter, "on_epoch", cut)
    monkeypatch.setattr(RunWriter, "fail", ended)
    for name, epoch in (("first", 1), ("second", 2)):
        machines(name)
        with pytest.raises(Lost):
            train()
        assert f"{epoch} " in runs()[0].tags[schema.TAG_STATE]
    machines("first")  # its own file is older than what the second left
    resumed = train()
    assert json.loads(content(resumed, schema.PROVENANCE))["resumed_from"] == 2 and states() == set()
    machines("third")
    assert_like_undisturbed(resumed)


class Lost(BaseException):
    """A machine without power."""


@pytest.mark.parametrize("damage", ["gone", "cut", "of another code"])
def test_a_state_in_the_store_that_is_none_costs_its_epochs_alone(machines, damage):
    machines("first")
    with pytest.raises(Interrupted):
        train(stop_after(2))
    (left,) = states()
    (path,) = (files_of(left) / schema.STATE).rglob("*.resume")
    if damage == "of another code":
        place = runs()[0].tags[schema.TAG_STATE]
        MlflowTracker().log(left, tags={schema.TAG_STATE: f"{place}-{'0' * 16}"})
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9])
    machines("second")
    resumed = train()
    assert json.loads(content(resumed, schema.PROVENANCE))["resumed_from"] == 0 and states() == set()


def test_a_run_resumes_only_on_the_configuration_that_saved_its_state(machines, monkeypatch, caplog):
    """Its first epochs have the last bits of that configuration, which an audit of the finished run would require of the other."""
    machines("first")
    with pytest.raises(Interrupted):
        train(stop_after(2))
    machines("of another processor")
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(training_job, "configuration", lambda: {"fingerprint": "other bits"})
        train(stop_after(1))
    assert runs()[0].tags[schema.TAG_STATE].startswith("1 ")  # from the first epoch, not from the second of the other
    machines("first")
    resumed = train()
    assert json.loads(content(resumed, schema.PROVENANCE))["resumed_from"] == 2 and "was renamed" not in caplog.text


def test_a_store_on_this_machine_is_sent_no_state(workplace):
    with pytest.raises(Interrupted):
        train(stop_after(2))
    assert states() == set()


@pytest.mark.parametrize("where", ["step", long("measure")])
def test_an_interrupt_inside_an_epoch_leaves_no_half_trained_state_to_resume(workplace, monkeypatch, where):
    with monkeypatch.context() as patched:
        calls = []

        def interrupts(genuine):
            def call(*arguments, **named):
                calls.append(1)
                if len(calls) == 3:
                    raise KeyboardInterrupt
                return genuine(*arguments, **named)

            return call

        if where == "step":
            patched.setattr(loop.Trainer, "step", interrupts(loop.Trainer.step))
        else:
            patched.setattr(loop, "measure", interrupts(loop.measure))
        with pytest.raises(KeyboardInterrupt):
            train()
    assert [run.state for run in MlflowTracker().search({schema.TAG_KIND: "run"})] == ["KILLED"]
    assert_like_undisturbed(train())


def test_an_interrupt_while_the_files_are_written_repeats_no_epoch(workplace, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("fa_registry.training.resume.SECONDS_BETWEEN", -1.0)  # a resume file after every epoch
        patched.setattr("fa_registry.studies.training_job.RunWriter.complete", lambda self, outcome: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train()
    assert_like_undisturbed(train())


@pytest.mark.parametrize(
    ("place", "name", "nth", "after"),
    [
        (MlflowTracker, "upload", 1, EPOCHS),
        (RunWriter, "write_series", 2, 1),
        long(checkpoint, "save_file", 3, EPOCHS),  # at the same moment as `upload`
    ],
)
def test_a_run_that_cannot_be_written_down_is_kept_and_goes_on_to_the_same_end(
    workplace, monkeypatch, place, name, nth, after
):
    genuine, calls = getattr(place, name), []

    def full(*given, **named):
        answer = genuine(*given, **named)
        calls.append(given)
        if len(calls) == nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(place, name, full)
        with pytest.raises(StoreError, match=f"No space left .* after epoch {after}"):
            train()
    assert (runs()[0].state, runs()[0].tags[schema.TAG_STATUS]) == ("FAILED", "failed")
    assert_like_undisturbed(train())


def test_a_full_disk_is_reported_in_a_sentence(registry, workplace, monkeypatch):
    def full(error, *given, **named):
        raise error

    errors = (
        (process_ownership, "create_temp_dir", OSError(errno.ENOSPC, "No space left on device", "a folder"), []),
        (checkpoint, "save_file", SafetensorError("I/O error: No space left on device (os error 28)"), ["FAILED"]),
    )
    for place, name, error, states in errors:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, partial(full, error))
            result = registry(*TRAIN)
        assert result.exit_code == 2 and "Traceback" not in result.stderr and "No space left" in result.stderr
        assert [run.state for run in runs()] == states


@pytest.mark.parametrize("jobs", [long("1"), "2"])
def test_training_into_a_log_file_is_not_silent_and_json_stays_json(registry, jobs):
    result = registry("study", "tiny", "--jobs", jobs, "--device", "cpu", "--json")
    assert len(json.loads(result.stdout)["trained"]) == 4
    assert result.stderr.count(": complete: ") == 4
    result = registry(*TRAIN, "--json")
    assert ": complete: " in result.stderr and json.loads(result.stdout)["trained"]


def test_checkpoints_of_epochs_before_the_stop_are_not_made_up(workplace):
    with pytest.raises(Interrupted):
        train(stop_after(2), keep=RetentionOptions(checkpoint_every=1))
    resumed, undisturbed = (train(keep=RetentionOptions(checkpoint_every=1)) for _ in range(2))
    assert content(resumed, schema.INITIAL) == content(undisturbed, schema.INITIAL)
    assert MlflowTracker().artifact(resumed, schema.epoch_checkpoint(1)) is None
    assert content(resumed, schema.epoch_checkpoint(3)) == content(undisturbed, schema.epoch_checkpoint(3))


def test_provenance_names_the_eval_samples_and_the_conventions_their_size(workplace):
    run_id = train()
    assert json.loads(content(run_id, schema.PROVENANCE))["eval_indices"] == list(range(128))
    conventions = json.loads(content(run_id, schema.MEASUREMENTS))["conventions"]
    assert conventions["eval_samples"] == conventions["g_norm_mean_ce_samples"] == 128
