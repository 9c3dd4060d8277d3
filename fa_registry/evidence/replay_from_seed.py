"""Re-initialise a run from its seed, replay its first steps or all steps, and compare the files.

The seed determines the initial weights and the feedback, so an audit can compute both again and compare them with the recorded
files. The comparison detects, for example, a feedback matrix that was fitted to the gradients after the training. The audit also
compares the state after the first training steps. This state is determined by the initial weights, the feedback and the training
data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from fa_registry import diagnostics
from fa_registry.conformance.credit_check import Trial, changed_weights, objection, trained_gradients
from fa_registry.diagnostics.base import MOMENTS
from fa_registry.evidence.replay import check_elsewhere, epochs_text
from fa_registry.evidence.replayer import (
    DRAWN,
    OTHER_DRAWN,
    SAME_WAY,
    RecordedTraining,
    Replayer,
    ReplayResult,
    concluded,
    steps_of,
)
from fa_registry.evidence.tensor_differences import misfit, relative_difference
from fa_registry.jsonio import describe_value
from fa_registry.methods.base import HasFeedbackRule, LearnsFeedbackByLoss
from fa_registry.protocol.replay_summary import KEPT
from fa_registry.records import Check, Measurements, Scalar
from fa_registry.records.configurations import undecidable
from fa_registry.seeding import generator
from fa_registry.training.checkpoint import content_digest, load_tensors
from fa_registry.training.measuring import measure, with_conventions
from fa_registry.training.probe_context import conventions_of_setup
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import FIRST_STEPS

AUTO, ALL, OFF = "auto", "all", "off"
ADOPTED = "the run is adopted: another program trained it, so its initial values do not come from a seed of fa_registry"
OTHER_DRAW = (
    "the check cannot show that the run started from its seed: only the digest of the initial weights is recorded, this "
    "machine may round random weights differently, and no training steps were replayed"
)


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


def replay_first_steps(setup: RunSetup, training: RecordedTraining, replay: str | int = AUTO) -> ReplayResult:
    """Re-initialise a run, replay its first steps, and compare both with the recorded files.

    Args:
        setup: the setup as `build_setup` returns it. The function does not change it.
        training: the recorded files and digests.
        replay: `off`, or the largest number of steps to replay. `auto` and `all` replay the steps whose end every run records.

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
    replayer = Replayer(setup, training, _planned(setup, training, replay))
    replayer.run()
    replayed = list(replayer.checks())
    if training.initial is None:
        checks[0] = _with_replay(checks[0], replayed)
    return replayer.result([*checks, *replayed], is_complete=False)


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
        return concluded(subject, difference, training, errors[worst] <= OTHER_DRAWN)
    precision = "bit by bit" if training.exact else f"within {DRAWN:g}"
    text = f"{len(errors)} tensors were re-initialised from the seed and equal the recorded tensors {precision}"
    return Check(subject, "agrees", text)


def _planned(setup: RunSetup, training: RecordedTraining, replay: str | int) -> int:
    """Return the number of steps to replay."""
    if not setup.spec.epochs:
        return 0
    per_epoch = steps_of(setup, 1)
    if replay not in (AUTO, ALL):
        return min(int(replay), per_epoch * max(training.epochs, 1))
    return min(training.early_step or FIRST_STEPS, FIRST_STEPS, per_epoch)


def replay_whole(
    setup: RunSetup,
    training: RecordedTraining,
    cpu_limit: float = math.inf,
    fits: bool = True,
    recorded: Mapping[str, Scalar] | None = None,
) -> ReplayResult:
    """Replay all epochs of a run, or as many as fit, and compare them with the record.

    An incomplete replay ends after an epoch whose digest is compared, so it proves something only where the audit has the run's
    configuration. It is tried only if the run kept no states: the epochs after kept states show more of the training. These epochs
    are also replayed if the digests of a complete replay cannot be compared.

    Args:
        setup: the setup as `build_setup` returns it. The function does not change it.
        training: the recorded files and digests.
        cpu_limit: CPU time in seconds that the replay may use.
        fits: whether the whole training is expected to fit into the limit.
        recorded: the conventions that the run recorded, or None for the defaults of the installed version.

    Raises:
        IntegrityError: if the SHA-256 of a file differs from the recorded one.
    """
    is_tried = fits or (training.exact and not training.recorded.kept)
    replayer = Replayer(setup, training, steps_of(setup, training.epochs) if is_tried else 0, cpu_limit)
    replayer.run()
    checks = list(replayer.checks()) if is_tried else []
    measured = None
    is_complete = is_tried and replayer.taken == steps_of(setup, training.epochs)
    if is_complete and not training.exact:
        measured = _measured(replayer, setup, recorded)
        headline = setup.task.headline
        checks.append(
            check_elsewhere(
                headline,
                training.recorded.result,
                measured.scalars.get(headline.name),
                training.elsewhere,
                steps=replayer.taken,
                epochs=training.epochs,
            )
        )
    if not (is_complete and training.exact):
        checks += replay_kept_states(setup, training, cpu_limit - replayer.cpu_seconds)
    return replayer.result(checks, is_complete, measured)


def _measured(replayer: Replayer, initial: RunSetup, recorded: Mapping[str, Scalar] | None) -> Measurements:
    """Measure the replayed weights as the run's final weights are measured."""
    replayer.use_selected()
    setup, members = replayer.setup, diagnostics.CATALOG.built_in()
    conventions = conventions_of_setup(setup, recorded)
    weights = initial.network.state_dict()
    return with_conventions(measure(setup, "", MOMENTS, weights, conventions, members), setup, conventions, members)


def replay_kept_states(setup: RunSetup, training: RecordedTraining, cpu_limit: float) -> Iterator[Check]:
    """Replay the epoch after each kept training state, as many as fit, and yield one check of all replays."""
    problems, replayed, start = [], [], time.process_time()
    for epoch, (state, digest, next_state, next_digest) in training.recorded.kept.items():
        spent = time.process_time() - start
        if replayed and spent * (len(replayed) + 1) / len(replayed) > cpu_limit:
            break
        replayed.append(epoch + 1)
        replayer = Replayer(setup, training, 0)
        problem = replayer.epoch_from(epoch, load_tensors(state, digest), load_tensors(next_state, next_digest))
        problems += [f"replay of epoch {epoch + 1} from the state after epoch {epoch}: {problem}"] if problem else []
    if problems:
        outcome = "differs" if training.exact else "not possible"
        yield Check(KEPT, outcome, "; ".join(problems), epochs=len(replayed))
    elif replayed:
        precision = "bit by bit" if training.exact else f"within {SAME_WAY:g} of the distance from the start"
        text = f"the replay of {epochs_text(sorted(replayed))} from the kept states reproduces the recorded states {precision}"
        yield Check(KEPT, "agrees", text, epochs=len(replayed))
