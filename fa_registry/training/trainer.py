"""The Trainer: weights, optimiser, generators and epoch of a training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fa_registry.architectures.base import noisy
from fa_registry.methods._local_heads import DeepSupervision
from fa_registry.methods.base import HasAnchorSteps
from fa_registry.records import FROZEN_LONG, LONGER, Reading, RunSpec
from fa_registry.records.runs import BEST_VALIDATION
from fa_registry.seeding import generator
from fa_registry.tasks import reported_metrics
from fa_registry.training.controls import train_mode, trainable_parameters
from fa_registry.training.cuda_graph import PLAIN, Capture, CapturedStep, cuda_capture
from fa_registry.training.devices import products, runner
from fa_registry.training.epoch_chain import EpochChain
from fa_registry.training.method_calls import update_feedback
from fa_registry.training.optimizers import PartOptimizer
from fa_registry.training.prediction import validation_metric
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.step import StepSums, backprop_step, clip_gradient, local_credit_step

FIRST_STEPS = 8  # the state after these steps is recorded, because an audit replays them


@dataclass(frozen=True)
class SelectedState:
    """The state after the epoch with the best main metric on the validation samples so far.

    Attributes:
        epoch: number of the epoch, from 1.
        score: the metric, with the sign that makes larger values better.
        tensors: network and feedback, as Trainer.state returns them.
    """

    epoch: int
    score: float
    tensors: dict[str, Tensor]


Through = Callable[[Sequence[Tensor]], Iterable[Tensor]]  # yields the batches of an epoch that are trained on


@dataclass(frozen=True)
class EarlyCheckpoint:
    """A copy of the state after a run's first steps, and the number of these steps."""

    step: int
    tensors: dict[str, Tensor]


