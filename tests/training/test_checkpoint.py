"""Tensor files: atomic, digested, readable or refused."""

from __future__ import annotations

import hashlib
import json
import os

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from fa_registry.errors import IntegrityError, Interrupted
from fa_registry.jsonio import file_digest
from fa_registry.methods.base import FixedMatrices, NoFeedback
from fa_registry.training import checkpoint
from fa_registry.training.checkpoint import content_digest, load_into, load_tensors, save_tensors
from fa_registry.training.loop import EpochRow, train
from fa_registry.training.resume import ResumeFile
from fa_registry.training.run_setup import build_setup
from fa_registry.training.trainer import Trainer
from tests.helpers.nets import of, short_task
from tests.helpers.tiny_tasks import Recorder, tiny_spec, tiny_task, trained, weights_equal

TENSORS = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor([1, 2])}


def test_what_is_saved_is_read_back_bit_by_bit(tmp_path):
    path = tmp_path / "deep" / "t.safetensors"
    digest = save_tensors(path, TENSORS, {"epoch": "3"})
    assert digest == file_digest(path)
    found = load_tensors(path, digest)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in TENSORS.items())


@pytest.mark.parametrize("metadata", [None, {}, {"epoch": "1"}])
def test_a_state_without_tensors_can_be_saved_and_read(tmp_path, metadata):
    path = tmp_path / "none.safetensors"
    load_into(NoFeedback(), path, save_tensors(path, NoFeedback().state_dict(), metadata))
    assert load_tensors(path) == {}


def test_views_and_tensors_that_need_gradients_are_saved_as_values(tmp_path):
    matrix = torch.arange(6.0).reshape(2, 3).requires_grad_()
    save_tensors(tmp_path / "t", {"t": matrix.T})
    assert torch.equal(load_tensors(tmp_path / "t")["t"], matrix.detach().T)


