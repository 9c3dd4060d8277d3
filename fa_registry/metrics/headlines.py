"""The headline of a task: its main metric, and the metrics that compare a run with its frozen control.

A run records the main metric of its task as a scalar metric. Therefore the record of a run shows the headline of its task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fa_registry.jsonio import is_finite
from fa_registry.metrics.base import HEADLINE_GAMMA
from fa_registry.metrics.declarations import DECLARED
from fa_registry.records import CHANCE, Reading, RunRecord, Scalar


@dataclass(frozen=True)
class Headline:
    """The names of a task's main metric and of the metrics derived from it.

    Attributes:
        name: the main metric, for example accuracy.
        frozen: the main metric of the frozen control.
        margin: the difference between a run and its frozen control. A positive difference means that the run is better.
        scale: margin per unit of the main metric, for example 100 percentage points per unit of accuracy.
        unit: unit of the margin, as text.
        digits: decimals of a margin in sentences.
        step: smallest difference between stated values, in the unit of the margin. Two values count as equal if they are rounded
            to the same multiple of the step. If `step` is 0, the smallest difference is the effect of one test sample on the
            margin.
    """

    name: str
    frozen: str
    margin: str
    scale: float
    unit: str
    digits: int
    step: float = 0.0

    @property
    def symbol(self) -> str:
        """The symbol of the main metric in sentences."""
        return DECLARED[self.name].symbol

    @property
    def kind(self) -> str:
        """The number format of the main metric."""
        return DECLARED[self.name].kind

    @property
    def margin_kind(self) -> str:
        """The number format of the margin."""
        return DECLARED[self.margin].kind

    @property
    def sign(self) -> int:
        """1 if a higher value is better, −1 if a lower value is better."""
        return -1 if DECLARED[self.name].direction == "lower" else 1

    @property
    def beats(self) -> str:
        """Word that states that a value is better than another value: "exceed" or "fall below"."""
        return "exceed" if self.sign > 0 else "fall below"

    def resolution(self, samples: int) -> float:
        """Return the smallest difference of two values, in the unit of the margin; 0 means unknown.

        One test sample changes an accuracy by 1 / `samples`. A loss has no such natural step, so the attribute `step` is returned
        for a loss.
        """
        return self.step or (self.scale / samples if samples else 0.0)

    def half_sample(self, samples: int) -> float:
        """Return half of the effect of one test sample on the margin; 0 for a loss.

        Both accuracies of a margin count the same test samples. Therefore, a margin is a whole number of samples and is known to
        half a sample.
        """
        return 0.0 if self.step or not samples else self.scale / (2 * samples)

    def signed(self, margin: float) -> str:
        """Return a margin as text, with its sign and with `digits` decimals."""
        return f"{margin:+.{self.digits}f}"

    def difference(self, value: float, reference: float) -> float:
        """Return the margin of `value` over `reference`, rounded to 1e-9 of its unit.

        Without rounding, .82 − .80 would be 1.9999999999999996 percentage points, and a run exactly at the limit would fail.
        tests/protocol/test_rule_evaluation.py checks a run at exactly this limit.
        """
        return round(self.sign * (value - reference) * self.scale, 9)

    def chance(self, conventions: Mapping[str, Scalar]) -> float | None:
        """Return the best value that a model without inputs reaches, or None if the run did not record it.

        The task of the run computes this value, see `Task.chance`.
        """
        chance = conventions.get(CHANCE)
        return float(chance) if is_finite(chance) else None

    def exceeds(self, value: float, reference: float) -> bool:
        """Return whether `value` is better than `reference`."""
        return self.sign * value > self.sign * reference


ACCURACY = Headline("accuracy", "frozen_accuracy", "margin_pp", 100.0, "pp", 2)
# the step is the threshold of D3 in 2026-12:token
TOKEN_LOSS = Headline("token_loss", "frozen_token_loss", "margin_nats", 1.0, "nats", 4, step=0.05)
HEADLINES: Mapping[str, Headline] = MappingProxyType({item.name: item for item in (ACCURACY, TOKEN_LOSS)})
MARGINS: Mapping[str, Headline] = MappingProxyType({item.margin: item for item in HEADLINES.values()})
WITH_DEVIATION = (*HEADLINES, HEADLINE_GAMMA)  # the audit table has space only for these deviations
# Frozen controls lack these metrics, because a control is not compared with itself.
COMPARED_WITH_CONTROL = tuple(name for item in HEADLINES.values() for name in (item.frozen, item.margin))


def headline_of(scalars: Mapping[str, Reading]) -> Headline:
    """Return the headline whose main metric a run recorded, even as N/A; the default is ACCURACY."""
    return next((item for item in HEADLINES.values() if item.name in scalars), ACCURACY)


def headlines_of(records: Iterable[RunRecord]) -> tuple[Headline, ...]:
    """Return the headlines of several runs in order, without repeats, or ACCURACY if there are no runs."""
    return tuple(dict.fromkeys(headline_of(record.measurements.scalars) for record in records)) or (ACCURACY,)
