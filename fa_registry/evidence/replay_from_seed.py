"""Re-initialise a run from its seed, replay its first steps and compare the files.

The seed determines the initial weights and the feedback, so an audit can compute both again and compare them with the recorded
files. The comparison detects, for example, a feedback matrix that was fitted to the gradients after the training. The audit also
compares the state after the first training steps. This state is determined by the initial weights, the feedback and the training
data.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fa_registry import methods
from fa_registry.conformance.credit_check import (
    Trial,
    changed_weights,
    copied,
    gradients,
    objection,
    trained_gradients,
)
from fa_registry.evidence.backprop_check import LEARNING_TIME, early_objection
from fa_registry.evidence.replay import (
    WHOLE_WORK,
    EpochComparison,
    RecordedEpochs,
    continues,
    epochs_text,
    work_of,
)
from fa_registry.evidence.tensor_differences import (
    deviation,
    equal_entries,
    misfit,
    relative_difference,
    share_of_the_way,
)
from fa_registry.jsonio import describe_value
from fa_registry.methods.base import HasFeedbackRule, LearnsFeedbackByLoss
from fa_registry.protocol.replay_summary import KEPT, WHOLE
from fa_registry.records import Check
from fa_registry.records.configurations import undecidable
from fa_registry.seeding import generator
from fa_registry.training.checkpoint import content_digest, load_tensors
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import FIRST_STEPS, Trainer
from fa_registry.training.trainer_state import check_fits, restore

AUTO, ALL, OFF = "auto", "all", "off"
# Greatest product of samples and weights of the first steps that are replayed by default. The replay takes some seconds of one
# core if a weight is used once per sample, as in resmlp, and longer if a state has several positions. The product is counted, not
# timed, so that the choice is reproducible.
AUTO_WORK = 2e10
# Errors of a draw on another configuration, relative to the tensor's largest entry: the largest error that rounding explains, and
# the smallest error that no configuration explains (docs/measured/configurations.json).
DRAWN, OTHER_DRAWN = 5e-6, 1e-2
# The same two limits for a state after the first steps, relative to its distance from the initial state. AdamW's first steps follow
# the sign of a gradient, and rounding decides the sign of a gradient near zero. In 21 runs whose weights were perturbed by 1e-7,
# the largest error is 0.024 (fa on vit_mini, whose attention hardly learns at first). The error of another method is about 1.
SAME_WAY, OTHER_WAY = 0.1, 0.5
STAYS = 1e-4  # relative to the same distance: a final state nearer to the state after the first steps was not trained further
ADOPTED = "the run is adopted: another program trained it, so its initial values do not come from a seed of fa_registry"
OTHER_DRAW = (
    "the check cannot show that the run started from its seed: only the digest of the initial weights is recorded, this "
    "machine may round random weights differently, and no training steps were replayed"
)
UNREPEATABLE = "only a CPU repeats a training bit by bit"
OUT_OF_REACH = (
    "only the first steps can be proven here: the training is too long to be replayed completely by default, and its epochs cannot "
    "be compared bit by bit; --replay all replays it completely"
)
TOO_LONG = "no whole epoch of this network is replayed by default; --replay all replays all epochs"


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


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of a replay.

    Attributes:
        checks: one result per subject of comparison, such as "feedback".
        steps: number of replayed training steps.
        of: number of training steps of the whole run.
        seconds: wall-clock time of the replay in seconds.
        near_backprop: the first replayed step in which the method cannot be distinguished from backpropagation, as a text, or an
            empty string.
    """

    checks: tuple[Check, ...]
    steps: int = 0
    of: int = 0
    seconds: float = 0.0
    near_backprop: str = ""


def asked_steps(value: str | int) -> str | int:
    """Parse the value of the replay option.

    Args:
        value: `auto`, `all`, `off`, or the largest number of steps to replay.

    Raises:
        ValueError: if `value` has another form.
    """
    if value in (AUTO, ALL, OFF):
        return value
    try:
        steps = int(value)
    except ValueError:
        steps = 0
    if steps < 1:
        raise ValueError(f"expected auto, all, off or a number of steps from 1, found {describe_value(value)}")
    return steps


