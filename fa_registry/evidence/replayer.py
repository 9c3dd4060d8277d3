"""Repeat training steps of a run and compare each recorded state that the replay reaches.

The replay starts from the initial weights and feedback that the seed determines, or from a kept training state.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fa_registry import methods
from fa_registry.conformance.credit_check import Trial, copied, gradients, objection
from fa_registry.evidence.backprop_check import LEARNING_TIME, early_objection
from fa_registry.evidence.replay import EpochComparison, RecordedEpochs, continues
from fa_registry.evidence.tensor_differences import deviation, equal_entries, misfit, share_of_the_way
from fa_registry.records import Check, Measurements
from fa_registry.records.configurations import undecidable
from fa_registry.seeding import generator
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import FIRST_STEPS, Trainer
from fa_registry.training.trainer_state import check_fits, restore

# Errors of a draw on another configuration, relative to the tensor's largest entry: the largest error that rounding explains, and
# the smallest error that no configuration explains (docs/measured/configurations.json).
DRAWN, OTHER_DRAWN = 5e-6, 1e-2
# The same two limits for a state after the first steps, relative to its distance from the initial state. AdamW's first steps follow
# the sign of a gradient, and rounding decides the sign of a gradient near zero. In 21 runs whose weights were perturbed by 1e-7,
# the largest error is 0.024 (fa on vit_mini, whose attention hardly learns at first). The error of another method is about 1.
SAME_WAY, OTHER_WAY = 0.1, 0.5
STAYS = 1e-4  # relative to the same distance: a final state nearer to the state after the first steps was not trained further


@dataclass(frozen=True)
class RecordedTraining:
    """The recorded files and digests of a run's training.

    Attributes:
        initial: file of the initial weights, or None if it was not stored.
        initial_content: digest of the content of the initial weights.
        feedback: file of the feedback state, or None.
        early: file of network and feedback state after `early_step` steps, or None.
        early_step: number of steps before the state in `early`.
        digests: role of a file ("initial", "feedback", "early", "final") → SHA-256.
        later: mapping from an epoch to the pair (file of the checkpoint after this epoch, its SHA-256).
        epochs: number of trained epochs.
        exact: whether this machine has the run's configuration, so every bit must be reproduced.
        elsewhere: the settings that differ between the run's configuration and this machine's. It is empty if none differs.
        recorded: the recorded digests and measurements of the run's epochs.
        selected: the epoch that the recipe selected, or None if the final files belong to the last epoch.
    """

    initial: Path | None = None
    initial_content: str = ""
    feedback: Path | None = None
    early: Path | None = None
    early_step: int | None = None
    digests: Mapping[str, str | None] = field(default_factory=dict)
    later: Mapping[int, tuple[Path, str]] = field(default_factory=dict)
    epochs: int = 0
    exact: bool = True
    elsewhere: str = ""
    recorded: RecordedEpochs = RecordedEpochs()
    selected: int | None = None

    @property
    def final(self) -> int:
        """The epoch to whose state the final files belong."""
        return self.epochs if self.selected is None else self.selected


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of a replay.

    Attributes:
        checks: one result per subject of comparison, such as "feedback".
        steps: number of replayed training steps.
        all_steps: number of training steps of the whole run.
        seconds: wall-clock time of the replay in seconds.
        cpu_seconds: CPU time of the replay in seconds.
        near_backprop: the first replayed step in which the method cannot be distinguished from backpropagation, as a text, or an
            empty string.
        epoch_seconds: estimated CPU time in seconds to replay one epoch; 0 if no step was replayed.
        epochs: number of epochs that the run trained.
        exact: whether this machine has the run's configuration, so every bit must be reproduced.
        is_complete: whether all these epochs were replayed.
        measured: metrics of the replayed weights, if the whole training was replayed on another configuration; else None.
    """

    checks: tuple[Check, ...]
    steps: int = 0
    all_steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    near_backprop: str = ""
    epoch_seconds: float = 0.0
    epochs: int = 0
    exact: bool = True
    is_complete: bool = False
    measured: Measurements | None = None


