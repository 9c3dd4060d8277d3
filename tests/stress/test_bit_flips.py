"""One flipped bit in a file of every kind; `make stress` flips a thousand."""

from __future__ import annotations

import pytest

from fa_registry.training.checkpoint import load_tensors, save_tensors
from tests.commands.promotion import Judged, judged_study
from tests.helpers.stores import copy_store, made_once
from tests.stress.bit_flips import flip, prepare

HANDED_OUT = {
    "audit's index.html",
    "audit's audit.json",
    "checkpoints/epoch_*.safetensors",
    "feedback/card.json",
    "promoted checkpoints/final.safetensors",
    "report/form.html",
    "resume file",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flips")
    copy_store(made_once(tmp_path_factory, "judged", judged_study), folder)
    return prepare(Judged(folder))


@pytest.mark.parametrize("chosen", ["handed out", pytest.param("every", marks=pytest.mark.long)])
def test_a_flipped_bit_is_found_in_every_kind_of_file(files, chosen):
    """All kinds are `long`: each takes a verification of its whole run. `make stress` flips a thousand bits."""
    assert set(files) >= HANDED_OUT
    tallies = flip({kind: files[kind] for kind in sorted(HANDED_OUT if chosen != "every" else files)}, 0, seed=1)
    assert {kind: tally for kind, tally in tallies.items() if tally.lost or tally.crashed} == {}


@pytest.mark.parametrize("kind", ["checkpoints/epoch_*.safetensors", "feedback/card.json", "audit's index.html"])
def test_a_missing_file_is_found(files, kind):
    path, find = files[kind][0]
    whole = path.read_bytes()
    path.unlink()
    try:
        assert find()
    finally:
        path.write_bytes(whole)


def test_the_first_weights_of_another_run_are_found(files):
    path, find = files["checkpoints/init.safetensors"][0]
    whole = path.read_bytes()
    save_tensors(path, {name: tensor + 1 for name, tensor in load_tensors(path).items()})
    try:
        assert find()
    finally:
        path.write_bytes(whole)