def replay_training(
    setup: RunSetup, training: RecordedTraining, replay: str | int = AUTO, is_full_replay: bool = False
) -> ReplayResult:
    """Re-initialise and replay a run, and compare it with the recorded files.

    Args:
        setup: the setup as `build_setup` returns it. The function does not change it.
        training: the recorded files and digests.
        replay: `auto`, `all`, `off`, or the largest number of steps to replay.
        is_full_replay: whether to replay the whole training. This is always done if `replay` is `all`.

    Returns:
        The checks and the number of replayed steps.

    Raises:
        IntegrityError: if the SHA-256 of a file differs from the recorded one.
    """
    if setup.spec.weights:
        return ReplayResult(
            tuple(Check(subject, "not possible", ADOPTED) for subject in ("initial weights", "first steps"))
        )
    checks = [_initial(setup, training), *_feedback(setup, training)]
    if replay == OFF:
        return ReplayResult((*checks, Check("first steps", "not possible", "no replay was requested (--replay off)")))
    start = time.monotonic()
    steps, reason = _planned(setup, training, replay)
    full_steps = 0
    if replay == AUTO and _is_out_of_reach(setup, training):
        checks.append(undecidable(WHOLE, training.elsewhere or UNREPEATABLE, OUT_OF_REACH))
    elif is_full_replay or replay == ALL:
        full_steps = _planned_whole(setup, training, replay)
        if training.epochs and not full_steps:
            checks.append(Check(WHOLE, "not possible", TOO_LONG))
    checks += _kept_states(setup, training, replay)
    if reason and not full_steps:
        return ReplayResult((*checks, Check("first steps", "not possible", reason)))
    replayer = _Replay(setup, training, max(steps, full_steps))
    replayer.run()
    total = replayer.per_epoch * setup.spec.epochs
    replayed = list(replayer.checks(total))
    if training.initial is None:
        checks[0] = _with_replay(checks[0], replayed)
    checks += replayed
    return ReplayResult(tuple(checks), replayer.taken, total, time.monotonic() - start, replayer.near_backprop)


def is_fixed(setup: RunSetup) -> bool:
    """Return whether the feedback state cannot change during training.

    The state is fixed if the method's card declares `feedback_fixed` or if the method never updates its feedback.
    """
    learns = isinstance(setup.method, (LearnsFeedbackByLoss, HasFeedbackRule))
    return "feedback_fixed" in setup.method.card.properties or not learns


def credit_in_training(setup: RunSetup) -> Check:
    """Compare the method's credits in training and in measuring, on the eval batch.

    The comparison uses the weights and feedback of `setup`. The method receives the progress 0.5, as if half of the epochs were
    over. The comparison detects a method that is honest only in its first steps or only on training images.
    """
    if setup.method.end_to_end:
        return Check("training credit", "agrees", "the method is trained end to end")
    trial = Trial.copy_of(setup, generator(setup.spec.seed, "noise", setup.device))
    images, labels = setup.eval_batch
    method_generator = generator(setup.spec.seed, "method", setup.device)
    trained = trained_gradients(trial, images, labels, method_generator, progress=0.5)
    problem = changed_weights(setup.network, trial.network)
    problem = problem or objection(Trial.copy_of(setup, trial.noise), images, labels, trained, judge_bp=False)
    if problem:
        return Check("training credit", "differs", f"at the final weights: {problem}")
    return Check("training credit", "agrees", "training and measuring get the same credit at the final weights")


def _initial(setup: RunSetup, training: RecordedTraining) -> Check:
    subject, reinitialised = "initial weights", setup.network.state_dict()
    if training.initial is not None:
        return _compared(
            subject, load_tensors(training.initial, training.digests.get("initial")), reinitialised, training
        )
    if content_digest(reinitialised) == training.initial_content:
        return Check(
            subject,
            "agrees",
            f"the digest of the {len(reinitialised)} tensors equals the recorded digest",
        )
    if training.exact:
        return Check(
            subject,
            "differs",
            "the digest of the tensors re-initialised from the seed differs from the recorded digest",
        )
    if training.elsewhere:
        return undecidable(subject, training.elsewhere, OTHER_DRAW)
    return Check(subject, "not possible", OTHER_DRAW)


def _with_replay(initial: Check, replayed: Sequence[Check]) -> Check:
    """Return the check of the initial weights, changed to "agrees" if the replayed steps agree.

    The check is changed only if its outcome is "not possible".
    """
    is_reproduced = any((check.subject, check.outcome) == ("first steps", "agrees") for check in replayed)
    if not (is_reproduced and initial.outcome == "not possible"):
        return initial
    text = "the initial weights differ by rounding, but the first replayed steps lead to the recorded state"
    return Check(initial.subject, "agrees", f"{text}, within {SAME_WAY:g} of the distance from the start")


def _feedback(setup: RunSetup, training: RecordedTraining) -> Iterator[Check]:
    reinitialised = setup.feedback.state_dict()
    if not reinitialised:
        return
    if training.digests.get("feedback") is None:
        yield Check("feedback", "differs", "the run recorded no feedback state, although its method has one")
    elif not is_fixed(setup):
        yield Check(
            "feedback",
            "not possible",
            "the feedback changes during training; the check of the first steps covers the feedback too",
        )
    elif training.feedback is None:
        yield Check("feedback", "not possible", "the file of the recorded feedback state is missing")
    else:
        recorded = load_tensors(training.feedback, training.digests.get("feedback"))
        yield _compared("feedback", recorded, reinitialised, training)


