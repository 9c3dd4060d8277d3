"""Compare the epochs of a replayed training with a run's record.

The comparison requires equal bits, so it needs the configuration that trained the run. On another configuration, results are
rounded differently. A replay of several epochs then differs from the record, even if the record is correct. A replay of only one
epoch, from a stored training state, gives nearly the same result on every configuration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fa_registry import diagnostics
from fa_registry.metrics import Headline
from fa_registry.protocol.replay_summary import WHOLE
from fa_registry.records import Check, Measurements, Reading, Scalar
from fa_registry.training.epoch_chain import is_in_chain
from fa_registry.training.measuring import measure
from fa_registry.training.probe_context import conventions_of_setup
from fa_registry.training.trainer import Trainer

UNREPEATABLE = "only a CPU repeats a training bit by bit"


@dataclass(frozen=True)
class RecordedEpochs:
    """A run's record of its epochs.

    Attributes:
        chain: one digest per epoch, starting at epoch 0 (see epoch_chain).
        row_differs: function that compares an epoch's recomputed measurements with the recorded series and returns the difference
            as a text.
        rows: the epochs whose measurements are recomputed. The losses of every epoch are compared.
        kept: mapping from an epoch to the tuple (file of the training state after this epoch, its SHA-256, file of the state one
            epoch later, SHA-256 of that file).
        result: recorded main metric of the run's task after the last epoch, such as the accuracy; None if it is not recorded.
        conventions: the parameters with which the run's metrics were computed, or None for the defaults of the installed version.
        draws: mapping from an epoch (0 is the first) to a random number that chooses a step of this epoch. The credits of a
            third-party method are compared with backpropagation at this step.
    """

    chain: Sequence[str] = ()
    row_differs: Callable[[int, Measurements], str] = lambda epoch, measured: ""
    rows: Collection[int] = ()
    kept: Mapping[int, tuple[Path, str, Path, str]] = field(default_factory=dict)
    result: Reading | None = None
    conventions: Mapping[str, Scalar] | None = None
    draws: Mapping[int, int] = field(default_factory=dict)


class EpochComparison:
    """Comparison of a replay with the record after each epoch, up to the first difference."""

    def __init__(self, recorded: RecordedEpochs, epochs: int):
        """Start the comparison for a run of `epochs` epochs."""
        self._recorded, self._epochs = recorded, epochs
        self._rows: list[int] = []
        self.reached = -1
        self.difference = ""
        if len(recorded.chain) != epochs + 1:
            self.difference = (
                f"expected one recorded digest per state, found {len(recorded.chain)} digests for {epochs + 1} states"
            )

    def compare(self, trainer: Trainer, losses: Mapping[str, Reading] | None = None) -> bool:
        """Compare the last epoch's state and measurements with the record.

        Args:
            trainer: the replayed training after the epoch.
            losses: the epoch's losses, or None before the first epoch.

        Returns:
            False if this epoch or an earlier epoch differs.
        """
        epoch = trainer.epoch
        if epoch > self._epochs:  # the run ended earlier, so nothing is recorded of this epoch
            return not self.difference
        self.reached = epoch
        if not self.difference and self._is_other_state(trainer) and _is_finite(trainer):
            self.difference = f"epoch {epoch} is the first epoch whose state differs from the recorded state"
        if not self.difference and (
            row_difference := self._recorded.row_differs(epoch, self._measured(trainer, losses))
        ):
            self.difference = (
                f"epoch {epoch} is the first epoch whose measurements differ from the recorded values: {row_difference}"
            )
        return not self.difference

    def _is_other_state(self, trainer: Trainer) -> bool:
        return self._recorded.chain[trainer.epoch] != trainer.chain.digests[trainer.epoch]

    def _measured(self, trainer: Trainer, losses: Mapping[str, Reading] | None) -> Measurements:
        """Return this epoch's losses, and all its measurements if the epoch is in `rows`."""
        measured = Measurements({}, {})
        if trainer.epoch in self._recorded.rows:
            conventions = conventions_of_setup(trainer.setup, self._recorded.conventions)
            members, is_due = diagnostics.CATALOG.built_in(), trainer.setup.spec.is_due(trainer.epoch)
            measured = measure(trainer.setup, conventions=conventions, members=members, is_due=is_due)
            self._rows.append(trainer.epoch)
        return dataclasses.replace(measured, scalars={**measured.scalars, **(losses or {})})

    def check(self, steps: int, final: str) -> Check:
        """Return the result of the comparison.

        Args:
            steps: number of replayed steps.
            final: difference between the final files and the state at the end of the replay. It is empty if both agree.
        """
        difference = self.difference or final
        counts = {"steps": steps, "epochs": max(self.reached, 0), "rows": len(self._rows)}
        if difference:
            return Check(WHOLE, "differs", f"replay from the specification: {difference}", **counts)
        part = f"{max(self.reached, 0)} of {self._epochs} epochs were replayed from the specification"
        digests = "every recorded digest of these epochs is reproduced"
        rows = (
            f"measurements were recomputed after {epochs_text(self._rows)}"
            if self._rows
            else "no measurement was recomputed"
        )
        outcome = "not possible" if self.reached < self._epochs else "agrees"
        return Check(WHOLE, outcome, f"{part}; {digests}; {rows}", **counts)


def check_elsewhere(
    headline: Headline, recorded: Reading | None, replayed: Reading | None, configuration_difference: str, **counts: int
) -> Check:
    """Return the check of a whole replay on another configuration, where the replayed weights are judged.

    No digest can agree there, because rounding separates two trainings of one specification. The recorded main metric is therefore
    compared with nothing: the audit judges the metrics of the replay.

    Args:
        headline: the main metric of the run's task.
        recorded: the main metric that the run recorded, or None if the run did not record it, which every run does.
        replayed: the main metric of the replayed weights.
        configuration_difference: text of configurations.described_difference, or an empty string on a GPU.
        counts: the fields `steps` and `epochs` of the check.
    """
    values = [
        "N/A" if reading is None or reading.value is None else f"{reading.value:.4f}"
        for reading in (replayed, recorded)
    ]
    if recorded is None:
        return Check(WHOLE, "differs", f"the run recorded no {headline.symbol}; the replay has {values[0]}", **counts)
    text = (
        f"every step was replayed from the specification, and the replayed weights are judged: {headline.metric.label} "
        f"{values[0]}, recorded {values[1]} ({configuration_difference or UNREPEATABLE})"
    )
    return Check(WHOLE, "agrees", text, **counts)


def continues(chain: Sequence[str], trainer: Trainer) -> bool:
    """Return whether the digest of the trainer's state equals the recorded digest of the epoch."""
    state = {name: tensor.detach().cpu() for name, tensor in trainer.training_state().items()}
    return is_in_chain(chain, trainer.epoch, state)


def epochs_text(epochs: Sequence[int]) -> str:
    """Return sorted epoch numbers as text, such as `epochs 0–4, 9`."""
    spans: list[list[int]] = []
    for epoch in epochs:
        if spans and spans[-1][1] == epoch - 1:
            spans[-1][1] = epoch
        else:
            spans.append([epoch, epoch])
    span_texts = ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in spans)
    return f"epoch{'' if len(epochs) == 1 else 's'} {span_texts}"


def _is_finite(trainer: Trainer) -> bool:
    return all(tensor.isfinite().all() for tensor in trainer.training_state().values() if tensor.is_floating_point())
