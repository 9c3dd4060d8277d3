"""The setup of a run: data, network, method, feedback state and eval batch, on one device."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry import methods, tasks
from fa_registry.architectures.base import TOKENS, Network, part_of, recorded_streams
from fa_registry.datasets._files import data_root
from fa_registry.datasets.base import Dataset, DatasetCard, Splits, plain_splits
from fa_registry.diagnostics.h_norm import state_norms
from fa_registry.errors import InvalidFields, PluginError
from fa_registry.methods._local_heads import DeepSupervision
from fa_registry.methods.base import HasAnchorSteps, HasOwnPrediction, Method, NetworkShape
from fa_registry.network_mode import eval_mode
from fa_registry.records import RunSpec
from fa_registry.records.runs import validation_count
from fa_registry.seeding import generator
from fa_registry.tasks import Task, reported_metrics, task_of
from fa_registry.token_axes import features
from fa_registry.training.code_fingerprint import fingerprint
from fa_registry.training.devices import products
from fa_registry.training.prediction import OwnPrediction
from fa_registry.training.spec_plugins import find_plugins, task_problems

LEAST_STEPS = 10  # from one anchor step to the next
MOST_BLOCKS = 10_000  # each block is a module, which takes memory and time at any width
BYTES, BYTES_A_WEIGHT = 4, 16  # of a float32; of a trained weight with its gradient and the optimiser's two moments
WIDE = 1_000  # if a method has a larger option, the feedback's size is checked before the draw; the check takes about a second
CHECKED_SAMPLES = 8  # samples for which the output error of a third-party task is compared with a gradient
EVAL_SAMPLES = 128  # protocol.md §1: the first 128 test samples, unshuffled


@dataclass(frozen=True)
class RunSetup:
    """The data, network, method and feedback state of a run on one device, created by `build_setup`.

    Attributes:
        network: the network, which training changes.
        initial_norms: the metric h_norm (norm of the states) at initialisation, one value per site 0..L, or None if it was not
            measured.
    """

    spec: RunSpec
    device: torch.device
    card: DatasetCard
    splits: Splits
    network: Network
    method: Method
    feedback: nn.Module
    initial_norms: tuple[float, ...] | None = None

    @property
    def eval_batch(self) -> tuple[Tensor, Tensor]:
        """The images and labels that every measurement uses."""
        return self.splits.test_images[:EVAL_SAMPLES], self.splits.test_labels[:EVAL_SAMPLES]

    @cached_property  # every training step needs the task
    def task(self) -> Task:
        """The task that the data set's card names, or else the built-in task for the type of the labels."""
        return task_of(self.splits.train_labels, self.card.task)

    @property
    def predictor(self) -> nn.Module:
        """The module whose outputs are evaluated: the network, or OwnPrediction of its method."""
        if not isinstance(self.method, HasOwnPrediction):
            return self.network
        return OwnPrediction(self.method, self.feedback, self.network, self.card.classes, self.task.by_position)

    @property
    def blocks(self) -> int:
        """L, the number of blocks."""
        return len(self.network.blocks)

    @property
    def has_feedback(self) -> bool:
        """Whether the method may have a feedback state."""
        return not self.method.end_to_end or isinstance(self.method, DeepSupervision)

    @property
    def evaluation(self) -> Mapping[str, Tensor]:
        """The evaluation batch, if it cannot be built from the specification; always empty in this class."""
        return {}

    @property
    def drawn(self) -> Mapping[str, Any]:
        """Origin of the feedback state: distribution, seed and random stream."""
        return {"distribution": self.method.card.feedback, "seed": self.spec.seed, "stream": "feedback"}

    @property
    def recorded_fields(self) -> dict[str, Any]:
        """The code fingerprint that is recorded with the run."""
        return {"code": fingerprint(self.spec)}

    @property
    def exact_sites(self) -> tuple[bool, ...]:
        """Whether the credit is exact by construction, for each of the sites 0..L."""
        return tuple(self.method.card.is_exact(site, self.blocks) for site in range(self.blocks + 1))