def _compared(
    subject: str, recorded: Mapping[str, Tensor], reinitialised: Mapping[str, Tensor], training: RecordedTraining
) -> Check:
    """Compare recorded tensors with tensors that were re-initialised from the seed."""
    if problem := misfit(recorded, reinitialised):
        return Check(subject, "differs", problem)
    errors = {name: relative_difference(recorded[name], tensor.cpu()) for name, tensor in reinitialised.items()}
    limit = 0.0 if training.exact else DRAWN
    differing = [name for name, error in errors.items() if not error <= limit]
    if differing:
        worst = max(differing, key=lambda name: errors[name])
        difference = (
            f"{len(differing)} of {len(errors)} tensors differ from the tensors that the seed gives; the largest difference "
            f"is {errors[worst]:.2g} of the largest entry, in the tensor {worst}"
        )
        return _concluded(subject, difference, training, errors[worst] <= OTHER_DRAWN)
    precision = "bit by bit" if training.exact else f"within {DRAWN:g}"
    text = f"{len(errors)} tensors were re-initialised from the seed and equal the recorded tensors {precision}"
    return Check(subject, "agrees", text)


def _concluded(subject: str, difference: str, training: RecordedTraining, is_explained: bool) -> Check:
    """Return the result for tensors that differ by more than the tolerance."""
    if not training.elsewhere or not is_explained:
        return Check(subject, "differs", difference)
    return undecidable(subject, training.elsewhere, difference)


