"""Whole replays: no honest run is accused, and what was not trained as its specification says is named with its first epoch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fa_registry.diagnostics.base import MOMENTS
from fa_registry.errors import IntegrityError
from fa_registry.evidence import replayer
from fa_registry.evidence.replay import RecordedEpochs
from fa_registry.evidence.replay_from_seed import replay_first_steps, replay_kept_states, replay_whole
from fa_registry.evidence.replayer import RecordedTraining, ReplayResult
from fa_registry.protocol.replay_summary import KEPT, WHOLE
from fa_registry.records import Check, Measurements, Reading
from fa_registry.tracking import schema
from fa_registry.training import epoch_chain
from fa_registry.training.checkpoint import content_digest, load_into, load_tensors, save_tensors
from fa_registry.training.devices import pinned_threads
from fa_registry.training.epoch_chain import GMAC, NONCE, linked, state_digest
from fa_registry.training.kept_states import kept_epochs
from fa_registry.training.loop import train
from fa_registry.training.measuring import measure
from fa_registry.training.resume import ResumeFile
from fa_registry.training.state_sizes import TensorSizes, kept_bytes
from fa_registry.training.trainer import Trainer
from fa_registry.training.trainer_state import full_state
from tests.helpers.covering import rest_long
from tests.helpers.nets import of
from tests.helpers.tiny_tasks import Recorder, supported, tiny_spec, tiny_task

EPOCHS = 3


class Keeping(Recorder):
    """Keeps every row, and the files of a run that keeps states."""

    def __init__(self, folder: Path, states: int):
        super().__init__()
        self.folder, self.states, self.kept = folder, states, {}

    def on_epoch(self, row, trainer):
        super().on_epoch(row, trainer)
        if row.epoch - 1 in self.kept:
            path = self.folder / schema.after_kept_state(row.epoch - 1)
            self.kept[row.epoch - 1] += (path, save_tensors(path, trainer.state()))
        if row.epoch in kept_epochs(self.states, trainer.setup.spec.epochs):
            path = self.folder / schema.kept_state(row.epoch)
            self.kept[row.epoch] = (path, save_tensors(path, full_state(trainer)))


def recorded_run(
    folder: Path, states: int = 0, kind: type[Trainer] = Trainer, end=lambda: "", **changes
) -> RecordedTraining:
    """Train a run and return what its files hold."""
    trainer, keeper = kind(tiny_task(**{"epochs": EPOCHS, **changes})), Keeping(folder, states)
    initial = content_digest(trainer.setup.network.state_dict())
    outcome = train(trainer, keeper, end=end)
    rows = {row.epoch: row.measurements for row in keeper.rows}

    def difference(epoch: int, measured: Measurements) -> str:
        logged = rows[epoch]
        held = measured.sites or measured.scalars.items() - logged.scalars.items()
        return "they differ" if held and measured != logged else ""

    recorded = RecordedEpochs(tuple(trainer.chain.digests), difference, range(outcome.epochs + 1), keeper.kept)
    paths = {name: folder / f"{name}.safetensors" for name in ("early", "feedback", "final")}
    digests = {"early": save_tensors(paths["early"], trainer.early.tensors)} if trainer.early else {}
    digests["feedback"] = save_tensors(paths["feedback"], trainer.setup.feedback.state_dict())
    final = paths["final"], save_tensors(paths["final"], trainer.setup.network.state_dict())
    return RecordedTraining(
        initial_content=initial,
        feedback=paths["feedback"],
        early=paths["early"] if trainer.early else None,
        early_step=trainer.early.step if trainer.early else None,
        digests=digests,
        later={outcome.epochs if outcome.selected is None else outcome.selected: final},
        epochs=outcome.epochs,
        recorded=recorded,
        selected=outcome.selected,
    )


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory) -> RecordedTraining:
    """What a run of the tiny specification leaves; tests read its files and change copies of the record."""
    with pinned_threads(1):
        return recorded_run(tmp_path_factory.mktemp("plain"))


def replayed(training: RecordedTraining, subject: str = WHOLE, limit: float = math.inf, **changes) -> Check | None:
    """Return what a whole replay of the specification reports about the record."""
    return of_subject(replay_whole(tiny_task(**{"epochs": EPOCHS, **changes}), training, limit), subject)


def of_subject(result: ReplayResult, subject: str) -> Check | None:
    return next((check for check in result.checks if check.subject == subject), None)


HONEST = {
    "bp": {"method": "bp"},
    "fa": {"method": "fa"},
    "dfa with a penalty": {"method": "dfa", "penalty": 0.01},
    "learns its feedback": {"method": "kolen_pollack"},
    "trains a bridge": supported("state_bridge"),
    "frozen": {"method": "bp", "control": "frozen"},
    "frozen_long": {"method": "bp", "control": "frozen_long", "epochs": 2},
    "shallow": {"method": "bp", "control": "shallow"},
    "deep_supervision": {"method": "bp", "control": "deep_supervision"},
    "learns its heads": {"method": "mono_forward"},
    "ladder": {"method": "dfa", "control": "ladder_1"},
    "no epoch": {"epochs": 0},
    "one epoch": {"epochs": 1},
    "one step an epoch": {"batch_size": 1437},
    "sgd": {"optimizer": "sgd", "learning_rate": 0.05},
    "momentum, limits and steps": {
        **{"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9, "clip_gradient": 0.5, "credit_norm": "none"},
        **{"clip_credit": 0.2, "schedule": "step", "step_epochs": 1, "warmup_epochs": 1},
    },
    "maps and BatchNorm": of("small_resnet", method="bp") | {"epochs": 1},
}


SHORT = {"dfa with a penalty", "learns its feedback", "frozen", "no epoch", "momentum, limits and steps"}


@pytest.mark.parametrize("name", rest_long(HONEST, SHORT))
def test_an_honest_run_comes_again_with_every_digest_and_every_row(tmp_path, name):
    changes = HONEST[name]
    training = recorded_run(tmp_path, **changes)
    check = replayed(training, **changes)
    epochs = changes.get("epochs", EPOCHS)
    assert check.outcome == "agrees", check.detail
    assert (check.epochs, check.rows) == (epochs, epochs + 1)
    task = tiny_task(**{"epochs": EPOCHS, **changes})
    checks = (*replay_first_steps(task, training).checks, *replay_whole(task, training).checks)
    assert "differs" not in {one.outcome for one in checks}


def test_a_diverged_run_comes_again(tmp_path):
    changes = {"method": "bp", "optimizer": "sgd", "learning_rate": 1e6}
    training = recorded_run(tmp_path, **changes)
    assert training.epochs < EPOCHS
    assert not all(tensor.isfinite().all() for tensor in load_tensors(training.later[training.epochs][0]).values())
    assert replayed(training, **changes).outcome == "agrees"


def test_a_run_that_a_rule_ended_comes_again_to_where_it_ended(tmp_path):
    asked = iter(["", "", "D1 fired"])
    training = recorded_run(tmp_path, end=lambda: next(asked))
    check = replayed(training)
    assert training.epochs == 2 and check.outcome == "agrees" and check.epochs == 2


@pytest.mark.parametrize(("batch_size", "replay"), [(None, "36"), (1437, "auto")])
def test_a_replay_past_the_epoch_at_which_a_rule_ended_the_run_compares_no_more(tmp_path, batch_size, replay):
    changes = {"batch_size": batch_size} if batch_size else {}
    training = recorded_run(tmp_path, end=lambda: "D1 fired", **changes)
    check = of_subject(replay_first_steps(tiny_task(epochs=EPOCHS, **changes), training, replay), WHOLE)
    assert (training.epochs, check.outcome, check.epochs) == (0, "agrees", 0), check.detail


def test_the_first_epoch_whose_digest_is_another_is_named_and_is_the_last_that_is_trained(plain_run):
    training = plain_run
    chain = [*training.recorded.chain[:2], "0" * 64, "0" * 64]
    found = replay_whole(tiny_task(epochs=EPOCHS), _with(training, chain=chain))
    check = of_subject(found, WHOLE)
    assert check.outcome == "differs" and "epoch 2 is" in check.detail
    assert found.steps == 24
    for wrong in (["0" * 64, *training.recorded.chain[1:]], training.recorded.chain[:-1]):
        assert replayed(_with(training, chain=wrong)).outcome == "differs"


def _with(training: RecordedTraining, **changes) -> RecordedTraining:
    return dataclasses.replace(training, recorded=dataclasses.replace(training.recorded, **changes))


def test_honest_digests_with_other_final_weights_are_found(tmp_path):
    training = recorded_run(tmp_path)
    path = training.later[EPOCHS][0]
    tensors = load_tensors(path)
    tensors["out_head.weight"][0, 0] += 1e-6
    other = dataclasses.replace(training, later={EPOCHS: (path, save_tensors(path, tensors))})
    check = replayed(other)
    assert check.outcome == "differs" and "after epoch 3" in check.detail


def test_a_run_of_no_epoch_must_end_where_it_begins(tmp_path):
    training = recorded_run(tmp_path, epochs=0)
    path = training.later[0][0]
    trained = Trainer(tiny_task(epochs=1))
    trained.run_epoch()
    digest = save_tensors(path, trained.setup.network.state_dict())
    assert replayed(dataclasses.replace(training, later={0: (path, digest)}), epochs=0).outcome == "differs"


def test_a_learned_feedback_must_end_where_the_replay_ends(tmp_path):
    training = recorded_run(tmp_path, method="kolen_pollack")
    tensors = load_tensors(training.feedback)
    next(iter(tensors.values()))[0, 0] += 1e-6
    digests = {**training.digests, "feedback": save_tensors(training.feedback, tensors)}
    assert replayed(dataclasses.replace(training, digests=digests), method="kolen_pollack").outcome == "differs"


@pytest.mark.parametrize("epoch", range(EPOCHS + 1))
def test_an_epoch_whose_measurements_are_not_the_recorded_ones_is_named(plain_run, epoch):
    honest = plain_run.recorded.row_differs
    forged = _with(plain_run, row_differs=lambda at, measured: "forged" if at == epoch else honest(at, measured))
    check, text = replayed(forged), "is the first epoch whose measurements differ from the recorded values: forged"
    assert check.outcome == "differs" and f"epoch {epoch} {text}" in check.detail


def test_a_run_without_digests_of_its_epochs_differs(plain_run):
    assert replayed(_with(plain_run, chain=())).outcome == "differs"


@pytest.mark.parametrize("recorded", [Reading(0.0), Reading(0.99), Reading(None, "not measured")])
def test_on_another_configuration_the_replayed_weights_are_measured_whatever_is_recorded(plain_run, recorded):
    task = tiny_task(epochs=EPOCHS)
    training = _with(elsewhere(plain_run), chain=["0" * 64] * 4, result=recorded)
    found = replay_whole(task, training)
    check = of_subject(found, WHOLE)
    load_into(task.network, *plain_run.later[EPOCHS])
    load_into(task.feedback, plain_run.feedback)
    assert found.is_complete and (check.outcome, check.epochs, check.steps) == ("agrees", EPOCHS, 36)
    expected = measure(task, moments=MOMENTS, initial=tiny_task(epochs=EPOCHS).network.state_dict())
    assert found.measured.sites == expected.sites and found.measured.scalars == expected.scalars
    assert found.measured.sample_scores


def elsewhere(training: RecordedTraining) -> RecordedTraining:
    return dataclasses.replace(training, exact=False, elsewhere="trained with x, measured with y")


def test_a_main_metric_that_is_not_recorded_is_a_difference(plain_run):
    """Its author chooses what a run records."""
    assert replayed(_with(elsewhere(plain_run), result=None)).outcome == "differs"


def test_on_the_configuration_of_the_training_nothing_is_measured_again(plain_run):
    found = replay_whole(tiny_task(epochs=EPOCHS), plain_run)
    assert found.is_complete and found.measured is None and found.cpu_seconds > 0


@pytest.mark.parametrize("step", [None, 1, 9, 9999])
def test_the_state_of_another_step_than_the_first_steps_is_a_difference(plain_run, step):
    training = dataclasses.replace(plain_run, early_step=step)
    check = of_subject(replay_first_steps(tiny_task(epochs=EPOCHS), training, "8"), "first steps")
    assert check.outcome == "differs" and "after step 8" in check.detail


@pytest.fixture
def clock(monkeypatch) -> Iterator[None]:
    """A clock of CPU time that counts a second a step, however busy the machine is."""
    now = [0.0]
    step = Trainer.step

    def counted(trainer, images, labels):
        now[0] += 1.0
        return step(trainer, images, labels)

    monkeypatch.setattr(Trainer, "step", counted)
    monkeypatch.setattr(replayer.time, "process_time", lambda: now[0])


@pytest.mark.parametrize(("limit", "epochs"), [(11.0, 1), (24.0, 2), (35.0, 2), (36.0, 3)])
def test_a_replay_stops_after_the_last_epoch_within_its_limit(clock, plain_run, limit, epochs):
    found = replay_whole(tiny_task(epochs=EPOCHS), plain_run, limit)
    check = of_subject(found, WHOLE)
    assert check.outcome == ("agrees" if epochs == EPOCHS else "not possible")
    assert (found.steps, check.epochs, found.is_complete) == (12 * epochs, epochs, epochs == EPOCHS)
    assert found.cpu_seconds == found.steps


def test_the_first_steps_estimate_an_epoch(clock, plain_run):
    found = replay_first_steps(tiny_task(epochs=EPOCHS), plain_run)
    assert (found.steps, found.epoch_seconds, found.epochs) == (8, 12.0, EPOCHS)


def test_elsewhere_a_training_that_does_not_fit_is_not_begun(plain_run):
    found = replay_whole(tiny_task(epochs=EPOCHS), elsewhere(plain_run), 1.0, fits=False)
    assert (found.steps, found.checks, found.measured, found.is_complete) == (0, (), None, False)


def test_elsewhere_a_training_that_was_cut_off_is_not_judged(clock, plain_run):
    found = replay_whole(tiny_task(epochs=EPOCHS), elsewhere(plain_run), 13.0)
    assert (found.steps, found.measured, of_subject(found, WHOLE)) == (12, None, None)


def test_weights_that_a_run_did_not_train_further_are_found_where_nothing_is_replayed_whole(tmp_path):
    training = recorded_run(tmp_path, method="bp", control="frozen")
    path = training.later[EPOCHS][0]
    early = {name.removeprefix("network."): tensor for name, tensor in load_tensors(training.early).items()}
    stopped = {name: early[name] for name in load_tensors(path)}
    forged = dataclasses.replace(training, later={EPOCHS: (path, save_tensors(path, stopped))}, exact=False)
    task = tiny_task(epochs=EPOCHS, method="bp", control="frozen")
    check = of_subject(replay_first_steps(task, forged), "first steps")
    assert check.outcome == "differs" and "after step 8" in check.detail


# The chain.


def test_a_specification_gives_one_chain_and_another_gives_another():
    chains = []
    for changes in ({}, {}, {"seed": 4}, {"method": "fa"}):
        trainer = Trainer(tiny_task(epochs=2, **changes))
        trainer.run_epoch(), trainer.run_epoch()
        chains.append(trainer.chain.digests)
    assert chains[0] == chains[1] and len(set(chains[0])) == 3
    assert not set(chains[0]) & set(chains[2])
    assert set(chains[0]) & set(chains[3]) == set()  # fa draws other matrices


def test_a_chain_is_the_same_after_an_interruption(tmp_path):
    whole, first, second = (Trainer(tiny_task(method="kolen_pollack", epochs=3)) for _ in range(3))
    for _ in range(3):
        whole.run_epoch()
    first.run_epoch()
    file = ResumeFile(tmp_path, "run")
    file.write(first, [])
    file.read_into(second)
    second.run_epoch(), second.run_epoch()
    assert second.chain.digests == whole.chain.digests


@pytest.mark.parametrize("digests", [None, ["0" * 64], ["0" * 64, "zero"], "0"])
def test_a_resume_file_without_one_digest_per_state_is_set_aside(tmp_path, digests):
    first, second = Trainer(tiny_task()), Trainer(tiny_task())
    first.run_epoch()
    first.chain.digests = digests
    ResumeFile(tmp_path, "run").write(first, [])
    assert ResumeFile(tmp_path, "run").read_into(second) == [] and second.epoch == 0


@pytest.mark.parametrize("part", ["network.", "feedback.", "optimizer."])
def test_a_link_depends_on_every_part_of_the_state_and_on_all_links_before(part):
    trainer = Trainer(tiny_task(method="kolen_pollack"))
    trainer.run_epoch()
    state = trainer.training_state()
    name = next(name for name in state if name.startswith(part) and state[name].dim() == 2)
    other = {**state, name: state[name].detach().clone()}
    other[name][-1, -1] += 1e-7 + other[name][-1, -1].abs() * 1e-6
    assert state_digest(state) != state_digest(other)
    before = trainer.chain.digests[:1]
    assert linked(before, state_digest(state)) == trainer.chain.digests[1] != linked([], state_digest(state))


def test_the_digest_of_a_state_is_over_names_types_shapes_and_bytes(monkeypatch):
    state = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones((), dtype=torch.bfloat16)}
    same = {"a": state["a"], "b": state["b"].T.contiguous().T}
    assert state_digest(state) == state_digest(same)
    for other in ({**state, "b": state["b"].reshape(3, 2)}, {**state, "c": state["a"]}, {"b": state["b"]}):
        assert state_digest(state) != state_digest(other)
    assert state_digest({"a": torch.empty(0, 3)}) != state_digest({"a": torch.empty(3, 0)})
    whole, pieces = state_digest({"a": torch.arange(64.0)}), []
    monkeypatch.setattr(epoch_chain, "PIECE", 100)
    for changed in (0, 63):
        pieces.append(state_digest({"a": torch.arange(64.0).index_fill(0, torch.tensor([changed]), 9.5)}))
    assert len({whole, *pieces, state_digest({"a": torch.arange(64.0)})}) == 4
    assert GMAC.encrypt(NONCE, b"", b"one") != GMAC.encrypt(NONCE, b"", b"two")


# Kept states.


def after_kept_states(training: RecordedTraining, limit: float = math.inf, **changes) -> Check | None:
    """Return the check of the epochs after the kept states."""
    return next(replay_kept_states(tiny_task(**{"epochs": EPOCHS, **changes}), training, limit), None)


def test_kept_states_are_replayed_where_the_whole_training_proves_nothing_alone(tmp_path, clock):
    training = recorded_run(tmp_path, states=2)
    for changed, limit, fits, subjects in (
        (training, math.inf, True, {WHOLE}),
        (training, 24.0, False, {KEPT}),
        (elsewhere(training), math.inf, True, {WHOLE, KEPT}),
        (elsewhere(training), 24.0, False, {KEPT}),
    ):
        changed = _with(changed, result=Reading(0.5))
        found = replay_whole(tiny_task(epochs=EPOCHS), changed, limit, fits)
        assert {check.subject for check in found.checks} - {"first steps"} == subjects
    for limit, text in ((math.inf, "epochs 2–3"), (24.0, "epochs 2–3"), (23.0, "epoch 2 ")):
        assert text in after_kept_states(training, limit).detail


@pytest.mark.parametrize(
    ("states", "epochs", "kept"),
    [(3, 10, (2, 5, 7)), (1, 4, (2,)), (5, 3, (1, 2)), (2, 1, ()), ("all", 4, (1, 2, 3)), ("all", 1, ()), (0, 9, ())],
)
def test_states_are_kept_evenly_over_the_epochs(states, epochs, kept):
    assert kept_epochs(states, epochs) == kept


@pytest.mark.parametrize("method", ["dfa", "kolen_pollack"])
def test_the_epoch_after_every_kept_state_comes_again(tmp_path, method):
    training = recorded_run(tmp_path, states=2, method=method)
    check = after_kept_states(training, method=method)
    assert check.outcome == "agrees"
    assert "epochs 2–3" in check.detail
    size = sum(sum(path.stat().st_size for path in entry[::2]) for entry in training.recorded.kept.values()) / 2
    spec = tiny_spec(method=method)
    assert size == pytest.approx(kept_bytes(*TensorSizes.of_specs([spec])[0]), abs=12_000)  # names and steps


@pytest.mark.long
def test_on_another_configuration_the_epoch_after_a_kept_state_goes_the_same_way(tmp_path):
    training = dataclasses.replace(recorded_run(tmp_path, states=1), exact=False)
    (path, digest, after, _), (epoch,) = next(iter(training.recorded.kept.values())), training.recorded.kept
    tensors = load_tensors(after)
    draw = torch.Generator().manual_seed(1)
    rounded = {
        name: tensor * (1 + 1e-6 * torch.randn(tensor.shape, generator=draw)) for name, tensor in tensors.items()
    }
    rounded |= {name: tensor for name, tensor in tensors.items() if name.startswith("feedback.")}
    kept = {epoch: (path, digest, after, save_tensors(after, rounded))}
    check = after_kept_states(_with(training, kept=kept))
    assert check.outcome == "agrees" and "within 0.1" in check.detail
    assert after_kept_states(dataclasses.replace(_with(training, kept=kept), exact=True)).outcome == "differs"
    elsewhere = {name: tensor * 1.1 for name, tensor in tensors.items()}
    kept = {epoch: (path, digest, after, save_tensors(after, elsewhere))}
    assert after_kept_states(_with(training, kept=kept)).outcome == "not possible"


def test_a_kept_state_that_is_not_the_one_of_the_chain_is_found(tmp_path):
    training = recorded_run(tmp_path, states=1)
    ((epoch, (path, _, after, after_digest)),) = training.recorded.kept.items()
    tensors = load_tensors(path)
    moment = next(name for name in tensors if name.endswith("exp_avg"))
    tensors[moment] *= 1.01
    kept = {epoch: (path, save_tensors(path, tensors), after, after_digest)}
    check = after_kept_states(_with(training, kept=kept))
    assert check.outcome == "differs" and "not the recorded digest" in check.detail
    kept = {epoch: (path, save_tensors(path, {"network.nothing": torch.ones(1)}), after, after_digest)}
    with pytest.raises(IntegrityError):
        after_kept_states(_with(training, kept=kept))


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_chain_that_ends_before_a_kept_state_is_a_difference_of_that_epoch(tmp_path, is_exact):
    training = dataclasses.replace(recorded_run(tmp_path, states=1), exact=is_exact)
    (epoch,) = training.recorded.kept
    check = after_kept_states(_with(training, chain=training.recorded.chain[:epoch]))
    assert check.outcome == ("differs" if is_exact else "not possible")
    assert f"epoch {epoch + 1}" in check.detail and f"epoch {epoch}:" in check.detail


def test_a_link_before_a_kept_state_that_is_no_digest_is_a_difference(tmp_path):
    training = recorded_run(tmp_path, states=1)
    ((epoch, _),) = training.recorded.kept.items()
    chain = [*training.recorded.chain[: epoch - 1], "no digest", *training.recorded.chain[epoch:]]
    assert after_kept_states(_with(training, chain=chain)).outcome == "differs"