class Trainer:
    """A training with all of its changing state: weights, optimiser, generators and epoch.

    The module training.resume writes this state to a file and reads it, so a killed run can be resumed. None for `capture` means
    a CUDA graph on a GPU and no capture on a CPU, see CapturedStep.
    """

    def __init__(self, setup: RunSetup, capture: Capture | None = None):
        self.setup = setup
        on_gpu = setup.device.type == "cuda"
        learned = [parameter for parameter in setup.feedback.parameters() if parameter.requires_grad]
        self.parameters = trainable_parameters(setup.network, setup.spec.control) + learned
        self.optimizer = PartOptimizer(setup.network, learned, setup.spec.recipe, not setup.method.end_to_end)
        self.generators = {
            "data_order": generator(setup.spec.seed, "data_order"),
            "augmentation": generator(setup.spec.seed, "augmentation", setup.device),
            "noise": generator(setup.spec.seed, "noise", setup.device),
            "method": generator(setup.spec.seed, "method", setup.device),
        }
        self.epoch = 0
        has_anchors = isinstance(setup.method, HasAnchorSteps)
        self._anchor_every = setup.method.anchor_every(setup.spec.method_options) if has_anchors else 0
        self.early: EarlyCheckpoint | None = None
        self.selected: SelectedState | None = None
        self._progress = torch.zeros((), device=setup.device)
        self._totals = torch.zeros(3, dtype=torch.float64, device=setup.device)
        self._run = runner(setup.spec.precision, setup.device)
        self._stream = torch.cuda.Stream(setup.device) if on_gpu else None
        capture = capture or (cuda_capture(self.generators.values()) if on_gpu else None)
        self.captured = CapturedStep(setup.device, capture) if capture else None
        self.initial = {name: weight.detach().clone() for name, weight in setup.network.named_parameters()}
        self.chain = EpochChain(self.training_state())

    @property
    def stepping(self) -> str:
        """Description of how steps run, see CapturedStep.how."""
        return self.captured.how if self.captured else PLAIN

    def run_epoch(self) -> dict[str, Reading]:
        """Train one epoch; return loss_train, penalty and train_metrics, as means over the counted targets."""
        self.begin_epoch()
        return self.end_epoch()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors `network.NAME` and `feedback.NAME` of the present state, without copies."""
        setup = self.setup
        tensors = {f"network.{name}": tensor for name, tensor in setup.network.state_dict().items()}
        return tensors | {f"feedback.{name}": tensor for name, tensor in setup.feedback.state_dict().items()}

    def training_state(self) -> dict[str, Tensor]:
        """Return the tensors of `state` and the optimiser's tensors `optimizer.INDEX.NAME`, without copies."""
        tensors = self.state()
        for index, parameter in enumerate(self.parameters):
            moments = self.optimizer.values(parameter)
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in moments.items()}
        return tensors

    def begin_epoch(self, through: Through | None = None) -> None:
        """Start the training of one epoch.

        On a GPU, the function returns before the epoch is complete, so other trainings can start. `through` is a generator
        function that receives the epoch's batches and yields the batches to train on. The trainer trains on a yielded batch
        before the generator continues.
        """
        setup = self.setup
        # a tensor of another stream could be overwritten before this stream has read the tensor
        with self._on_own_stream():
            order = torch.randperm(len(setup.splits.train_labels), generator=self.generators["data_order"])
            if setup.device.type == "cuda":
                order = order.pin_memory()  # a copy from other memory would wait for the GPU
            batches = order.to(setup.device, non_blocking=True).split(setup.spec.recipe.batch_size)
            self.train_batch((through or self._keeping_the_first)(batches))
            self.chain.stage(self.training_state())
        self.epoch += 1

    def _keeping_the_first(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the batches, and copy the state after a run's first steps."""
        last = min(FIRST_STEPS, len(batches))
        for number, batch in enumerate(batches, start=1):
            yield batch
            if self.epoch == 0 and number == last:
                self.early = EarlyCheckpoint(
                    last, {name: tensor.detach().clone() for name, tensor in self.state().items()}
                )

    def train_batch(self, batches: Iterable[Tensor]) -> None:
        """Train on the batches of one epoch, at the epoch's learning rate.

        Each batch contains the indices of its samples, (batch,).
        """
        setup = self.setup
        advance = partial(self.captured, self._advance) if self.captured else self._advance
        train_mode(setup.network)
        with self._on_own_stream(), noisy(setup.network, self.generators["noise"]), products(setup.spec.precision):
            self.optimizer.set_rate(learning_rate(setup.spec, self.epoch))
            self._progress.fill_(self.epoch / setup.spec.epochs)
            self._totals.zero_()
            is_anchor_epoch = bool(self._anchor_every and self.epoch and not self.epoch % self._anchor_every)
            for number, batch in enumerate(batches):
                if is_anchor_epoch and number == 0:
                    self._advance(batch, anchor=True)
                else:
                    advance(batch)

    def end_epoch(self) -> dict[str, Reading]:
        """Wait for the GPU, extend the chain of digests, and return the metrics of `run_epoch`."""
        if self._stream:
            torch.cuda.current_stream().wait_stream(self._stream)
        task = self.setup.task
        loss, score, penalty = (self._totals / task.counted(self.setup.splits.train_labels)).tolist()
        self.chain.extend()
        if not math.isfinite(loss + penalty):  # a training that diverges ends with the state that shows it
            self.selected = None
        elif self.setup.spec.recipe.select == BEST_VALIDATION:
            self._select()
        return {
            "loss_train": Reading.of(loss),
            **reported_metrics(task, "train_metrics", score),
            "penalty": Reading.of(penalty),
        }

    def _select(self) -> None:
        """Keep the present state if it is the first one with the best main metric on the validation samples."""
        reading = validation_metric(self.setup)
        if reading.value is None:
            return
        score = self.setup.task.headline.sign * reading.value
        if self.selected is None or score > self.selected.score:
            copies = {name: tensor.detach().clone() for name, tensor in self.state().items()}
            self.selected = SelectedState(self.epoch, score, copies)

    def use_selected(self) -> None:
        """Load the selected state into network and feedback. Without one, nothing changes."""
        if self.selected:
            with torch.no_grad():
                for name, tensor in self.state().items():
                    tensor.copy_(self.selected.tensors[name])

    def release_graphs(self) -> None:
        """Free the GPU memory of captured steps and last gradients, as before the final measurements."""
        if self.captured:
            self.captured.release()
            self.optimizer.zero_grad()

    @contextmanager
    def _on_own_stream(self) -> Iterator[None]:
        """Context manager: use a separate CUDA stream, for captures and for concurrent trainers."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            try:
                yield
            except BaseException:
                self._stream.synchronize()  # the memory of a failed run is reused, so no kernel may still write to it
                raise

    def _advance(self, batch: Tensor, anchor: bool = False) -> None:
        """Train on the samples with these indices, (batch,), and add to the sums of the epoch."""
        splits = self.setup.splits
        images = splits.augment(splits.train_images[batch], self.generators["augmentation"])
        sums = (self.anchor_step if anchor else self.step)(images, splits.train_labels[batch])
        self._totals += torch.stack([sums.loss, sums.score, sums.penalty])

    def step(self, images: Tensor, labels: Tensor) -> StepSums:
        """Run one optimiser step on one batch."""
        return self._step(images, labels, anchor=False)

    def anchor_step(self, images: Tensor, labels: Tensor) -> StepSums:
        """Run one optimiser step with the exact gradient at every site, see HasAnchorSteps."""
        return self._step(images, labels, anchor=True)

    def _step(self, images: Tensor, labels: Tensor, anchor: bool) -> StepSums:
        setup, spec = self.setup, self.setup.spec
        self.optimizer.zero_grad()
        if setup.method.end_to_end:
            heads = setup.feedback if isinstance(setup.method, DeepSupervision) else None
            penalties = (spec.penalty, self._run, setup.task, spec.penalty_embedding)
            sums = backprop_step(setup.network, images, labels, *penalties, heads)
        else:
            sums = local_credit_step(
                setup.network,
                setup.method,
                setup.feedback,
                images,
                labels,
                spec.penalty,
                spec.recipe.credit_norm,
                self.generators["method"],
                self._progress,
                self._run,
                setup.task,
                anchor,
                spec.penalty_embedding,
                spec.recipe.clip_credit,
            )
        clip_gradient(setup.network, setup.feedback, spec.recipe.clip_gradient)
        self.optimizer.step(sums.credited)
        if sums.seen is not None:
            update_feedback(setup.method, setup.feedback, sums.seen)
        return sums


def learning_rate(spec: RunSpec, epoch: int) -> float:
    """Return the learning rate of an epoch; the first epoch is 0.

    The rate in the W epochs of the warm-up is lr · (epoch+1)/(W+1) (Goyal et al. 2017, arXiv 1706.02677, section 2.2). Let e be the
    number of epochs since the warm-up and E the number of epochs after it. The schedules are then

        cosine:   lr · ½(1 + cos(π e/E))
        constant: lr
        step:     lr · step_factor^⌊e/step_epochs⌋

    For the control frozen_long, all numbers of epochs of the recipe are stretched as its training is.
    """
    recipe, stretch = spec.recipe, LONGER if spec.control == FROZEN_LONG else 1
    warmup = recipe.warmup_epochs * stretch
    since = epoch - warmup
    if since < 0:
        return recipe.learning_rate * (epoch + 1) / (warmup + 1)
    if recipe.schedule == "constant":
        return recipe.learning_rate
    if recipe.schedule == "step":
        return recipe.learning_rate * recipe.step_factor ** (since // (recipe.step_epochs * stretch))
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * since / (spec.epochs - warmup)))