def _planned(setup: RunSetup, training: RecordedTraining, replay: str | int) -> tuple[int, str]:
    """Return the number of steps to replay. If it is 0, return the reason too."""
    if not setup.spec.epochs:
        return 0, ""
    samples = len(setup.splits.train_labels)
    batch = min(setup.spec.recipe.batch_size, samples)
    per_epoch = -(-samples // setup.spec.recipe.batch_size)
    if replay not in (AUTO, ALL):
        return min(int(replay), per_epoch * max(training.epochs, 1)), ""
    steps = min(training.early_step or FIRST_STEPS, FIRST_STEPS, per_epoch)
    work = steps * batch * sum(weight.numel() for weight in setup.network.parameters())
    if work > AUTO_WORK:
        return 0, (
            f"{steps} steps of {batch} samples through this network are not replayed by default; "
            f"--replay {steps} replays them"
        )
    return steps, ""


def _is_out_of_reach(setup: RunSetup, training: RecordedTraining) -> bool:
    """Return whether the training is too long to be replayed, and its epochs cannot be compared here.

    This does not depend on whether the run was chosen: no audit by default can prove more than the first steps of such a run.
    """
    return not training.exact and work_of(setup, training.epochs) > WHOLE_WORK


def _planned_whole(setup: RunSetup, training: RecordedTraining, replay: str | int) -> int:
    """Return the number of steps of the whole epochs to replay."""
    epochs = training.epochs
    if replay != ALL and work_of(setup, epochs) > WHOLE_WORK:
        epochs = int(WHOLE_WORK / work_of(setup, 1))
    return epochs * -(-len(setup.splits.train_labels) // setup.spec.recipe.batch_size)


def _kept_states(setup: RunSetup, training: RecordedTraining, replay: str | int) -> Iterator[Check]:
    """Replay the epoch after each stored training state, and yield one check of all replays.

    By default, the limit WHOLE_WORK determines how many of the stored states are used.
    """
    kept_states = list(training.recorded.kept.items())
    limit = len(kept_states) if replay == ALL or not kept_states else int(WHOLE_WORK / work_of(setup, 1))
    if kept_states and not limit:
        text = "no epoch of this network is replayed by default; --replay all replays the epochs after the kept states"
        yield Check(KEPT, "not possible", text)
        return
    problems = []
    for epoch, (state, digest, next_state, next_digest) in sorted(kept_states[:limit]):
        replayer = _Replay(setup, training, 0)
        problem = replayer.epoch_from(epoch, load_tensors(state, digest), load_tensors(next_state, next_digest))
        problems += [f"replay of epoch {epoch + 1} from the state after epoch {epoch}: {problem}"] if problem else []
    if problems:
        yield Check(KEPT, "differs" if training.exact else "not possible", "; ".join(problems))
    elif kept_states:
        precision = "bit by bit" if training.exact else f"within {SAME_WAY:g} of the distance from the start"
        epochs_label = epochs_text([epoch + 1 for epoch, _ in sorted(kept_states[:limit])])
        text = f"the replay of {epochs_label} from the kept states reproduces the recorded states {precision}"
        yield Check(KEPT, "agrees", text)


class _Replay:
    """A replay of a run's first `steps` steps, and the differences between replay and record."""

    def __init__(self, setup: RunSetup, training: RecordedTraining, steps: int):
        """Start a replay on a copy of the setup."""
        trial = Trial.copy_of(setup, generator(setup.spec.seed, "noise", setup.device))
        self._setup = dataclasses.replace(setup, network=trial.network, feedback=trial.feedback)
        # without a CUDA graph, which gives the same numbers but cannot be observed step by step
        self._trainer = Trainer(self._setup, _uncaptured if setup.device.type == "cuda" else None)
        self._start = _copies(self._trainer.state())
        self._training, self._steps, self.taken = training, steps, 0
        self._epochs = EpochComparison(training.recorded, training.epochs)
        self._objections: dict[int, str] = {}
        self.near_backprop = ""
        self._arrived: list[Arrival] = []
        self._explained: set[str] = set()  # differences that are small enough to come from another configuration
        self.per_epoch = -(-len(setup.splits.train_labels) // setup.spec.recipe.batch_size)
        # an author cannot know the steps of a whole replay at which the credits are compared
        self._watched_steps = {1, min(steps, FIRST_STEPS)}
        if not methods.CATALOG.location(setup.spec.method).is_builtin:
            draws = training.recorded.draws.items()
            self._watched_steps |= {epoch * self.per_epoch + draw % self.per_epoch + 1 for epoch, draw in draws}

    def run(self) -> None:
        """Replay the steps; stop after the first epoch that differs from the record."""
        if self._training.exact and not self._epochs.compare(self._trainer):
            self._steps = min(self._steps, FIRST_STEPS)
        if not self._setup.spec.epochs:
            self._compare()
        while self.taken < self._steps:
            self._trainer.begin_epoch(self._watched)
            if self.taken % self.per_epoch == 0:
                losses = self._trainer.end_epoch()
                if self._training.exact and not self._epochs.compare(self._trainer, losses):
                    break
        self._steps = self.taken

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
            yield batch
            self.taken += 1
            if snapshot:
                self._look(*snapshot, batch)
            self._compare()

    def _before(self) -> tuple[Trial, torch.Generator]:
        generators = self._trainer.generators
        return Trial.copy_of(self._setup, generators["noise"]), copied(generators["augmentation"])

    def _look(self, trial: Trial, augmentation: torch.Generator, batch: Tensor) -> None:
        """Compare the last step with the measured credits and with backpropagation."""
        splits, progress = self._setup.splits, (self.taken - 1) / (self.per_epoch * self._setup.spec.epochs)
        samples = splits.augment(splits.train_images[batch], augmentation), splits.train_labels[batch]
        may_have_learned = self._setup.method.card.may_reach_bp and progress >= LEARNING_TIME
        problem = objection(trial, *samples, gradients(self._setup.network), judge_bp=not may_have_learned)
        if problem:
            self._objections[self.taken] = problem
        elif self._setup.spec.control == "none" and not self.near_backprop:
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
            if epoch == training.epochs and training.feedback:
                feedback = load_tensors(training.feedback, training.digests.get("feedback"))
                state |= {f"feedback.{name}": tensor for name, tensor in feedback.items()}
            parts = ("network.", "feedback.") if epoch == training.epochs and training.feedback else "network."
            replayed = {name: tensor for name, tensor in self._trainer.state().items() if name.startswith(parts)}
            self._arrive(f"after epoch {epoch}", state, replayed, is_epoch=True)

    def _compare_final(self, step: int) -> None:
        """Record an error if the final weights equal the weights after this step, which is not the last."""
        final = self._training.later.get(self._training.epochs)
        if final is None or step >= self._training.epochs * self.per_epoch:
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
        if not self._training.exact:
            if self.taken and self.taken == self._training.epochs * self.per_epoch:
                yield comparison.check_elsewhere(self._setup, self.taken, self._training.elsewhere)
        elif comparison.difference or comparison.reached >= min(1, self._training.epochs):
            yield comparison.check(self.taken, "; ".join(problems))

    def checks(self, total: int) -> Iterator[Check]:
        """Yield the checks of the replay.

        Args:
            total: number of training steps of the whole run.
        """
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
            yield _concluded("first steps", f"{share}: {problems}", self._training, is_explained)
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


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _uncaptured(work):
    """Raise RuntimeError, so no step is captured in a CUDA graph: a replay observes single steps."""
    raise RuntimeError("observed steps are run one by one")
