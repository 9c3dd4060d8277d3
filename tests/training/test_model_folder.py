"""A promoted model's folder: read back to the bit, and refused when anything in it is not what was written."""

from __future__ import annotations

import json

import pytest
import torch

from fa_registry import jsonio
from fa_registry.errors import IntegrityError
from fa_registry.records import EditionReference, Integrity, Reading, Verdict
from fa_registry.training import model_folder
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.model_folder import ModelCard, Opinion, fill_folder, read_folder
from tests.helpers.tiny_tasks import supported, trained, weights_equal

METHODS = ("bp", "dfa", "dni", "kolen_pollack", "weight_mirror")  # without, with fixed and with learned feedback


def made(folder, without=(), **changes):
    """A folder of a run trained here; returns the trained task. without: files that the run lacks."""
    trainer, _, _ = trained(epochs=1, **changes)
    task = trainer.setup
    files = {
        name: folder / f"of the run {name}" for name in (model_folder.NETWORK, model_folder.FEEDBACK, model_folder.SPEC)
    }
    save_tensors(files[model_folder.NETWORK], task.network.state_dict())
    save_tensors(files[model_folder.FEEDBACK], task.feedback.state_dict())
    files[model_folder.SPEC].write_text(jsonio.pretty(task.spec), encoding="utf-8")
    kept = {name: path for name, path in files.items() if name not in without}
    digests = fill_folder(folder / "model", kept)
    opinion = Opinion(EditionReference("e", "E", "s", "d"), Verdict("pass", "PASS"), ())
    card = ModelCard(
        method=task.spec.method_label,
        setting="tiny",
        control=task.spec.control,
        run_id="r",
        run_name="run r",
        identity=task.spec.identity,
        accuracy=Reading(0.5),
        opinions=(opinion,),
        audit_run_id="a",
        integrity=Integrity("verified"),
        digests=digests,
    )
    (folder / "model" / model_folder.CARD).write_text(jsonio.pretty(card), encoding="utf-8")
    return task


@pytest.mark.parametrize("method", METHODS)
def test_network_and_feedback_are_the_trained_ones(tmp_path, method):
    task = made(tmp_path, **supported(method))
    loaded = read_folder(tmp_path / "model")
    images = task.splits.test_images
    with torch.no_grad():
        assert torch.equal(loaded.network(images), task.network.eval()(images))
    assert weights_equal(loaded.network, task.network) and weights_equal(loaded.feedback, task.feedback)
    assert not loaded.network.training and not loaded.feedback.training
    assert loaded.method is task.method and loaded.spec == task.spec


def test_batch_statistics_come_along(tmp_path):
    options = {"width": 4, "num_blocks": 2}
    task = made(tmp_path, architecture="small_resnet", architecture_options=options)
    assert any("running_mean" in name for name in task.network.state_dict())
    images = task.splits.test_images[:32]
    assert torch.equal(read_folder(tmp_path / "model").network(images), task.network.eval()(images))


def test_a_control_without_blocks_is_one_again(tmp_path):
    made(tmp_path, method="bp", control="shallow")
    assert len(read_folder(tmp_path / "model").network.blocks) == 0


def test_a_feedback_that_was_never_given_is_none_and_not_another_draw(tmp_path):
    made(tmp_path, without=(model_folder.FEEDBACK,))
    assert read_folder(tmp_path / "model").feedback is None


def test_reading_draws_nothing_from_the_global_generator(tmp_path):
    made(tmp_path)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    read_folder(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", [model_folder.NETWORK, model_folder.FEEDBACK])
def test_a_tensor_that_was_changed_is_refused(tmp_path, name):
    made(tmp_path)
    path = tmp_path / "model" / name
    tensors = load_tensors(path)
    first = min(tensors)
    save_tensors(path, {**tensors, first: tensors[first] + 1e-6})
    with pytest.raises(IntegrityError, match=rf"{name}: expected SHA-256 \w+, found \w+"):
        read_folder(tmp_path / "model")
    path.unlink()
    with pytest.raises(IntegrityError, match=f"{name} is missing"):
        read_folder(tmp_path / "model")


def test_a_specification_that_was_changed_is_refused(tmp_path):
    made(tmp_path)
    path = tmp_path / "model" / model_folder.SPEC
    path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))
    with pytest.raises(IntegrityError, match=r"spec.json: expected SHA-256 .* changed after the promotion"):
        read_folder(tmp_path / "model")


def test_a_card_must_be_the_registered_one_and_describe_this_specification(tmp_path):
    made(tmp_path)
    path = tmp_path / "model" / model_folder.CARD
    digest = jsonio.file_digest(path)
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, "identity": "0" * 64}))
    with pytest.raises(IntegrityError, match=r"card.json: expected SHA-256"):
        read_folder(tmp_path / "model", digest)
    with pytest.raises(
        IntegrityError, match=r"expected one identity, found \w{64} in spec.json and 0000\w* in card.json"
    ):
        read_folder(tmp_path / "model")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "record: expected a table, found"),
        ('{"schema": 9}', "schema: expected 1, found 9"),
        ('{"schema": 1}', "digests: missing"),
        (None, "card.json is missing"),
    ],
)
def test_what_is_no_card_is_reported(tmp_path, text, message):
    if text is not None:
        (tmp_path / model_folder.CARD).write_text(text)
    with pytest.raises(IntegrityError, match=message):
        read_folder(tmp_path)


def test_a_card_goes_to_json_and_back(tmp_path):
    made(tmp_path)
    card = read_folder(tmp_path / "model").card
    assert jsonio.decode(ModelCard, json.loads(jsonio.canonical(card))) == card
