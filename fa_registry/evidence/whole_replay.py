"""Replay a run's whole training, or as many of its epochs as the reader's budget of CPU time allows.

Where the audit has the run's configuration, the state after every epoch must have the recorded digest. On another configuration,
the replayed weights are judged instead of the recorded ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

from fa_registry import diagnostics
from fa_registry.diagnostics.base import MOMENTS
from fa_registry.evidence.replay import check_elsewhere, epochs_text
from fa_registry.evidence.replayer import SAME_WAY, RecordedTraining, Replayer, ReplayResult, steps_of
from fa_registry.protocol.replay_summary import KEPT
from fa_registry.records import Check, Measurements, Scalar
from fa_registry.training.checkpoint import load_tensors
from fa_registry.training.measuring import measure, with_conventions
from fa_registry.training.probe_context import conventions_of_setup
from fa_registry.training.run_setup import RunSetup


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