class Replayer:
    """A replay of a run's first `steps` steps, and the differences between replay and record."""

    def __init__(self, setup: RunSetup, training: RecordedTraining, steps: int, cpu_limit: float = math.inf):
        """Start a replay on a copy of the setup.

        It ends after `steps` steps, or at the last epoch within `cpu_limit` seconds.
        """
        self._begun, self._cpu_begun = time.monotonic(), time.process_time()
        trial = Trial.copy_of(setup, generator(setup.spec.seed, "noise", setup.device))
        self.setup = dataclasses.replace(setup, network=trial.network, feedback=trial.feedback)
        # without a CUDA graph, which gives the same numbers but cannot be observed step by step
        self._trainer = Trainer(self.setup, _uncaptured if setup.device.type == "cuda" else None)
        self._start = _copies(self._trainer.state())
        self._training, self._steps, self.taken = training, steps, 0
        self._epochs = EpochComparison(training.recorded, training.epochs)
        self._objections: dict[int, str] = {}
        self.near_backprop = ""
        self._cpu_limit = cpu_limit
        self._step_seconds: list[float] = []
        self._arrived: list[Arrival] = []
        self._explained: set[str] = set()  # differences that are small enough to come from another configuration
        self.per_epoch = steps_of(setup, 1)
        # an author cannot know the steps of a whole replay at which the credits are compared
        self._watched_steps = {1, min(steps, FIRST_STEPS)}
        if not methods.CATALOG.location(setup.spec.method).is_builtin:
            draws = training.recorded.draws.items()
            self._watched_steps |= {epoch * self.per_epoch + draw % self.per_epoch + 1 for epoch, draw in draws}

    def run(self) -> None:
        """Replay the steps; stop after the first epoch that differs, or before the CPU limit is exceeded."""
        if self._training.exact and not self._epochs.compare(self._trainer):
            self._steps = min(self._steps, FIRST_STEPS)
        if not self.setup.spec.epochs:
            self._compare()
        while self.taken < self._steps and self._has_time_for_an_epoch():
            self._trainer.begin_epoch(self._watched)
            if self.taken % self.per_epoch == 0:
                losses = self._trainer.end_epoch()
                if self._training.exact and not self._epochs.compare(self._trainer, losses):
                    break
        self._steps = self.taken

    def result(self, checks: Sequence[Check], is_complete: bool, measured: Measurements | None = None) -> ReplayResult:
        """Return the outcome of the replay, with all `checks` and with what the replay cost since it began."""
        return ReplayResult(
            tuple(checks),
            steps=self.taken,
            all_steps=steps_of(self.setup, self.setup.spec.epochs),
            seconds=time.monotonic() - self._begun,
            cpu_seconds=self.cpu_seconds,
            near_backprop=self.near_backprop,
            epoch_seconds=self.epoch_seconds,
            epochs=self._training.epochs,
            exact=self._training.exact,
            is_complete=is_complete,
            measured=measured,
        )

    def _has_time_for_an_epoch(self) -> bool:
        """Return whether another epoch fits into the limit; before the first epoch, its time is not known."""
        epochs = self.taken // self.per_epoch
        return not epochs or self.cpu_seconds * (epochs + 1) / epochs <= self._cpu_limit

    @property
    def cpu_seconds(self) -> float:
        """CPU time in seconds since the replay began."""
        return time.process_time() - self._cpu_begun

    @property
    def epoch_seconds(self) -> float:
        """Estimated CPU time of an epoch in seconds: the median of the replayed steps, times their number."""
        return statistics.median(self._step_seconds) * self.per_epoch if self._step_seconds else 0.0

    def use_selected(self) -> None:
        """Load the state of the epoch that the recipe selects, as a training does at its end."""
        self._trainer.use_selected()

    def epoch_from(self, epoch: int, state: dict[str, Tensor], next_state: Mapping[str, Tensor]) -> str:
        """Replay one epoch from a kept state and compare it with the next state.

        Args:
            epoch: number of epochs before the kept state.
            state: the kept state.
            next_state: the recorded state one epoch later.

        Returns:
            The difference as a text, or an empty string if both states agree.
        """
        check_fits(self._trainer, state)
        restore(self._trainer, state, epoch)
        if not continues(self._training.recorded.chain, self._trainer):
            return "the digest of the kept state is not the recorded digest"
        self._start = _copies(self._trainer.state())
        self._trainer.run_epoch()
        return misfit(next_state, self._trainer.state()) or self._off_the_way(next_state, self._trainer.state())

    def _watched(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        for batch in batches[: self._steps - self.taken]:
            snapshot = self._before() if self.taken + 1 in self._watched_steps else None
            start = time.process_time()
            yield batch
            self._step_seconds.append(time.process_time() - start)
            self.taken += 1
            if snapshot:
                self._look(*snapshot, batch)
            self._compare()

    def _before(self) -> tuple[Trial, torch.Generator]:
        generators = self._trainer.generators
        return Trial.copy_of(self.setup, generators["noise"]), copied(generators["augmentation"])

    def _look(self, trial: Trial, augmentation: torch.Generator, batch: Tensor) -> None:
        """Compare the last step with the measured credits and with backpropagation."""
        splits, progress = self.setup.splits, (self.taken - 1) / (self.per_epoch * self.setup.spec.epochs)
        samples = splits.augment(splits.train_images[batch], augmentation), splits.train_labels[batch]
        may_have_learned = self.setup.method.card.may_reach_bp and progress >= LEARNING_TIME
        problem = objection(trial, *samples, gradients(self.setup.network), judge_bp=not may_have_learned)
        if problem:
            self._objections[self.taken] = problem
        elif self.setup.spec.control == "none" and not self.near_backprop:
            near = early_objection(trial, *samples, progress)
            self.near_backprop = f"at step {self.taken}: {near}" if near else ""

    def _compare(self) -> None:
        """Compare the current state with the recorded state after this step, if that state exists."""
        training, step = self._training, self.taken
        if step == training.early_step and training.early:
            recorded = load_tensors(training.early, training.digests.get("early"))
            self._arrive(f"after step {step}", recorded, self._trainer.state())
            self._compare_final(step)
        epoch, remainder = divmod(step, self.per_epoch)
        # on another configuration, rounding alone makes the states after late epochs differ
        if not remainder and epoch in training.later and (training.exact or step <= FIRST_STEPS):
            recorded = load_tensors(*training.later[epoch])
            state = {f"network.{name}": tensor for name, tensor in recorded.items()}
            if epoch == training.final and training.feedback:
                feedback = load_tensors(training.feedback, training.digests.get("feedback"))
                state |= {f"feedback.{name}": tensor for name, tensor in feedback.items()}
            parts = ("network.", "feedback.") if epoch == training.final and training.feedback else "network."
            replayed = {name: tensor for name, tensor in self._trainer.state().items() if name.startswith(parts)}
            self._arrive(f"after epoch {epoch}", state, replayed, is_epoch=True)

    def _compare_final(self, step: int) -> None:
        """Record an error if the final weights equal the weights after this step, which is not the last."""
        final = self._training.later.get(self._training.final)
        if final is None or step >= self._training.final * self.per_epoch:
            return
        recorded = {f"network.{name}": tensor for name, tensor in load_tensors(*final).items()}
        replayed = {name: tensor for name, tensor in self._trainer.state().items() if name.startswith("network.")}
        if misfit(recorded, replayed) or not any(
            part.grad is not None and part.grad.any() for part in self._trainer.parameters
        ):
            return
        if share_of_the_way(list(replayed), recorded, replayed, self._start) <= STAYS:
            label = f"the final weights equal the weights after step {step}"
            self._arrived.append(Arrival(label, "so the weights were not trained further"))

    def _arrive(
        self, label: str, recorded: Mapping[str, Tensor], replayed: Mapping[str, Tensor], is_epoch: bool = False
    ) -> None:
        problem = misfit(recorded, replayed) or self._off_the_way(recorded, replayed)
        self._arrived.append(Arrival(label, problem, is_epoch))

    def _off_the_way(self, recorded: Mapping[str, Tensor], replayed: Mapping[str, Tensor]) -> str:
        """Return the difference between two states as a text. The text is empty if the states agree.

        Network and feedback are compared separately. The text states each difference relative to the distance between start and
        end of the replay. If that distance is 0, the text states the difference relative to the largest entry of a tensor.
        """
        differing = [name for name, tensor in replayed.items() if not equal_entries(recorded[name], tensor.cpu())]
        problems, is_explained = [], True
        for part in ("network.", "feedback."):
            names = [name for name in differing if name.startswith(part)]
            error, has_moved = deviation(names, recorded, replayed, self._start)
            limit, upper_limit = (SAME_WAY, OTHER_WAY) if has_moved else (DRAWN, OTHER_DRAWN)
            if names and (self._training.exact or not error <= limit):
                unit = "of its distance from the start" if has_moved else "of its largest entry"
                problems.append(f"the {part.rstrip('.')} differs by {error:.2g} {unit}")
                is_explained = is_explained and error <= upper_limit
        if not problems:
            return ""
        problem = (
            f"{len(differing)} of {len(replayed)} tensors differ from the recorded tensors: {' and '.join(problems)}"
        )
        self._explained |= {problem} if is_explained else set()
        return problem

    def _whole(self, problems: Sequence[str]) -> Iterator[Check]:
        """Yield the check of the whole training.

        `problems` contains one text per checkpoint that differs from the replay.
        """
        comparison = self._epochs
        if self._training.exact and (comparison.difference or comparison.reached >= min(1, self._training.epochs)):
            yield comparison.check(self.taken, "; ".join(problems))

    def checks(self) -> Iterator[Check]:
        """Yield the checks of the replay."""
        total = steps_of(self.setup, self.setup.spec.epochs)
        part = f" ({self._steps / total:.2g} of all)" if total else ""
        share = f"the first {self._steps} of {total} training steps{part} were replayed"
        precision = "bit by bit" if self._training.exact else f"within {SAME_WAY:g} of the distance from the start"
        differing = [arrival for arrival in self._arrived if arrival.problem]
        step, expected = self._training.early_step, min(FIRST_STEPS, self.per_epoch)
        yield from self._whole([arrival.text for arrival in differing if arrival.is_epoch])
        if self._training.epochs and step != expected:  # of another step, the file would be compared with nothing
            found = f"the state after step {step}" if step else "no state"
            text = f"expected the state after step {expected}, which every run records, found {found}"
            yield Check("first steps", "differs", text)
        elif differing:
            is_explained = {arrival.problem for arrival in differing} <= self._explained
            problems = "; ".join(arrival.text for arrival in differing)
            yield concluded("first steps", f"{share}: {problems}", self._training, is_explained)
        elif self._arrived:
            labels = " and ".join(arrival.label for arrival in self._arrived)
            description = f"{share}; the recorded state {labels} is reproduced {precision}"
            yield Check("first steps", "agrees", description, steps=self._steps)
        else:
            text = f"{share}, but the first recorded state is the state after step {step}, so no state was compared"
            yield Check("first steps", "not possible", text)
        if self._objections:
            step, objection_text = next(iter(self._objections.items()))
            yield Check("training credit", "differs", f"at step {step}: {objection_text}")


@dataclass(frozen=True)
class Arrival:
    """A recorded state that the replay reached.

    Attributes:
        label: the state, such as `after step 3`.
        problem: the difference between the recorded and the replayed state; empty if both agree.
        is_epoch: whether the state is that of a checkpoint after an epoch.
    """

    label: str
    problem: str
    is_epoch: bool = False

    @property
    def text(self) -> str:
        return f"{self.label}, {self.problem}"


def steps_of(setup: RunSetup, epochs: int) -> int:
    """Return the number of training steps of some epochs."""
    return epochs * -(-len(setup.splits.train_labels) // setup.spec.recipe.batch_size)


def concluded(subject: str, difference: str, training: RecordedTraining, is_explained: bool) -> Check:
    """Return the result for tensors that differ by more than the tolerance."""
    if not training.elsewhere or not is_explained:
        return Check(subject, "differs", difference)
    return undecidable(subject, training.elsewhere, difference)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _uncaptured(work):
    """Raise RuntimeError, so no step is captured in a CUDA graph: a replay observes single steps."""
    raise RuntimeError("observed steps are run one by one")