def build_setup(spec: RunSpec, device: torch.device, root: Path | None = None) -> RunSetup:
    """Load the data, and initialise network and feedback from the specification's seed.

    Equal specifications give equal setups. If `root` is None, the data are in the default folder.

    Raises:
        InvalidFields: if the labels do not fit the data set's card, if an option of the architecture is invalid, or if network or
            feedback exceed the memory.
    """
    dataset = find_plugins(spec).dataset
    if dataset.same_for_every_seed:
        splits = with_validation(_shared(dataset, device, data_root(root)), spec)
    else:
        splits = load_splits(spec, device, root)
    card, task = dataset.card, task_of(splits.train_labels, dataset.card.task)
    if problems := task.problems(splits.train_labels, splits.test_labels, card.classes, EVAL_SAMPLES):
        raise InvalidFields(f"data set {card.name}", problems)
    return build_setup_from_splits(spec, device, card, splits)


# Splits are never modified, and a study or an audit seldom changes its data set. So the process keeps the last splits.
@lru_cache(maxsize=1)
def _shared(dataset: Dataset, device: torch.device, root: Path) -> Splits:
    return plain_splits(dataset.load(device, root, 0))


def load_splits(spec: RunSpec, device: torch.device, root: Path | None = None) -> Splits:
    """Load the data of a specification without the samples that the process keeps."""
    dataset = find_plugins(spec).dataset
    shared = dataset.same_for_every_seed
    splits = plain_splits(dataset.load(device, data_root(root) if shared else root, 0 if shared else spec.seed))
    return with_validation(splits, spec)


def with_validation(splits: Splits, spec: RunSpec) -> Splits:
    """Move the recipe's share of the training samples to the validation samples.

    Without a share, the splits are unchanged. The seed of the run decides which samples, so a method and its controls have the
    same. Each validation input is augmented once, because only the augmentation gives the input of the network.
    """
    samples = len(splits.train_labels)
    count = validation_count(samples, spec.recipe.validation)
    if not count:
        return splits
    order = torch.randperm(samples, generator=generator(spec.seed, "validation"))
    device = splits.train_labels.device
    held_out, kept = (part.sort().values.to(device) for part in (order[:count], order[count:]))
    draws = generator(spec.seed, "validation", splits.train_images.device)
    return dataclasses.replace(
        splits,
        train_images=splits.train_images[kept],
        train_labels=splits.train_labels[kept],
        validation_images=splits.augment(splits.train_images[held_out], draws),
        validation_labels=splits.train_labels[held_out],
    )


def build_setup_from_splits(spec: RunSpec, device: torch.device, card: DatasetCard, splits: Splits) -> RunSetup:
    """Build a setup on data that are already loaded.

    Raises:
        InvalidFields: if method or architecture do not support the task, if network or feedback exceed the memory, if an option
            of the architecture is invalid, or if an embedding without weights has a penalty.
        PluginError: if a third-party task breaks its contract.
    """
    plugins, task = find_plugins(spec), task_of(splits.train_labels, card.task)
    method = plugins.method
    if problems := task_problems(method.card, plugins.architecture.card, task.card):
        raise InvalidFields("run specification", problems)
    network = build_network(spec, card)
    if spec.penalty_embedding and network.first_credited:
        problem = (
            f"penalty_embedding: expected 0, because the embedding has no weights, found {spec.penalty_embedding:g}"
        )
        raise InvalidFields("run specification", [problem])
    if network.first_credited and spec.recipe.rate_embedding != 1.0:
        problem = f"rate_embedding: expected 1 for {spec.architecture}, whose embedding has no weights, found "
        raise InvalidFields("run specification", [f"{problem}{spec.recipe.rate_embedding:g}"])
    if problems := _anchor_problems(spec, method, len(splits.train_labels)):
        raise InvalidFields(f"method {spec.method}", problems)
    shape = network_shape(network, splits.test_images[:1].cpu(), card.classes)
    if problems := _feedback_too_large(spec, method, shape):
        raise InvalidFields(f"method {spec.method}", problems)
    feedback = method.feedback(shape, spec.method_options, generator(spec.seed, "feedback"))
    setup = RunSetup(spec, device, card, splits, to_device(network, device), method, feedback.to(device))
    if not tasks.CATALOG.location(task.card.name).is_builtin:
        check_output_error(task, shape.classes, splits.test_labels[:CHECKED_SAMPLES])
        reported_metrics(
            task, "evaluate", setup.predictor, *setup.eval_batch
        )  # finds a wrong result before the training
    return dataclasses.replace(setup, initial_norms=_state_norms(setup))


