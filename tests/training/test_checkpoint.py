"""Tensor files: atomic, digested, readable or refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fa_registry.errors import IntegrityError
from fa_registry.jsonio import file_digest
from fa_registry.methods.base import FixedMatrices, NoFeedback
from fa_registry.training import checkpoint
from fa_registry.training.checkpoint import content_digest, load_into, load_tensors, save_tensors
from tests.helpers.small import weights_equal

TENSORS = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor([1, 2])}


def test_what_is_saved_is_read_back_bit_by_bit(tmp_path):
    path = tmp_path / "deep" / "t.safetensors"
    digest = save_tensors(path, TENSORS, {"epoch": "3"})
    assert digest == file_digest(path)
    found = load_tensors(path, digest)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], value) and found[name].dtype == value.dtype for name, value in TENSORS.items())


def test_equal_tensors_give_equal_files(tmp_path):
    digests = {save_tensors(tmp_path / name, TENSORS) for name in ("one", "two")}
    assert len(digests) == 1


@pytest.mark.parametrize("metadata", [None, {}, {"epoch": "1"}])
def test_a_state_without_tensors_can_be_saved_and_read(tmp_path, metadata):
    path = tmp_path / "none.safetensors"
    load_into(NoFeedback(), path, save_tensors(path, NoFeedback().state_dict(), metadata))
    assert load_tensors(path) == {}


def test_views_and_tensors_that_need_gradients_are_saved_as_values(tmp_path):
    matrix = torch.arange(6.0).reshape(2, 3).requires_grad_()
    save_tensors(tmp_path / "t", {"t": matrix.T})
    assert torch.equal(load_tensors(tmp_path / "t")["t"], matrix.detach().T)


def test_one_flipped_bit_is_refused_with_both_digests(tmp_path):
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
    with pytest.raises(IntegrityError, match=r"(?s)does not fit: .*B_01"):
        load_into(FixedMatrices([torch.zeros(2, 2)]), path, digest)
    with pytest.raises(IntegrityError, match="(?s)does not fit: .*size mismatch"):
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


def test_weights_equal_sees_a_difference():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    assert not weights_equal(first, second)
    second.load_state_dict(first.state_dict())
    assert weights_equal(first, second)


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
