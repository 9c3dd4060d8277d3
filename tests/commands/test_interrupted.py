"""Ctrl-C at every stage of a run: it ends as interrupted or, once all of it is in the store, as complete; never as failed."""

from __future__ import annotations

import signal

import pytest
import torch
from torch import nn

import fa_registry
from fa_registry.errors import Interrupted
from fa_registry.external import track
from fa_registry.studies import training_job
from fa_registry.studies.execution import Execution
from fa_registry.tracking import cleanup, schema
from fa_registry.tracking import writer as writing
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.writer import RunWriter
from fa_registry.training import loop
from fa_registry.training.trainer import Trainer

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("usual_interrupt")]
INTERRUPTED = ("KILLED", schema.INTERRUPTED)
COMPLETE = ("FINISHED", "complete")


@pytest.fixture
def pressing(monkeypatch):
    """pressing(owner, name, times): the first call of owner.name comes with so many Ctrl-Cs, before it or `after` it."""

    def press(owner, name, times=2, after=False, when=lambda *given, **named: True):
        genuine, left = getattr(owner, name), [times]

        def keys():
            while left[0]:
                left[0] -= 1
                signal.raise_signal(signal.SIGINT)

        def call(*given, **named):
            is_now = when(*given, **named)
            if is_now and not after:
                keys()
            result = genuine(*given, **named)
            if is_now and after:
                keys()
            return result

        monkeypatch.setattr(owner, name, call)

    return press


def train(**more):
    small = {"architecture.d_hidden": 8, "architecture.num_blocks": 2}
    return fa_registry.train(method="dfa", seed=1, epochs=2, device="cpu", settings=small, **more)


def ends(kind="run"):
    return [(run.state, run.tags[schema.TAG_STATUS]) for run in MlflowTracker().search({schema.TAG_KIND: kind})]


def is_ending(*given, tags=(), **named):
    return schema.TAG_ARTIFACTS in (tags or given[-1])


STAGES = {
    "made in the store": (MlflowTracker, "create", 2, True),
    "waiting for its turn": (training_job, "acquire", 2, False),
    "first weights": (RunWriter, "start", 2, False),
    "epoch 0 measured": (loop, "measure", 2, False),
    "step": (Trainer, "step", 2, True),
    "epoch written": (RunWriter, "on_epoch", 2, True),
    "last measurement": (loop, "with_final", 2, False),
    "files written": (writing, "write_series", 2, True),
    "files uploaded": (MlflowTracker, "upload", 2, True),
    "Ctrl-C once": (loop, "measure", 1, False),
    "Ctrl-C once while made": (MlflowTracker, "create", 1, True),
}


def stages(known, often):
    """The names; those not in `often`, where the same lines end the run as in a stage next to it, for the long tests."""
    return [pytest.param(name, marks=[pytest.mark.long] * (name not in often)) for name in known]


@pytest.mark.parametrize("stage", stages(STAGES, ("made in the store", "step", "files uploaded", "Ctrl-C once")))
def test_a_run_that_is_stopped_is_interrupted_and_the_same_call_trains_it(workplace, pressing, stage):
    pressing(*STAGES[stage])
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        train()
    assert ends() == [INTERRUPTED]
    assert train().status == "complete" and ends() == [COMPLETE, INTERRUPTED]


@pytest.mark.parametrize("after", [False, True])
def test_a_run_whose_files_are_recorded_is_complete(workplace, pressing, after):
    if after:
        pressing(MlflowTracker, "log", after=True, when=is_ending)
    else:
        pressing(MlflowTracker, "finish")
    with pytest.raises(KeyboardInterrupt):
        train()
    assert ends() == [COMPLETE]


def test_a_third_ctrl_c_while_the_end_is_written_changes_nothing(workplace, pressing):
    pressing(Trainer, "step")
    pressing(MlflowTracker, "log", times=1, when=lambda *given, tags=(), **_: schema.INTERRUPTED in str((given, tags)))
    with pytest.raises(KeyboardInterrupt):
        train()
    assert ends() == [INTERRUPTED]


def test_a_fourth_leaves_a_run_that_the_next_command_calls_interrupted(workplace, pressing):
    pressing(Trainer, "step")
    pressing(MlflowTracker, "log", when=lambda *given, tags=(), **_: schema.INTERRUPTED in str((given, tags)))
    with pytest.raises(KeyboardInterrupt):
        train()
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run"})
    assert run.state == "KILLED"
    cleanup.close(MlflowTracker(), run)
    assert ends() == [INTERRUPTED]


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])  # twice: see STAGES
def test_a_study_and_its_runs_are_interrupted(registry, pressing, times):
    pressing(Trainer, "step", times, True)
    answer = registry("study", "tiny", "--jobs", "1", "--device", "cpu") if times == 1 else None
    if answer is None:
        with pytest.raises(KeyboardInterrupt):
            fa_registry.study("tiny", jobs=1, device="cpu")
    else:
        assert answer.exit_code == 130
    assert ends() == [INTERRUPTED] and ends("study") == [INTERRUPTED]
    assert fa_registry.study("tiny", jobs=1, device="cpu").exit_code == 0
    assert "failed" not in {status for _, status in [*ends(), *ends("study")]}


def test_a_run_whose_worker_had_to_be_killed_is_interrupted_too(registry, workplace, monkeypatch):
    """Its worker did not end within its seconds after a second Ctrl-C."""
    lost = {schema.TAG_STATUS: "running", schema.TAG_PROCESS: "this", schema.TAG_KIND: "run"}

    def trains(execution, jobs, **named):
        MlflowTracker().create("lost", lost | {schema.TAG_SPEC: jobs[0].spec.identity}, {})
        raise KeyboardInterrupt

    monkeypatch.setattr(Execution, "train", trains)
    monkeypatch.setattr("fa_registry.tracking.lease.HeartbeatMonitor.is_dead", lambda signs, run: True)
    with pytest.raises(KeyboardInterrupt):
        fa_registry.study("tiny", jobs=2, device="cpu")
    assert ends() == [INTERRUPTED] and ends("study") == [INTERRUPTED]


class Loop:
    """A loop of an author's own, of two epochs."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3))
        self.batch = torch.randn(16, 5), torch.arange(16) % 3

    def step(self):
        pass

    def run(self):
        with fa_registry.track(self.model, ["0", "1"], eval=self.batch, method="mine", epochs=2) as run:
            for _ in range(2):
                self.step()
                run.epoch(test_accuracy=0.5)


LOOP_STAGES = {
    "made in the store": (MlflowTracker, "create", 1, True),
    "first weights": (RunWriter, "start", 1, False),
    "its own step": (Loop, "step", 1, False),
    "an epoch": (RunWriter, "on_epoch", 1, True),
    "last measurement": (track.UserRunSetup, "with_conventions", 1, False),
    "files uploaded": (MlflowTracker, "upload", 1, True),
    "twice": (Loop, "step", 2, False),
}


@pytest.mark.parametrize("stage", stages(LOOP_STAGES, ("its own step", "files uploaded")))
def test_a_tracked_loop_is_interrupted(workplace, pressing, stage):
    pressing(*LOOP_STAGES[stage])
    with pytest.raises(KeyboardInterrupt):
        Loop().run()
    assert ends() == [INTERRUPTED]


@pytest.mark.parametrize("place", [(MlflowTracker, "upload"), (MlflowTracker, "create")])
def test_an_audit_is_interrupted(trained, pressing, place):
    pressing(*place, 1, True)
    with pytest.raises(KeyboardInterrupt):
        fa_registry.audit(study="tiny", trust_logged=True)
    assert ends("audit") == [INTERRUPTED]