@pytest.mark.parametrize("at_once", [0, 2**26])
def test_a_large_file_is_read_as_a_small_one_is(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(checkpoint, "AT_ONCE", at_once)
    digest = save_tensors(tmp_path / "t", TENSORS)
    assert {name: tensor.tolist() for name, tensor in load_tensors(tmp_path / "t", digest).items()} == {
        name: tensor.tolist() for name, tensor in TENSORS.items()
    }


def test_a_hole_that_says_it_is_a_file_of_tensors_takes_no_memory(tmp_path, monkeypatch):
    """An untrusted store may contain one of 60 GiB; its header is looked at before it is read."""
    monkeypatch.setattr(checkpoint, "load", lambda held: pytest.fail(f"{len(held)} bytes were read"))
    with (tmp_path / "t").open("wb") as stream:
        stream.truncate(checkpoint.AT_ONCE + 2)
    with pytest.raises(IntegrityError, match="t is not a readable safetensors file"):
        load_tensors(tmp_path / "t")


@pytest.mark.parametrize("at_once", [0, 2**26])
def test_one_flipped_bit_is_refused_with_both_digests(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(checkpoint, "AT_ONCE", at_once)
    path = tmp_path / "t.safetensors"
    digest = save_tensors(path, TENSORS)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match=f"t.safetensors: expected SHA-256 {digest}, found {file_digest(path)}"):
        load_tensors(path, digest)


def test_a_truncated_file_is_refused_without_a_digest_too(tmp_path):
    path = tmp_path / "t.safetensors"
    save_tensors(path, TENSORS)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(IntegrityError, match="t.safetensors is not a readable safetensors file"):
        load_tensors(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(IntegrityError, match="^gone.safetensors is missing$"):
        load_tensors(tmp_path / "gone.safetensors")


def test_tensors_of_another_network_are_refused_by_name(tmp_path):
    path = tmp_path / "t.safetensors"
    digest = save_tensors(path, nn.Linear(2, 3).state_dict())
    with pytest.raises(IntegrityError, match=r"(?s)do not fit: .*B_01"):
        load_into(FixedMatrices([torch.zeros(2, 2)]), path, digest)
    with pytest.raises(IntegrityError, match="(?s)do not fit: .*size mismatch"):
        load_into(nn.Linear(2, 4), path, digest)
    other = nn.Linear(2, 3)
    load_into(other, path, digest)
    assert torch.equal(other.weight, load_tensors(path)["weight"])


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "t.safetensors"
    digest = save_tensors(path, TENSORS)

    def die(tensors, temporary, metadata):
        with open(temporary, "wb") as stream:
            stream.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint, "save_file", die)
    with pytest.raises(OSError, match="disk full"):
        save_tensors(path, {"a": torch.zeros(3)})
    assert file_digest(path) == digest
    assert [file.name for file in tmp_path.iterdir()] == ["t.safetensors"]


def test_the_digest_of_a_content_is_not_that_of_its_file(tmp_path):
    """Other metadata, another order: the same weights. Another bit, name, shape or type: others."""
    tensors = {"a": torch.ones(2, 3), "b": torch.zeros(()), "n": torch.tensor(3)}
    first = save_tensors(tmp_path / "1", tensors)
    second = save_tensors(tmp_path / "2", dict(reversed(tensors.items())), {"by": "another"})
    same = content_digest(load_tensors(tmp_path / "1"))
    assert first != second and same == content_digest(load_tensors(tmp_path / "2")) == content_digest(tensors)
    others = [
        {**tensors, "a": torch.ones(3, 2)},
        {**tensors, "a": torch.ones(2, 3, dtype=torch.float64)},
        {**tensors, "b": torch.tensor(1e-45)},
        {"a": tensors["a"], "c": tensors["b"], "n": tensors["n"]},
    ]
    assert len({same, *map(content_digest, others)}) == 5


def test_what_training_broke_down_to_has_no_digest():
    assert content_digest({"a": torch.tensor([1.0, torch.nan])}) == content_digest({}) == ""


@pytest.mark.long
@pytest.mark.parametrize("stop_at", [1, 3])
def test_the_resumed_run_is_the_undisturbed_run(tmp_path, stop_at):
    """Of one method; test_every_method resumes all of them."""
    changes = {"method": "fa", "epochs": 4, "penalty": 0.01}
    undisturbed, expected, whole = trained(**changes)
    trainer, before = Trainer(tiny_task(**changes)), Recorder()
    with pytest.raises(Interrupted):
        train(trainer, before, stop=lambda: trainer.epoch == stop_at)
    ResumeFile(tmp_path, trainer.setup.spec.identity).write(trainer, before.rows)
    torch.manual_seed(1)

    fresh, after = Trainer(tiny_task(**changes)), Recorder()
    rows = ResumeFile(tmp_path, fresh.setup.spec.identity).read_into(fresh)
    assert fresh.epoch == stop_at
    outcome = train(fresh, after, rows=rows)
    assert weights_equal(fresh.setup.network, undisturbed.setup.network)
    assert [*rows, *after.rows] == expected.rows
    assert outcome == whole and "rho" in outcome.final.sites


@pytest.mark.parametrize(
    ("method", "control"),
    [
        ("dfa", "none"),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("credit_bridge", "none"), ("bp", "ladder_1"))),
    ],
)
def test_running_statistics_travel_along(tmp_path, method, control):
    def task():
        return short_task("small_resnet", method=method, control=control, epochs=3, batch_size=64)

    undisturbed, recorder = Trainer(task()), Recorder()
    whole = train(undisturbed, recorder)
    first = Trainer(task())
    first.run_epoch()
    ResumeFile(tmp_path, "id").write(first, recorder.rows[:2])
    fresh = Trainer(task())
    rows = ResumeFile(tmp_path, "id").read_into(fresh)
    assert weights_equal(fresh.setup.network, first.setup.network)
    assert fresh.setup.network.stem_bn.running_mean.abs().max() > 0
    assert train(fresh, Recorder(), rows=rows) == whole
    assert weights_equal(fresh.setup.network, undisturbed.setup.network)  # buffers included


