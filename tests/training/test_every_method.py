"""What the loop owes every method of the catalog: penalty, ladder, resuming, and the same figures again from its files."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from fa_registry import architectures, methods, tasks
from fa_registry.errors import InvalidFields
from fa_registry.training.checkpoint import save_tensors
from fa_registry.training.loop import train
from fa_registry.training.measuring import remeasure
from fa_registry.training.resume import ResumeFile
from fa_registry.training.run_setup import build_setup
from fa_registry.training.trainer import Trainer
from tests.helpers.covering import every_method, rest_long
from tests.helpers.nets import TINY, of, short_task
from tests.helpers.tiny_tasks import CPU, Recorder, supported, tiny_spec, tiny_task, trained, weights_equal

pytestmark = pytest.mark.long

METHODS = every_method()
OF_TRAINING = ("loss_train", "accuracy_train", "penalty")


@pytest.mark.parametrize("method", rest_long(methods.CATALOG.names(), {"dfa", "credit_bridge"}))
def test_the_lowest_control_of_a_penalised_ladder_trains_the_last_block_alone(method):
    trainer, recorder, outcome = trained(**supported(method), epochs=1, penalty=0.01, control="ladder_1")
    assert outcome.status == "complete"
    assert outcome.final.scalars["blocks_trained"].value == 1
    assert recorder.rows[-1].measurements.scalars["penalty"].value > 0
    untouched = tiny_task(**supported(method)).network.blocks[0]
    assert weights_equal(trainer.setup.network.blocks[0], untouched)
    assert not weights_equal(trainer.setup.network.out_head, tiny_task(**supported(method)).network.out_head)


@cache
def run_of(method):
    """A run of two epochs, which tests only read."""
    return trained(**supported(method), epochs=2)


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_goes_on_bit_equal(method, tmp_path):
    undisturbed, recorder, whole = run_of(method)
    first = Trainer(tiny_task(**supported(method), epochs=2))
    first.run_epoch()
    file = ResumeFile(tmp_path, "id")
    file.write(first, recorder.rows[:2])
    fresh = Trainer(tiny_task(**supported(method), epochs=2))
    rows = file.read_into(fresh)
    assert train(fresh, Recorder(), rows=rows) == whole
    assert weights_equal(fresh.setup.network, undisturbed.setup.network)
    assert weights_equal(fresh.setup.feedback, undisturbed.setup.feedback)


@pytest.mark.parametrize("method", METHODS)
def test_its_files_give_the_same_figures_again(method, tmp_path):
    trainer, _, outcome = run_of(method)
    start = tiny_task(**supported(method)).network
    digests = {
        "checkpoint": save_tensors(tmp_path / "final.safetensors", trainer.setup.network.state_dict()),
        "feedback": save_tensors(tmp_path / "state.safetensors", trainer.setup.feedback.state_dict()),
    }
    paths = [tmp_path / name for name in ("final.safetensors", "state.safetensors")]
    again = remeasure(build_setup(trainer.setup.spec, CPU), *paths, digests, initial=start.state_dict())
    assert again.sites == outcome.final.sites and again.conventions == outcome.final.conventions
    assert {"rho", "nudge", "stability", "gamma_null_p"} <= again.sites.keys()
    assert again.scalars["feature_drift_blocks"].value > 0 and again.scalars["blocks_trained"].value == 2
    kept = {name: reading for name, reading in outcome.final.scalars.items() if name not in OF_TRAINING}
    assert again.scalars == kept and not again.failures
    if trainer.setup.feedback.state_dict():
        lost = remeasure(build_setup(trainer.setup.spec, CPU), paths[0], None, digests)
        assert all(reading.value is None and reading.reason for reading in lost.sites["gamma"])


@pytest.mark.parametrize("method", METHODS)
def test_training_leaves_the_global_generator_alone(method):
    before = torch.get_rng_state()
    trainer = Trainer(tiny_task(**supported(method)))
    images, labels = trainer.setup.splits.test_images[:8], trainer.setup.splits.test_labels[:8]
    trainer.step(images, labels)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.long
@pytest.mark.parametrize("architecture", architectures.CATALOG.names())
@pytest.mark.parametrize("method", METHODS)
def test_every_pair_trains_or_is_refused_by_the_methods_card(method, architecture):
    card = methods.CATALOG.get(method).card
    task = "token_prediction" if architecture == "causal_transformer" else "classification"
    expected = []
    if not card.trains(tasks.CATALOG.get(task)):
        expected.append(f"method: according to its card, {method} trains the tasks {', '.join(card.tasks)}, not {task}")
    if not card.supports(architecture):
        supported_names = ", ".join(card.architectures)
        expected.append(f"architecture: {method} supports {supported_names}, not {architecture}: {card.unsupported}")
    if expected:
        with pytest.raises(InvalidFields) as refused:
            tiny_spec(**of(architecture, method=method))
        assert sorted(refused.value.problems) == sorted(expected)
        return
    trainer, recorder = Trainer(short_task(architecture, method=method, epochs=1, batch_size=64)), Recorder()
    outcome = train(trainer, recorder)
    assert outcome.status == "complete" and not outcome.final.failures
    assert recorder.rows[-1].measurements.scalars["loss_train"].value > 0
    assert not weights_equal(trainer.setup.network, tiny_task(**of(architecture, method=method)).network)
    assert len(outcome.final.sites["gamma"]) == TINY[architecture]["num_blocks"] + 1
