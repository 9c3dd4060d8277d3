"""load_model: to the bit what was trained, and refused when a file or a digest is not what was recorded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import torch

import fa_registry
from fa_registry import jsonio
from fa_registry.errors import IntegrityError, StoreError, UsageError
from fa_registry.schema_number import SCHEMA
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import load_tensors, save_tensors
from tests.commands.promotion import Judged, judged_study
from tests.helpers.stores import copy_store, made_once
from tests.helpers.tiny_tasks import supported, trained, weights_equal

METHODS = ("bp", "dfa", "dni", "kolen_pollack", "weight_mirror")  # without, with fixed and with learned feedback
TENSORS = (schema.FINAL, schema.FEEDBACK)


def made(folder, without=(), **changes):
    """The files of a run trained here; returns the trained task. without: files that the run lacks."""
    trainer, _, _ = trained(epochs=1, **changes)
    task = trainer.setup
    states = {schema.FINAL: task.network, schema.FEEDBACK: task.feedback}
    for name, module in states.items():
        if name not in without:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            save_tensors(folder / name, module.state_dict())
    (folder / schema.SPEC).write_text(jsonio.pretty(task.spec), encoding="utf-8")
    names = [name for name in (*TENSORS, schema.SPEC) if name not in without]
    digests = {name: jsonio.file_digest(folder / name) for name in names}
    (folder / schema.PROVENANCE).write_text(jsonio.pretty({"schema": SCHEMA, "digests": digests}), encoding="utf-8")
    return task


@pytest.mark.parametrize("method", METHODS)
def test_network_and_feedback_are_the_trained_ones(tmp_path, method):
    task = made(tmp_path, **supported(method))
    loaded = fa_registry.load_model(tmp_path)
    images = task.splits.test_images
    with torch.no_grad():
        assert torch.equal(loaded.network(images), task.network.eval()(images))
    assert weights_equal(loaded.network, task.network) and weights_equal(loaded.feedback, task.feedback)
    assert not loaded.network.training and not loaded.feedback.training
    assert loaded.method is task.method and loaded.spec == task.spec


def test_batch_statistics_come_along(tmp_path):
    task = made(tmp_path, architecture="small_resnet", architecture_options={"width": 4, "num_blocks": 2})
    assert any("running_mean" in name for name in task.network.state_dict())
    images, before = task.splits.test_images[:32], torch.get_rng_state()
    assert torch.equal(fa_registry.load_model(tmp_path).network(images), task.network.eval()(images))
    assert torch.equal(torch.get_rng_state(), before)  # reading draws nothing from the global generator


@pytest.mark.parametrize("run", [{"method": "bp", "control": "shallow"}, {"without": (schema.FEEDBACK,)}])
def test_a_control_without_blocks_and_a_feedback_that_was_never_given(tmp_path, run):
    made(tmp_path, **run)
    loaded = fa_registry.load_model(tmp_path)
    assert len(loaded.network.blocks) == 0 if "control" in run else loaded.feedback is None  # and not another draw


def test_a_loaded_network_can_be_judged(tmp_path):
    task = made(tmp_path)
    network = fa_registry.load_model(tmp_path).network
    x, y = task.eval_batch
    again = fa_registry.FAProtocol(network, x, y).run(0.5, 0.9)
    assert again == fa_registry.FAProtocol(task.network.eval(), x, y).run(0.5, 0.9)
    report = fa_registry.diagnose(network, [(x[:64], y[:64]), (x[64:], y[64:])], 0.9, 0.5)
    assert len(report.residual_norms) == len(network.blocks) + 1


@pytest.mark.long
def test_a_folder_needs_no_mlflow(tmp_path):
    made(tmp_path)
    code = (
        "import sys\nfor name in ('mlflow', 'sqlalchemy', 'pandas'): sys.modules[name] = None\n"
        f"import fa_registry\nprint(fa_registry.load_model({str(tmp_path)!r}).spec.method)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "dfa\n"


def change(path):
    """Another tensor or another seed, in a file that can still be read."""
    if path.suffix == ".json":
        path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))
        return
    tensors = load_tensors(path)
    first = min(tensors)
    save_tensors(path, {**tensors, first: tensors[first] + 1e-6})


@pytest.mark.parametrize("name", [*TENSORS, schema.SPEC])
def test_a_file_that_was_changed_or_lost_is_refused(tmp_path, name):
    made(tmp_path)
    change(tmp_path / name)
    with pytest.raises(IntegrityError):
        fa_registry.load_model(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(IntegrityError):
        fa_registry.load_model(tmp_path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, IntegrityError) for text in ("{", "[]", None)),
        *(("{}", UsageError), ('{"schema": 2, "digests": {}}', UsageError)),
        *(
            (f'{{"schema": {SCHEMA}{digests}}}', IntegrityError)
            for digests in ("", ', "digests": 3', ', "digests": {}')
        ),
    ],
)
def test_a_folder_without_the_digests_of_a_run_is_refused(tmp_path, text, error):
    made(tmp_path)
    (tmp_path / schema.PROVENANCE).unlink()
    if text is not None:
        (tmp_path / schema.PROVENANCE).write_text(text)
    with pytest.raises(error):
        fa_registry.load_model(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "model:/dfa/1"])
def test_a_path_that_is_no_folder_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        fa_registry.load_model(name)


@pytest.fixture(scope="module")
def promoted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    copy_store(made_once(tmp_path_factory, "judged", judged_study), folder)
    judged = Judged(folder)
    judged.promoted(judged.run(), "--edition", "2026-12", "--name", "tiny")
    return judged


@pytest.fixture
def tag(promoted):
    """Sets a tag of the version tiny/1, which has its old value again afterwards; None deletes the tag."""
    client = promoted.registry.client
    before = dict(promoted.registry.find("models:/tiny/1").tags)

    def set_tag(name: str, value: str | None) -> None:
        if value is None:
            client.delete_model_version_tag("tiny", "1", name)
        else:
            client.set_model_version_tag("tiny", "1", name, value)

    yield set_tag
    for name, value in before.items():
        set_tag(name, value)


@pytest.mark.long
def test_a_registered_version_is_what_was_trained(promoted, monkeypatch):
    tensors = load_tensors(promoted.artifact(promoted.run(), schema.FINAL))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", promoted.store)
    for loaded in (
        fa_registry.load_model("models:/tiny/1"),
        fa_registry.load_model("models:/tiny@warn", promoted.store),
        fa_registry.load_model(promoted.artifact(promoted.run(), schema.SPEC).parent),
    ):
        assert all(torch.equal(value, tensors[name]) for name, value in loaded.network.state_dict().items())
    assert fa_registry.load_model("models:/tiny/1").tags[schema.TAG_RUN] == promoted.run().run_id


DIGESTS = (schema.TAG_WEIGHTS, schema.TAG_FEEDBACK)


@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, "0" * 64) for name in (schema.TAG_SPEC, *DIGESTS)), *((name, None) for name in DIGESTS)],
)
def test_a_version_whose_digests_the_run_did_not_record_or_that_lost_one_is_refused(promoted, tag, name, value):
    tag(name, value)
    with pytest.raises(IntegrityError):
        fa_registry.load_model("models:/tiny/1", promoted.store)


def test_a_version_that_promote_did_not_create_is_refused(promoted):
    promoted.registry.register("theirs", promoted.run().run_id, {})
    with pytest.raises(UsageError):
        fa_registry.load_model("models:/theirs/1", promoted.store)
    with pytest.raises(StoreError):
        fa_registry.load_model("models:/tinny/1", promoted.store)


@pytest.mark.parametrize("rewritten", [False, True])
def test_weights_that_were_changed_are_refused_even_if_the_run_records_them_anew(promoted, tmp_path, rewritten):
    """rewritten: the manifest and its digest in the run's tag are made for the changed weights; the tags of the version are not."""
    store = promoted.folder, tmp_path / "copy"
    shutil.copytree(*store, symlinks=True)
    copy = type(promoted)(store[1])
    run = copy.run()
    final, manifest = copy.artifact(run, schema.FINAL), copy.artifact(run, schema.PROVENANCE)
    change(final)
    if rewritten:
        content = json.loads(manifest.read_text())
        content["digests"][schema.FINAL] = jsonio.file_digest(final)
        manifest.write_text(json.dumps(content))
        digest = jsonio.digest_of({**content["digests"], schema.PROVENANCE: jsonio.file_digest(manifest)})
        copy.tracker.log(run.run_id, tags={schema.TAG_ARTIFACTS: digest})
    with pytest.raises(IntegrityError):
        fa_registry.load_model("models:/tiny/1", copy.store)