def test_a_run_stopped_after_its_last_epoch_still_gets_its_final_measurements(tmp_path):
    undisturbed, recorder, whole = trained(epochs=2)
    ResumeFile(tmp_path, "id").write(undisturbed, recorder.rows)
    fresh = Trainer(tiny_task(epochs=2))
    rows = ResumeFile(tmp_path, "id").read_into(fresh)
    assert train(fresh, Recorder(), rows=rows) == whole
    assert whole.final.scalars["blocks_trained"].value == 2


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
        ),
    ],
)
def test_moments_lie_in_memory_as_their_kernels_do(tmp_path, device):
    """A GPU's kernels have channels last; its fused AdamW takes moments of the same strides and no others."""
    spec = tiny_spec(**of("small_cnn", device=device))

    def fresh():
        task = build_setup(spec, torch.device(device))
        task.network.to(memory_format=torch.channels_last)
        return Trainer(task)

    first, again = fresh(), fresh()
    first.run_epoch()
    file = ResumeFile(tmp_path, "id")
    file.write(first, [])
    file.read_into(again)
    for old, new in zip(first.parameters, again.parameters, strict=True):
        for name in ("exp_avg", "exp_avg_sq"):
            before, after = (trainer.optimizer.values(one)[name] for trainer, one in ((first, old), (again, new)))
            assert torch.equal(before, after) and before.stride() == after.stride() == new.stride()
            assert not after.requires_grad
    assert first.run_epoch()["loss_train"].value == pytest.approx(again.run_epoch()["loss_train"].value, rel=1e-6)


@pytest.mark.parametrize("stop_at", [1, 2])
def test_where_the_first_steps_led_travels_along(tmp_path, stop_at):
    undisturbed = Trainer(tiny_task(epochs=3))
    for _ in range(3):
        undisturbed.run_epoch()
    first, file = Trainer(tiny_task(epochs=3)), ResumeFile(tmp_path, "id")
    for _ in range(stop_at):
        first.run_epoch()
    file.write(first, [])
    fresh = Trainer(tiny_task(epochs=3))
    file.read_into(fresh)
    fresh.run_epoch()
    assert fresh.early.step == undisturbed.early.step == 8
    assert all(torch.equal(fresh.early.tensors[name], one) for name, one in undisturbed.early.tensors.items())
    assert fresh.early.tensors.keys() == fresh.state().keys()


def test_rows_with_readings_that_are_not_finite_survive(tmp_path):
    trainer, recorder, _ = trained(epochs=3, learning_rate=1e30)
    file = ResumeFile(tmp_path, "id")
    file.write(trainer, recorder.rows)
    assert file.read_into(Trainer(tiny_task())) == recorder.rows
    assert isinstance(recorder.rows[-1], EpochRow)


def flipped(path, place):
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 4
    path.write_bytes(data)


DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-50]),
    "emptied": lambda path: path.write_bytes(b""),
    "a bit of a tensor": lambda path: flipped(path, -1),
    "a bit of the rows": lambda path: flipped(path, 90),
    "a bit of the digest": lambda path: flipped(path, 3),
    "a link": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "another run's": lambda path: ResumeFile(path.parent, "other").path.replace(path),
}


def assert_set_aside(file, caplog):
    """The file is renamed, and a trainer that was to read it begins again."""
    trainer, untouched = Trainer(tiny_task()), Trainer(tiny_task())
    aside = file.path.with_name(f"{file.path.name}.damaged")
    assert file.read_into(trainer) == [] and trainer.epoch == 0
    assert weights_equal(trainer.setup.network, untouched.setup.network)
    assert os.path.lexists(aside) and not os.path.lexists(file.path)
    assert f"renamed to {aside}" in caplog.text
    assert file.read_into(trainer) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_set_aside_and_the_run_begins_again(tmp_path, damage, caplog):
    for name in ("id", "other"):
        ResumeFile(tmp_path, name).write(Trainer(tiny_task(seed=3)), [])
    file = ResumeFile(tmp_path, "id")
    DAMAGES[damage](file.path)
    assert_set_aside(file, caplog)