@products("fp32")
def _state_norms(setup: RunSetup) -> tuple[float, ...]:
    """Compute the metric h_norm (norm of the stream), one value per site 0..L."""
    images, labels = setup.eval_batch
    with eval_mode(setup.network), recorded_streams(setup.network) as streams:
        _, hidden, *_ = setup.network(images, return_hidden=True)
    states = (streams.get(site, state) for site, state in enumerate(hidden))
    return state_norms([setup.task.state_rows(state.detach(), labels) for state in states])


def to_device(network: Network, device: torch.device) -> Network:
    """Move the network to a device. On a GPU, weights of convolutions get the format channels_last."""
    return network.to(device, memory_format=torch.channels_last) if device.type == "cuda" else network.to(device)


def build_network(spec: RunSpec, card: DatasetCard) -> Network:
    """Return the specification's network with its initial weights, on the CPU.

    The network of the shallow control has no blocks.

    Raises:
        InvalidFields: if an option of the architecture is invalid or if the network exceeds the memory.
    """
    architecture = find_plugins(spec).architecture
    options = architecture.resolve(spec.architecture_options)
    if spec.control == "shallow":
        options = {**options, "num_blocks": 0}
    if problems := [*architecture.check(options, card.image_shape), *too_large(spec, card)]:
        raise InvalidFields(f"architecture {spec.architecture}", problems)
    return architecture.build(options, card.image_shape, card.classes, generator(spec.seed, "init"))


def too_large(spec: RunSpec, card: DatasetCard) -> list[str]:
    """Return a problem if training needs too much memory or there are more than MOST_BLOCKS blocks."""
    blocks = int(find_plugins(spec).resolve(spec.architecture_options).get("num_blocks", 0))
    if blocks > MOST_BLOCKS:
        return [f"architecture_options: num_blocks: expected at most {MOST_BLOCKS:,}, found {blocks:,}"]
    count = weight_count(spec, card)
    subject = f"architecture_options: the training of {spec.architecture} with {count:,} weights needs"
    return _beyond(torch.device("cpu"), count * BYTES_A_WEIGHT, subject)


def unusable(spec: RunSpec) -> list[str]:
    """Return the problems that are known before loading: absent data, or a network that is too large."""
    plugins = find_plugins(spec)
    return [*filter(None, [plugins.dataset.absent()]), *too_large(spec, plugins.card)]


def weight_count(spec: RunSpec, card: DatasetCard) -> int:
    """Return the number of weights of the network, without building the network."""
    plugins = find_plugins(spec)
    return plugins.architecture.parameters(plugins.resolve(spec.architecture_options), card.image_shape, card.classes)


