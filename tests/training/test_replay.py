"""Whole replays: no honest run is accused, and what was not trained as its specification says is named with its first epoch."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch

from fa_registry import architectures
from fa_registry.errors import IntegrityError
from fa_registry.evidence import replay_from_seed as redrawing
from fa_registry.evidence.replay import KEPT, OTHER_BITS, STEP_WORK, WHOLE, RecordedEpochs, work_of
from fa_registry.evidence.replay_from_seed import RecordedTraining, replay_training
from fa_registry.plugin_registry import Location
from fa_registry.records import Check, Measurements, Reading
from fa_registry.records.configurations import is_undecidable
from fa_registry.tracking import schema
from fa_registry.training import epoch_chain
from fa_registry.training.checkpoint import content_digest, load_tensors, save_tensors
from fa_registry.training.devices import pinned_threads
from fa_registry.training.epoch_chain import GMAC, NONCE, linked, state_digest
from fa_registry.training.loop import train
from fa_registry.training.resume import ResumeFile
from fa_registry.training.trainer import Trainer
from fa_registry.training.trainer_state import full_state, kept_bytes, kept_epochs
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
        later={outcome.epochs: final},
        epochs=outcome.epochs,
        recorded=recorded,
    )


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory) -> RecordedTraining:
    """What a run of the tiny specification leaves; tests read its files and change copies of the record."""
    with pinned_threads(1):
        return recorded_run(tmp_path_factory.mktemp("plain"))


def replayed(training: RecordedTraining, subject: str = WHOLE, replay: str = "auto", **changes) -> Check | None:
    """Return what a whole replay of the specification reports about the record."""
    checks = replay_training(tiny_task(**{"epochs": EPOCHS, **changes}), training, replay, is_full_replay=True).checks
    return next((check for check in checks if check.subject == subject), None)


HONEST = {
    "bp": {"method": "bp"},
    "fa": {"method": "fa"},
    "dfa with a penalty": {"method": "dfa", "penalty": 0.01},
    "learns its feedback": {"method": "kolen_pollack"},
    "trains a bridge": supported("state_bridge"),
    "frozen": {"method": "bp", "control": "frozen"},
    "frozen_long": {"method": "bp", "control": "frozen_long", "epochs": 2},
    "shallow": {"method": "bp", "control": "shallow"},
    "ladder": {"method": "dfa", "control": "ladder_1"},
    "no epoch": {"epochs": 0},
    "one epoch": {"epochs": 1},
    "one step an epoch": {"batch_size": 1437},
    "sgd": {"optimizer": "sgd", "learning_rate": 0.05},
    "maps and BatchNorm": of("small_resnet", method="bp") | {"epochs": 1},
}


@pytest.mark.parametrize("name", rest_long(HONEST, {"dfa with a penalty", "learns its feedback", "frozen", "no epoch"}))
def test_an_honest_run_comes_again_with_every_digest_and_every_row(tmp_path, name):
    changes = HONEST[name]
    training = recorded_run(tmp_path, **changes)
    check = replayed(training, **changes)
    epochs = changes.get("epochs", EPOCHS)
    assert check.outcome == "agrees", check.detail
    assert (check.epochs, check.rows) == (epochs, epochs + 1)
    checks = replay_training(tiny_task(**{"epochs": EPOCHS, **changes}), training, "all").checks
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
    check = replayed(training, replay=replay, **changes)
    assert (training.epochs, check.outcome, check.epochs) == (0, "agrees", 0), check.detail


def test_the_first_epoch_whose_digest_is_another_is_named_and_is_the_last_that_is_trained(plain_run):
    training = plain_run
    chain = [*training.recorded.chain[:2], "0" * 64, "0" * 64]
    found = replay_training(tiny_task(epochs=EPOCHS), _with(training, chain=chain), is_full_replay=True)
    check = next(check for check in found.checks if check.subject == WHOLE)
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


@pytest.mark.long
def test_on_another_configuration_a_whole_replay_compares_the_accuracy(plain_run):
    training = _with(plain_run, chain=["0" * 64] * 4)
    elsewhere = dataclasses.replace(training, exact=False, elsewhere="trained with x, measured with y")
    reached = accuracy_of(replayed(_with(elsewhere, result=Reading(0.0))))
    for apart, concluded in ((0.0, True), (0.09, True), (0.11, False), (-0.11, False)):
        check = replayed(_with(elsewhere, result=Reading(reached + apart)))
        assert check.outcome == "not possible" and is_undecidable(check) is not concluded
        assert check.detail.endswith(OTHER_BITS) is concluded
        assert f"{reached:.4f};" in check.detail and f"{reached + apart:.4f}" in check.detail
        assert (check.steps > 0, check.epochs) == (True, EPOCHS)


def test_a_main_metric_that_is_not_recorded_never_ends_the_comparison(plain_run):
    """Its author chooses what a run records: a missing value is a difference, and one that is N/A is not told apart."""
    elsewhere = dataclasses.replace(plain_run, exact=False, elsewhere="trained with x, measured with y")
    assert replayed(_with(elsewhere, result=None)).outcome == "differs"
    assert is_undecidable(replayed(_with(elsewhere, result=Reading(None, "not measured"))))


@pytest.mark.parametrize("step", [None, 1, 9, 9999])
def test_the_state_of_another_step_than_the_first_steps_is_a_difference(plain_run, step):
    training = dataclasses.replace(plain_run, early_step=step)
    check = replayed(training, subject="first steps", replay="8")
    assert check.outcome == "differs" and "after step 8" in check.detail


def accuracy_of(check) -> float:
    """The accuracy that a whole replay on another configuration reached."""
    return float(re.search(r"the test accuracy is ([0-9.]+);", check.detail)[1])


def test_what_is_too_much_for_auto_is_replayed_as_far_as_its_limit_goes(plain_run, monkeypatch):
    training, task = plain_run, tiny_task(epochs=EPOCHS)
    assert work_of(task, EPOCHS) == EPOCHS * work_of(task, 1)
    monkeypatch.setattr(redrawing, "WHOLE_WORK", 2.5 * work_of(task, 1))
    check = replayed(training)
    assert check.outcome == "not possible" and check.detail.startswith("2 of 3 epochs")
    assert replayed(training, replay="all").outcome == "agrees"
    monkeypatch.setattr(redrawing, "WHOLE_WORK", 0.5 * work_of(task, 1))
    assert "--replay all" in replayed(training).detail


@pytest.mark.parametrize("is_chosen", [True, False])
@pytest.mark.parametrize(
    ("exact", "limit", "replay", "undecided"),
    [
        (False, 0.5, "auto", True),  # longer than the limit, and no bits can be compared
        (False, 2.9, "auto", True),
        (False, 3.1, "auto", False),
        (True, 0.5, "auto", False),
        (True, 2.9, "auto", False),
        (False, 0.5, "all", False),
        (False, 0.5, "8", False),
    ],
)
def test_a_training_that_can_neither_be_replayed_nor_compared_is_undecided(
    plain_run, monkeypatch, is_chosen, exact, limit, replay, undecided
):
    task = tiny_task(epochs=EPOCHS)
    monkeypatch.setattr(redrawing, "WHOLE_WORK", limit * work_of(task, 1))
    training = dataclasses.replace(plain_run, exact=exact, elsewhere="" if exact else "trained with x, measured with y")
    checks = replay_training(task, training, replay, is_chosen).checks
    assert [check.subject for check in checks if is_undecidable(check)] == ([WHOLE] if undecided else [])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_on_a_gpu_no_configuration_differs_and_yet_no_bits_can_be_compared(plain_run, monkeypatch, device):
    monkeypatch.setattr(redrawing, "WHOLE_WORK", 1.0)
    training = dataclasses.replace(plain_run, exact=device == "cpu")
    found = [check for check in replay_training(tiny_task(epochs=EPOCHS), training).checks if is_undecidable(check)]
    assert bool(found) is (device == "cuda")


class Wasteful(torch.nn.Module):
    """Some 5e9 multiplications that change nothing, before the forward pass of a network."""

    def __init__(self, network):
        super().__init__()
        self.network, self.waste = network, torch.zeros(1700, 1700)

    def forward(self, images):
        return self.network(images) + (self.waste @ self.waste)[0, 0]


@pytest.mark.parametrize("built_in", [True, False])
def test_only_the_forward_pass_of_a_built_in_network_enters_the_limit(monkeypatch, built_in):
    task = tiny_task(epochs=EPOCHS)
    wasteful = dataclasses.replace(task, network=Wasteful(task.network))
    location = Location("resmlp", "PLUGIN", "", "" if built_in else "a_package")
    monkeypatch.setattr(type(architectures.CATALOG), "location", lambda catalog, name: location)
    assert (work_of(wasteful, EPOCHS) > redrawing.WHOLE_WORK) is built_in
    weights = sum(parameter.numel() for parameter in task.network.parameters())
    if not built_in:
        assert work_of(wasteful, EPOCHS) == EPOCHS * (1437 * weights + 12 * STEP_WORK)


def test_the_limit_of_auto_lets_a_run_of_the_digits_study_through():
    task = tiny_task(epochs=100, architecture_options={"d_hidden": 256, "num_blocks": 4})
    assert work_of(task, 100) < redrawing.WHOLE_WORK < work_of(task, 300)


def test_weights_that_a_run_did_not_train_further_are_found_where_nothing_is_replayed_whole(tmp_path):
    training = recorded_run(tmp_path, method="bp", control="frozen")
    path = training.later[EPOCHS][0]
    early = {name.removeprefix("network."): tensor for name, tensor in load_tensors(training.early).items()}
    stopped = {name: early[name] for name in load_tensors(path)}
    forged = dataclasses.replace(training, later={EPOCHS: (path, save_tensors(path, stopped))}, exact=False)
    task = tiny_task(epochs=EPOCHS, method="bp", control="frozen")
    (check,) = (check for check in replay_training(task, forged).checks if check.subject == "first steps")
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


@pytest.mark.parametrize(("states", "epochs", "kept"), [(3, 10, (2, 5, 7)), (1, 4, (2,)), (5, 3, (1, 2)), (2, 1, ())])
def test_states_are_kept_evenly_over_the_epochs(states, epochs, kept):
    assert kept_epochs(states, epochs) == kept


@pytest.mark.parametrize("method", ["dfa", "kolen_pollack"])
def test_the_epoch_after_every_kept_state_comes_again(tmp_path, method):
    training = recorded_run(tmp_path, states=2, method=method)
    check = replayed(training, KEPT, method=method)
    assert check.outcome == "agrees"
    assert "epochs 2–3" in check.detail
    size = sum(sum(path.stat().st_size for path in entry[::2]) for entry in training.recorded.kept.values()) / 2
    spec = tiny_spec(method=method)
    assert size == pytest.approx(kept_bytes(spec), abs=12_000)  # names and steps


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
    check = replayed(_with(training, kept=kept), KEPT)
    assert check.outcome == "agrees" and "within 0.1" in check.detail
    assert replayed(dataclasses.replace(_with(training, kept=kept), exact=True), KEPT).outcome == "differs"
    elsewhere = {name: tensor * 1.1 for name, tensor in tensors.items()}
    kept = {epoch: (path, digest, after, save_tensors(after, elsewhere))}
    assert replayed(_with(training, kept=kept), KEPT).outcome == "not possible"


def test_a_kept_state_that_is_not_the_one_of_the_chain_is_found(tmp_path):
    training = recorded_run(tmp_path, states=1)
    ((epoch, (path, _, after, after_digest)),) = training.recorded.kept.items()
    tensors = load_tensors(path)
    moment = next(name for name in tensors if name.endswith("exp_avg"))
    tensors[moment] *= 1.01
    kept = {epoch: (path, save_tensors(path, tensors), after, after_digest)}
    check = replayed(_with(training, kept=kept), KEPT)
    assert check.outcome == "differs" and "not the recorded digest" in check.detail
    kept = {epoch: (path, save_tensors(path, {"network.nothing": torch.ones(1)}), after, after_digest)}
    with pytest.raises(IntegrityError):
        replayed(_with(training, kept=kept), KEPT)


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_chain_that_ends_before_a_kept_state_is_a_difference_of_that_epoch(tmp_path, is_exact):
    training = dataclasses.replace(recorded_run(tmp_path, states=1), exact=is_exact)
    (epoch,) = training.recorded.kept
    check = replayed(_with(training, chain=training.recorded.chain[:epoch]), KEPT)
    assert check.outcome == ("differs" if is_exact else "not possible")
    assert f"epoch {epoch + 1}" in check.detail and f"epoch {epoch}:" in check.detail


def test_a_link_before_a_kept_state_that_is_no_digest_is_a_difference(tmp_path):
    training = recorded_run(tmp_path, states=1)
    ((epoch, _),) = training.recorded.kept.items()
    chain = [*training.recorded.chain[: epoch - 1], "no digest", *training.recorded.chain[epoch:]]
    assert replayed(_with(training, chain=chain), KEPT).outcome == "differs"