def rewritten(path, change):
    """What an author who can compute a digest may write as another machine's state: `change` edits its line and its tensors."""
    _, line, saved = path.read_bytes().split(b"\n", 2)
    head, tensors = json.loads(line), load(saved)
    change(head, tensors)
    body = json.dumps(head).encode() + b"\n" + save(tensors)
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


FORGED = {
    "no epoch": lambda head, tensors: head.pop("epoch"),
    "an epoch that is none": lambda head, tensors: head.update(epoch="2"),
    "rows of other epochs": lambda head, tensors: head.update(rows=[{"epoch": 5, "measurements": {}}]),
    "a row that is none": lambda head, tensors: head.update(rows=7),
    "a tensor less": lambda head, tensors: tensors.pop("network.embed.weight"),
    "a tensor more": lambda head, tensors: tensors.update({"network.extra": torch.zeros(1)}),
    "another shape": lambda head, tensors: tensors.update({"network.embed.weight": torch.zeros(3)}),
    "another type": lambda head, tensors: tensors.update({"generator.noise": torch.zeros(5056)}),
    "half the moments": lambda head, tensors: tensors.pop("optimizer.0.exp_avg"),
    "a moment's shape": lambda head, tensors: tensors.update({"optimizer.0.exp_avg": torch.zeros(3)}),
    "moments of no weight": lambda head, tensors: tensors.update({"optimizer.99.step": torch.zeros(())}),
    "no early state": lambda head, tensors: tensors.pop("early.network.embed.weight"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_state_that_was_made_up_is_set_aside(tmp_path, forgery, caplog):
    first, file = Trainer(tiny_task()), ResumeFile(tmp_path, "id")
    first.run_epoch()
    file.write(first, [])
    rewritten(file.path, FORGED[forgery])
    assert_set_aside(file, caplog)


def test_an_unchanged_state_survives_being_recorded_again(tmp_path):
    first, fresh, file = Trainer(tiny_task()), Trainer(tiny_task()), ResumeFile(tmp_path, "id")
    first.run_epoch()
    file.write(first, [])
    assert file.reached() == 1
    rewritten(file.path, lambda head, tensors: None)
    file.read_into(fresh)
    assert fresh.epoch == 1 and weights_equal(fresh.setup.network, first.setup.network)


def test_a_finished_run_removes_its_file(tmp_path):
    file = ResumeFile(tmp_path, "id")
    file.write(Trainer(tiny_task()), [])
    file.remove()
    file.remove()
    assert not file.path.exists()


def test_a_write_is_due_after_a_while_only(tmp_path, monkeypatch):
    file = ResumeFile(tmp_path, "id")
    assert not file.due()
    monkeypatch.setattr("fa_registry.training.resume.SECONDS_BETWEEN", -1.0)
    assert file.due()


def test_what_is_no_regular_file_is_not_opened_by_its_name(tmp_path):
    save_tensors(tmp_path / "real.safetensors", TENSORS)
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "real.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(IntegrityError, match=r"is a link|is no regular file"):
            load_tensors(tmp_path / f"{name}.safetensors")


def test_a_file_that_names_a_million_tensors_is_refused_before_they_are_made(tmp_path, monkeypatch):
    """58 MB of names took 1.3 GB; with a lower limit a smaller file shows the same."""
    assert checkpoint.MOST_HEADER == 2**24
    monkeypatch.setattr(checkpoint, "MOST_HEADER", 2**14)
    path = tmp_path / "many.safetensors"
    names = ",".join(f'"{place}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for place in range(300))
    path.write_bytes((len(names) + 2).to_bytes(8, "little") + f"{{{names}}}".encode())
    with pytest.raises(IntegrityError, match="expected a header of at most 16,384 bytes, found 1[67],"):
        load_tensors(path)
    monkeypatch.setattr(checkpoint, "MOST_HEADER", 2**25)
    assert len(load_tensors(path)) == 300
