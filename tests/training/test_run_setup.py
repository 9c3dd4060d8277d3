"""Tasks: the same spec gives the same task; shapes are read off, not trusted."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry import datasets
from fa_registry.architectures.base import part_of
from fa_registry.errors import InvalidFields
from fa_registry.methods.base import NetworkShape
from fa_registry.protocol.rules import load_edition
from fa_registry.seeding import generator
from fa_registry.training.measuring import measure
from fa_registry.training.run_setup import (
    EVAL_SAMPLES,
    build_network,
    build_setup,
    check_room,
    eval_digest,
    network_shape,
)
from fa_registry.training.trainer import Trainer
from tests.helpers.covering import every_method
from tests.helpers.nets import of
from tests.helpers.tiny_tasks import CPU, SEED, tiny_spec, tiny_task, trained, weights_equal


def test_the_same_spec_gives_the_same_weights_and_feedback():
    first = tiny_task()
    torch.manual_seed(5)
    second = tiny_task()
    assert weights_equal(first.network, second.network)
    assert weights_equal(first.feedback, second.feedback)
    assert first.feedback.state_dict()


def test_preparing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    tiny_task()
    assert torch.equal(before, torch.get_rng_state())


def test_weights_and_feedback_come_from_two_streams_of_the_seed():
    task = tiny_task()
    shape = network_shape(task.network, task.splits.test_images[:1], 10)
    again = task.method.feedback(shape, {}, generator(SEED, "feedback"))
    assert weights_equal(task.feedback, again)
    assert not weights_equal(task.network, tiny_task(seed=SEED + 1).network)
    assert not weights_equal(task.feedback, tiny_task(seed=SEED + 1).feedback)


LAYERS = {f"blocks.{block}.{name}": (16, 16) for block in (0, 1) for name in ("w1", "w2")}
SHAPE = NetworkShape((16, 16, 16), 10, (1, 12, 12), {**LAYERS, "out_head": (10, 16)})


def test_shape_is_read_off_the_network():
    task = tiny_task()
    assert network_shape(task.network, task.splits.test_images[:1], 10) == SHAPE


@pytest.mark.parametrize(
    ("architecture", "sites", "weights"),
    [
        (
            "vit_mini",
            (8, 8, 8),
            {
                "blocks.0.attn": (24, 8),
                "blocks.0.attn.out_proj": (8, 8),
                "blocks.1.mlp.3": (8, 32),
                "out_head": (10, 8),
            },
        ),
        ("small_resnet", (4, 4, 4), {"blocks.0.conv1": (4, 4, 3, 3), "out_head": (10, 4)}),
        ("small_cnn", (2, 4, 8, 16), {"blocks.1.0": (8, 4, 3, 3), "blocks.2.0": (16, 72), "out_head": (10, 16)}),
    ],
)
def test_tokens_and_maps_have_features_too_and_kernels_are_replaceable(architecture, sites, weights):
    task = tiny_task(**of(architecture))
    task.network.train()
    before = {name: buffer.clone() for name, buffer in task.network.named_buffers()}
    shape = network_shape(task.network, task.splits.test_images[:1], 10)
    assert shape.sites == sites
    assert weights.items() <= shape.weights.items() and not any(part_of(name) == "embed" for name in shape.weights)
    assert all(torch.equal(buffer, before[name]) for name, buffer in task.network.named_buffers())


def test_controls_share_the_initial_weights():
    full = tiny_task().network.state_dict()
    assert weights_equal(tiny_task(method="bp", control="frozen").network, tiny_task().network)
    shallow = build_network(tiny_spec(method="bp", control="shallow"), tiny_task().card).state_dict()
    assert torch.equal(shallow["embed.weight"], full["embed.weight"])
    assert not any(name.startswith("blocks") for name in shallow)


def test_the_eval_batch_is_the_first_128_test_samples():
    task = tiny_task()
    images, labels = task.eval_batch
    assert len(labels) == 128
    assert torch.equal(images, task.splits.test_images[:128])
    changed = dataclasses.replace(task.splits, test_images=task.splits.test_images + 1e-6)
    assert eval_digest(task) == eval_digest(tiny_task(method="bp"))
    assert eval_digest(task) != eval_digest(dataclasses.replace(task, splits=changed))


def test_exact_sites_follow_the_card():
    assert tiny_task(method="bp").exact_sites == (True, True, True)
    assert tiny_task(method="fa").exact_sites == (False, False, True)
    assert tiny_task(method="dfa").exact_sites == (False, False, False)


class Relabelled:
    """The digits with other labels."""

    same_for_every_seed = False

    def __init__(self, change):
        self.digits = datasets.CATALOG.get("digits")
        self.card, self.change = self.digits.card, change

    def load(self, device, root=None, seed=0):
        return self.change(self.digits.load(device, root))


def test_the_data_set_receives_device_root_and_the_seed_of_the_run(monkeypatch, tmp_path):
    received = []
    loader = Relabelled(lambda splits: splits)
    monkeypatch.setattr(loader, "load", lambda *given: received.append(given) or loader.digits.load(given[0]))
    spec = tiny_spec(seed=SEED)
    monkeypatch.setattr(datasets.CATALOG, "get", lambda name: loader)
    build_setup(dataclasses.replace(spec), torch.device("cpu"), tmp_path)  # a copy looks its plug-ins up again
    assert received == [(torch.device("cpu"), tmp_path, SEED)]


def test_runs_share_what_is_the_same_for_every_seed_and_the_same_root(tmp_path, monkeypatch):
    first, again = (build_setup(tiny_spec(seed=seed), CPU).splits for seed in (SEED, SEED + 1))
    assert again is first
    assert build_setup(tiny_spec(), CPU, tmp_path).splits is not first
    here = build_setup(tiny_spec(), CPU).splits
    monkeypatch.setenv("FA_REGISTRY_DATA", str(tmp_path))
    assert build_setup(tiny_spec(), CPU).splits is not here


def test_a_set_that_belongs_to_a_run_is_its_own():
    spec = dataclasses.replace(tiny_spec(), dataset="random_targets:digits")
    first, other = (build_setup(dataclasses.replace(spec, seed=seed), CPU).splits for seed in (SEED, SEED + 1))
    assert not torch.equal(first.train_labels, other.train_labels)


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (
            lambda splits: dataclasses.replace(
                splits, train_labels=splits.train_labels + 5, test_labels=splits.test_labels - 1
            ),
            ["train_labels:", "test_labels:"],
        ),
        (
            lambda splits: dataclasses.replace(splits, test_labels=torch.zeros_like(splits.test_labels)),
            ["test_labels:"],
        ),
    ],
)
def test_labels_that_cannot_be_measured_on_are_refused_before_training(monkeypatch, change, messages):
    spec = tiny_spec()
    relabelled = Relabelled(change)
    monkeypatch.setattr(datasets.CATALOG, "get", lambda name: relabelled)
    with pytest.raises(InvalidFields) as refused:
        build_setup(dataclasses.replace(spec), torch.device("cpu"))
    assert [problem.partition(" ")[0] for problem in refused.value.problems] == messages


def test_a_feedback_that_no_memory_holds_is_refused_before_it_is_drawn(monkeypatch):
    wide = {"method": "dtp", "method_options": {"hidden": 1001}}
    feedback = tiny_task(**wide).feedback
    drawn = sum(parameter.numel() for parameter in feedback.parameters()) * 16
    drawn += sum(buffer.numel() for buffer in feedback.buffers()) * 4
    monkeypatch.setattr("fa_registry.training.run_setup.memory", lambda device: drawn)
    tiny_task(**wide)
    monkeypatch.setattr("fa_registry.training.run_setup.memory", lambda device: drawn - 1)
    with pytest.raises(
        InvalidFields, match=r"method_options: the feedback needs 0.0 GiB of memory; this machine has 0.0 GiB"
    ):
        tiny_task(**wide)


def test_a_batch_whose_states_no_memory_holds_is_refused_before_a_step(monkeypatch):
    """Three states of 16 numbers of 4 bytes."""
    task = tiny_task()
    count = min(task.spec.recipe.batch_size, len(task.splits.train_labels))
    monkeypatch.setattr("fa_registry.training.run_setup.memory", lambda device: count * 3 * 16 * 4)
    check_room(task)
    monkeypatch.setattr("fa_registry.training.run_setup.memory", lambda device: count * 3 * 16 * 4 - 1)
    with pytest.raises(InvalidFields, match=f"batch_size: the states of {count:,} samples need 0.0 GiB"):
        check_room(task)


@pytest.mark.parametrize("method", every_method())
def test_nothing_writes_into_splits_which_runs_share(method):
    task = tiny_task(method=method)
    shared = [task.splits.train_images, task.splits.train_labels, task.splits.test_images, task.splits.test_labels]
    before = [(tensor._version, tensor.requires_grad) for tensor in shared]
    Trainer(task).run_epoch()
    measure(task)
    assert [(tensor._version, tensor.requires_grad) for tensor in shared] == before


RULES = {rule.code: rule for rule in load_edition("2026-05").rules}
EPOCHS = 40


def extremes(**changes) -> tuple[float, float]:
    """Largest growth and smallest reference gradient (mean cross entropy, site L) over all epochs."""
    _, recorder, _ = trained(**{"epochs": EPOCHS, **changes})
    rows = [row.measurements.sites for row in recorder.rows]
    growth = max(reading.value for row in rows for reading in row["growth"] if reading.value is not None)
    return growth, min(row["g_norm"][-1].value for row in rows) / EVAL_SAMPLES


@pytest.mark.long
@pytest.mark.parametrize("terminal_ln", [True, False])
def test_bp_never_fires(terminal_ln):
    growth, reference = extremes(method="bp", architecture_options={"d_hidden": 64, "terminal_ln": terminal_ln})
    assert growth < RULES["D1"].threshold / 10
    assert reference > RULES["D2"].threshold * 10


@pytest.mark.long
def test_without_a_terminal_layer_norm_dfas_stream_grows_but_its_reference_stays():
    """z = W h_L: the gradient at h_L is e W, regardless of the size of h_L; the LayerNorm is what divides it by that size."""
    growth, reference = extremes(method="dfa", architecture_options={"d_hidden": 64, "terminal_ln": False})
    with_growth, with_reference = extremes(method="dfa", architecture_options={"d_hidden": 64})
    assert growth > 5 and with_growth > 5  # of one block; at full width and length D1 fires (projects/architectures)
    assert reference > 20 * with_reference
    assert reference > RULES["D2"].threshold * 1000