def _anchor_problems(spec: RunSpec, method: Method, samples: int) -> list[str]:
    """Return the problems of a method's anchor steps, which train with the exact gradient.

    Otherwise a third-party method could train by backpropagation under its own name: its card must describe the anchor steps,
    because forms show this text, and at most one step of LEAST_STEPS may be one.
    """
    if not isinstance(method, HasAnchorSteps):
        return []
    problems = [] if method.card.anchor_steps else ["anchor_steps: expected a description on the card, found none"]
    every = method.anchor_every(spec.method_options)
    steps = every * -(-samples // spec.recipe.batch_size)
    if every and steps < LEAST_STEPS:
        problems.append(
            f"anchor steps: expected at least {LEAST_STEPS} steps from one to the next, found {steps}; use smaller batches or more "
            "epochs between them"
        )
    return problems


def _feedback_too_large(spec: RunSpec, method: Method, shape: NetworkShape) -> list[str]:
    """Return a text if a built-in method's feedback exceeds this machine's memory."""
    sizes = [value for value in spec.method_options.values() if isinstance(value, int) and value > WIDE]
    if not sizes or not methods.CATALOG.location(spec.method).is_builtin:
        return []
    with torch.device("meta"):
        state = method.feedback(shape, spec.method_options, torch.Generator())
    trained_count = sum(parameter.numel() for parameter in state.parameters())
    required_bytes = trained_count * BYTES_A_WEIGHT + sum(buffer.numel() for buffer in state.buffers()) * BYTES
    return _beyond(torch.device("cpu"), required_bytes, "method_options: the feedback needs")


def check_room(setup: RunSetup) -> None:
    """Raise InvalidFields if one training step does not fit in memory.

    Only the states h_0..h_L of one batch are counted. A step needs several times as much memory, so a run that fits is never
    refused.
    """
    batch = min(setup.spec.recipe.batch_size, len(setup.splits.train_labels))
    with torch.no_grad(), eval_mode(setup.network):
        number_count = sum(state.numel() for state in setup.network.hidden(setup.splits.test_images[:1]))
    subject = f"batch_size: the states of {batch:,} samples need"
    if problems := _beyond(setup.device, batch * number_count * BYTES, subject):
        raise InvalidFields("run specification", problems)


def memory(device: torch.device) -> int:
    """Return the memory of the device in bytes. For a CPU, it is the memory of the machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _beyond(device: torch.device, required_bytes: int, subject: str) -> list[str]:
    available_bytes, device_label = memory(device), "GPU" if device.type == "cuda" else "machine"
    return (
        [
            f"{subject} {required_bytes / 2**30:,.1f} GiB of memory; this {device_label} has {available_bytes / 2**30:,.1f} GiB"
        ]
        if required_bytes > available_bytes
        else []
    )


def blank_input(spec: RunSpec, card: DatasetCard) -> Tensor:
    """Return an input (1, …) of zeros, as token ids if the architecture takes token ids."""
    takes_tokens = find_plugins(spec).architecture.card.inputs == TOKENS
    return torch.zeros(1, *card.image_shape, dtype=torch.int64 if takes_tokens else torch.float32)


def check_output_error(task: Task, outputs: int, targets: Tensor) -> None:
    """Compare a task's output error with the gradient of its losses, at random outputs.

    Args:
        outputs: C, the number of outputs of the network.
        targets: targets of some samples.

    Raises:
        PluginError: if the error differs from the gradient, or if the losses are not differentiable.
    """
    shape = (*targets.shape[:2], outputs) if task.by_position else (len(targets), outputs)
    random = torch.Generator().manual_seed(0)
    leaf = torch.randn(shape, generator=random, dtype=torch.float64).to(targets.device).requires_grad_()
    rows = targets.double() if targets.is_floating_point() else targets
    try:
        (gradient,) = torch.autograd.grad(task.sample_losses(leaf, rows).sum(), leaf)
    except RuntimeError as error:
        raise PluginError(f"task {task.card.name!r}: its losses cannot be differentiated: {error}") from error
    error = task.output_error(leaf.detach(), rows)
    if error.shape != gradient.shape or not torch.allclose(
        error.double(), gradient, rtol=1e-4, atol=1e-6, equal_nan=True
    ):
        deviation = (
            (error - gradient).abs().max().item() if error.shape == gradient.shape else f"shape {tuple(error.shape)}"
        )
        raise PluginError(
            f"task {task.card.name!r}: output_error must be the gradient of sample_losses at the outputs; found a largest "
            f"deviation of {deviation}"
        )


def network_shape(network: Network, sample: Tensor, classes: int) -> NetworkShape:
    """Return the shapes of sites and weights on which the shapes of a feedback state depend.

    The result contains the number of features per site, and the shape of every weight that a method may replace in the backward
    pass. The features are measured in a forward pass of one sample, (1, …).
    """
    with torch.no_grad(), eval_mode(network):  # a BatchNorm cannot compute batch statistics of one sample
        sites = tuple(features(state) for state in network.hidden(sample))
    weights = {
        name: tuple(layer.weight.shape)
        for name, layer in network.named_modules()
        if hasattr(layer, "backward_weight") and part_of(name) != "embed"  # no parameter is below the embedding
    }
    return NetworkShape(sites, classes, tuple(sample.shape[1:]), weights)


def eval_digest(setup: RunSetup) -> str:
    """Return the SHA-256 of the eval batch's indices and bytes, in hexadecimal."""
    images, labels = setup.eval_batch
    digest = hashlib.sha256(str(list(range(len(labels)))).encode())
    digest.update(images.cpu().contiguous().numpy().tobytes())
    digest.update(labels.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
