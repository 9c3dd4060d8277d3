"""Files of kept states that are missing, altered, or not those of one training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from torch import Tensor

from fa_registry import jsonio
from fa_registry.errors import IntegrityError
from fa_registry.evidence.kept_state_files import FILES
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.evidence.remeasure import remeasure_run
from fa_registry.evidence.replay_record import recorded_epochs
from fa_registry.metrics import headline_of
from fa_registry.records import Integrity
from fa_registry.records.manifest_checks import keeps_every_state
from fa_registry.tracking import schema
from fa_registry.tracking.base import RetentionOptions
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.reader import read_record
from fa_registry.training import state_sizes
from fa_registry.training.checkpoint import content_digest, load_tensors, save_tensors
from tests.security.conftest import audited, call
from tests.tracking.conftest import write_run

EPOCHS = 4
CHEAP = RemeasureOptions(replay=8)


class Kept:
    """A run that kept states, and its folder."""

    def __init__(self, folder: Path, states: str | int = "all", method: str = "kolen_pollack"):
        self.tracker = MemoryTracker(folder)
        keep = RetentionOptions(keep_states=states)
        self.run_id = write_run(self.tracker, keep=keep, epochs=EPOCHS, method=method)[0].run_id
        self.folder = self.tracker.artifact(self.run_id, schema.SPEC).parent

    @property
    def provenance(self) -> Mapping[str, object]:
        return json.loads((self.folder / schema.PROVENANCE).read_text(encoding="utf-8"))

    def record(self, change: Callable[[dict], None] = lambda provenance: None) -> None:
        """Record the files as they are now, and `change` in provenance.json, with new digests."""
        provenance = self.provenance
        present = {name for name in provenance["digests"] if (self.folder / name).exists()}
        provenance["digests"] = {name: jsonio.file_digest(self.folder / name) for name in sorted(present)}
        change(provenance)
        (self.folder / schema.PROVENANCE).write_text(jsonio.pretty(provenance), encoding="utf-8")
        digests = {**provenance["digests"], schema.PROVENANCE: jsonio.file_digest(self.folder / schema.PROVENANCE)}
        self.tracker.log(self.run_id, tags={schema.TAG_ARTIFACTS: jsonio.digest_of(digests)})

    def change(self, name: str, change: Callable[[dict[str, Tensor]], None]) -> None:
        tensors = load_tensors(self.folder / name)
        change(tensors)
        save_tensors(self.folder / name, tensors)

    def integrity(self) -> Integrity:
        return remeasure_run(self.tracker, self.tracker.get(self.run_id), CHEAP)[0].integrity

    def outcome(self) -> str:
        (check,) = [one for one in self.integrity().checks if one.subject == FILES]
        return check.outcome


@pytest.fixture
def kept(tmp_path) -> Kept:
    return Kept(tmp_path)


@pytest.mark.parametrize(("states", "epochs", "every"), [("all", [1, 2, 3], True), (2, [1, 2], False), (1, [2], False)])
def test_kept_states_of_an_honest_run_fit_together(tmp_path, states, epochs, every):
    run = Kept(tmp_path, states)
    assert run.provenance[schema.KEPT_STATES] == epochs and keeps_every_state(run.provenance) is every
    assert run.integrity().state == "verified" and run.outcome() == "agrees"


@pytest.mark.parametrize("states", [0, "auto"])
def test_a_run_that_keeps_none_has_no_check_of_them(tmp_path, states):
    run = Kept(tmp_path, states)
    assert schema.KEPT_STATES not in run.provenance and not keeps_every_state(run.provenance)
    assert not any(one.subject in (FILES, "kept states") for one in run.integrity().checks)
    assert not list(run.folder.glob("checkpoints/state_*"))


def test_three_states_are_kept_by_default_where_they_are_small(tmp_path, monkeypatch):
    monkeypatch.setattr(state_sizes, "EPOCH_BYTES", 10**9)
    run = Kept(tmp_path, "auto")
    assert run.provenance[schema.KEPT_STATES] == [1, 2, 3] and run.outcome() == "agrees"


def test_kept_states_change_no_weights_and_no_metrics(tmp_path):
    kept, other = Kept(tmp_path / "all"), Kept(tmp_path / "none", 0)
    for name in (schema.FINAL, schema.FEEDBACK, schema.SERIES, schema.MEASUREMENTS, schema.SPEC):
        assert (kept.folder / name).read_bytes() == (other.folder / name).read_bytes()
    assert kept.provenance[schema.EPOCH_CHAIN] == other.provenance[schema.EPOCH_CHAIN]


@pytest.mark.parametrize("name", [schema.kept_state(2), schema.after_kept_state(3)])
def test_a_file_that_is_missing_or_altered_is_an_integrity_error(kept, name):
    content = (kept.folder / name).read_bytes()
    (kept.folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(IntegrityError, match=name.rpartition("/")[2]):
        kept.integrity()
    (kept.folder / name).unlink()
    with pytest.raises(IntegrityError, match=name.rpartition("/")[2]):
        kept.integrity()


@pytest.mark.parametrize("name", [schema.kept_state(2), schema.after_kept_state(3)])
def test_a_stated_epoch_without_a_recorded_file_is_a_mismatch(kept, name):
    (kept.folder / name).unlink()
    kept.record()
    assert kept.outcome() == "differs"


@pytest.mark.parametrize("epoch", [0, EPOCHS, -1, 10**12])
def test_an_epoch_that_the_run_did_not_train_is_a_mismatch(kept, epoch):
    kept.record(lambda provenance: provenance.update(kept_states=[1, 2, 3, epoch]))
    assert kept.outcome() == "differs"


def test_a_run_that_states_fewer_epochs_does_not_keep_every_state(kept):
    kept.record(lambda provenance: provenance.update(kept_states=[1, 3]))
    assert not keeps_every_state(kept.provenance) and kept.outcome() == "agrees"


def test_the_nonce_orders_all_kept_epochs(kept):
    record = read_record(kept.tracker, kept.tracker.get(kept.run_id))
    headline = headline_of(record.measurements)
    orders = {
        tuple(recorded_epochs(kept.tracker, record, RemeasureOptions(nonce=f"{nonce:x}"), EPOCHS, headline, True).kept)
        for nonce in range(40)
    }
    assert {frozenset(order) for order in orders} == {frozenset({1, 2, 3})}
    assert {order[0] for order in orders} == {1, 2, 3}


def larger(tensors: dict[str, Tensor]) -> None:
    name = next(name for name in tensors if name.endswith("weight") and tensors[name].numel() > 1)
    tensors[name] = tensors[name] * 1.001


@pytest.mark.parametrize("name", [schema.kept_state(2), schema.after_kept_state(1), schema.after_kept_state(3)])
def test_a_state_that_does_not_continue_the_one_before_is_a_mismatch(kept, name):
    kept.change(name, larger)
    kept.record()
    assert kept.outcome() == "differs"


def test_honest_states_beside_other_final_weights_are_a_mismatch(kept):
    """Without this check, every epoch that a nonce can choose is honest, and the final weights are not."""
    kept.change(schema.FINAL, larger)
    digest = content_digest(load_tensors(kept.folder / schema.FINAL))
    kept.record(lambda provenance: provenance.update(final_weights=digest))
    assert kept.outcome() == "differs"


def test_other_final_feedback_is_a_mismatch(kept):
    kept.change(schema.FEEDBACK, lambda tensors: tensors.update({name: 2 * tensors[name] for name in tensors}))
    kept.record()
    assert kept.outcome() == "differs"


def test_a_state_of_another_run_is_a_mismatch(kept, tmp_path):
    other = Kept(tmp_path / "other", method="dfa")
    for name in (schema.kept_state(2), schema.after_kept_state(2)):
        shutil.copy(other.folder / name, kept.folder / name)
    kept.record()
    assert kept.outcome() == "differs"


@pytest.mark.parametrize(
    ("epochs_run", "kept_states", "every"),
    [
        (4, [3, 1, 2], True),
        (4, [1, 2], False),
        (4, [1, 2, 3, 4], False),
        (1, [], False),
        (0, [], False),
        (2, [1], True),
    ],
)
def test_every_state_is_kept_if_all_epochs_but_the_last_are_stated(epochs_run, kept_states, every):
    assert keeps_every_state({"epochs_run": epochs_run, "kept_states": kept_states}) is every
    assert keeps_every_state({}) is False


def test_a_run_that_selects_an_epoch_keeps_its_states_up_to_the_last_one(tmp_path, empty_store, monkeypatch):
    """The final files are those of the selected epoch; the state after the last epoch is another one, and no fault."""
    shutil.copy(empty_store, tmp_path)
    monkeypatch.chdir(tmp_path)
    recipe = "validation=0.1,select=best validation,learning_rate=1.0,schedule=constant"
    how = ["--set", f"{recipe},architecture.d_hidden=16,architecture.num_blocks=2", "--device", "cpu", "--json"]
    kept = ["--keep-states", "all", "--checkpoint-every", "1"]
    trained = call("train", "--method", "dfa", "--seed", "7", "--epochs", "4", *kept, *how)
    run_id = json.loads(trained.stdout)["run_id"]
    _, report = audited(tmp_path, "--run", run_id, "--replay", "all")
    (run,) = report.runs
    assert 0 < run.record.provenance["selected_epoch"] < 4
    assert run.record.integrity.state == "verified" and run.verdict.proof == "replayed"
