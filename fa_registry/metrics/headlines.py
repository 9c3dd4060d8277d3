"""The headline of a task: its main metric, and the metrics that compare a run with its frozen control.

A run records the main metric of its task as a scalar metric. If the task declares its own headline, the run also records this
declaration as conventions. Therefore the record of a run shows the headline of its task, even where the task is not installed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Literal

from fa_registry import jsonio
from fa_registry.errors import PluginError
from fa_registry.field_types import Checked, Limits
from fa_registry.metrics.base import Metric
from fa_registry.metrics.declarations import DECLARED
from fa_registry.records import CHANCE, Measurements, RunRecord, Scalar
from fa_registry.text_safety import escape_to_one_line

OWN = "headline"  # convention of a run: name of the headline that its task declares; prefix of the declaration's other fields
MOST_TEXT = 120  # characters of a text in a declaration
Line = Annotated[str, Limits(f"1 to {MOST_TEXT} characters", min_length=1, max_length=MOST_TEXT)]


@dataclass(frozen=True)
class Headline:
    """A task's main metric and the metrics derived from it.

    Attributes:
        metric: the main metric, for example accuracy.
        frozen_metric: the main metric of the frozen control.
        margin_metric: the difference between a run and its frozen control. A positive difference means that the run is better.
        scale: margin per unit of the main metric, for example 100 percentage points per unit of accuracy.
        unit: unit of the margin, as text.
        digits: decimals of a margin in sentences.
        step: smallest difference between stated values, in the unit of the margin. Two values count as equal if they are rounded
            to the same multiple of the step. If `step` is 0, the smallest difference is the effect of one test sample on the
            margin.
        axis: description of the metric for the text of a figure.
        axis_label: label of a figure's axis.
        samples: word for the samples of the task.
        work: what a network does for this task, for example `classifies images`.
    """

    metric: Metric
    frozen_metric: Metric
    margin_metric: Metric
    scale: float
    unit: str
    digits: int
    step: float
    axis: str
    axis_label: str
    samples: str = "samples"
    work: str = "computes its outputs from its inputs"

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def name(self) -> str:
        """The name of the main metric."""
        return self.metric.name

    @property
    def frozen(self) -> str:
        """The name of the frozen control's main metric."""
        return self.frozen_metric.name

    @property
    def margin(self) -> str:
        """The name of the margin."""
        return self.margin_metric.name

    @property
    def metrics(self) -> tuple[Metric, Metric, Metric]:
        """The main metric, that of the frozen control, and the margin."""
        return self.metric, self.frozen_metric, self.margin_metric

    @property
    def is_share(self) -> bool:
        """Whether the main metric is a share of the test samples, as an accuracy is."""
        return not self.step

    @property
    def symbol(self) -> str:
        """The symbol of the main metric in sentences."""
        return self.metric.symbol

    @property
    def kind(self) -> str:
        """The number format of the main metric."""
        return self.metric.kind

    @property
    def margin_kind(self) -> str:
        """The number format of the margin."""
        return self.margin_metric.kind

    @property
    def sign(self) -> int:
        """1 if a higher value is better, −1 if a lower value is better."""
        return -1 if self.metric.direction == "lower" else 1

    @property
    def beats(self) -> str:
        """Word that states that a value is better than another value: "exceed" or "fall below"."""
        return "exceed" if self.sign > 0 else "fall below"

    @property
    def better(self) -> str:
        """The main metric of a better network, as text: "more accuracy" or "a smaller loss per token"."""
        return f"more {self.symbol}" if self.sign > 0 else f"a smaller {self.symbol}"

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
        return conventions.get(CHANCE)

    def exceeds(self, value: float, reference: float) -> bool:
        """Return whether `value` is better than `reference`."""
        return self.sign * value > self.sign * reference


@dataclass(frozen=True)
class OwnHeadline(Checked):
    """Fields of a headline that a third-party task declares; see `own_headline`."""

    name: Annotated[str, Limits("letters in lower case, digits and _", pattern="^[a-z][a-z0-9_]{0,79}$")]
    symbol: Line
    description: Line
    unit: Line
    direction: Literal["higher", "lower"]
    digits: Annotated[int, Limits(ge=0, le=9)]
    step: Annotated[float, Limits(ge=0)]

    def field_problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problem of a name that belongs to a built-in metric."""
        for metric in (self.name, f"frozen_{self.name}", f"margin_{self.name}"):  # the metrics of the headline
            if metric in DECLARED or metric.startswith("gamma_"):
                yield "name", f"expected another name than {self.name!r}, because {metric} is for a built-in metric"


@lru_cache(maxsize=64, typed=True)  # each run of an audit declares it
def own_headline(
    name: str, symbol: str, description: str, *, unit: str, direction: str, digits: int = 4, step: float = 0.0
) -> Headline:
    """Declare the headline of a third-party task, whose main metric is a number in any unit.

    Args:
        name: name of the main metric, in lower case.
        symbol: the metric in sentences, for example `mean error`.
        description: short description.
        unit: unit of the metric and of its margin.
        direction: whether a `higher` or a `lower` value is better.
        digits: decimals of a margin in sentences.
        step: smallest difference between stated values. If it is 0, `digits` determines it.

    Raises:
        PluginError: a field has a wrong value.
    """
    fields = {"name": name, "symbol": symbol, "description": description, "unit": unit}
    fields |= {"direction": direction, "digits": digits, "step": step}
    if problems := jsonio.try_decode(OwnHeadline, fields)[1]:
        raise PluginError(f"headline {name!r}: {'; '.join(problems)}")
    of_control = {"unit": unit, "always": True, "where": "run", "about": name, "compared_with_control": True}
    head = symbol[:1].upper() + symbol[1:]
    return Headline(
        Metric(
            name, symbol, description, always=True, unit=unit, where="epoch", about=name, head=head, direction=direction
        ),
        Metric(
            f"frozen_{name}",
            "frozen",
            f"{symbol} of the frozen controls with the same seeds",
            head="Frozen",
            alone=f"frozen {symbol}",
            **of_control,
        ),
        Metric(
            f"margin_{name}",
            "margin",
            f"how much better the {symbol} is than that of the frozen control of the same seed",
            head="Margin",
            alone="margin over frozen",
            direction="higher",
            **of_control,
        ),
        scale=1.0,
        unit=unit,
        digits=digits,
        step=step or 10.0**-digits,
        axis=description,
        axis_label=f"{symbol}, {unit}",
    )


def declaration(headline: Headline) -> dict[str, Scalar]:
    """Return a task's own headline as conventions of a run; empty for a built-in headline."""
    if headline.name in HEADLINES:
        return {}
    fields: dict[str, Scalar] = {
        "symbol": headline.symbol,
        "description": headline.metric.words,
        "unit": headline.unit,
        "direction": headline.metric.direction,
        "digits": headline.digits,
        "step": headline.step,
    }
    return {OWN: headline.name, **{f"{OWN}_{name}": value for name, value in fields.items()}}


def declared_fields(conventions: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the conventions with which a run declares its own headline; empty for a built-in headline."""
    return {name: value for name, value in conventions.items() if name == OWN or name.startswith(f"{OWN}_")}


def declared_headline(conventions: Mapping[str, Scalar]) -> Headline | None:
    """Return the headline that a run's conventions declare, or None without a valid declaration.

    The conventions may come from a store of another user, so every text is shortened to one visible line.
    """
    if OWN not in conventions:
        return None
    fields = {
        name.removeprefix(f"{OWN}_"): escape_to_one_line(value)[:MOST_TEXT] if isinstance(value, str) else value
        for name, value in declared_fields(conventions).items()
    }
    fields["name"] = fields.pop(OWN)
    declared, _ = jsonio.try_decode(OwnHeadline, fields)
    return own_headline(**vars(declared)) if declared else None


def _built_in(
    name: str, frozen: str, margin: str, scale: float, unit: str, digits: int, step: float, *texts: str
) -> Headline:
    return Headline(DECLARED[name], DECLARED[frozen], DECLARED[margin], scale, unit, digits, step, *texts)


ACCURACY = _built_in(
    *("accuracy", "frozen_accuracy", "margin_pp", 100.0, "pp", 2, 0.0),
    *("share of the test set classified correctly", "accuracy, whole test set", "images", "classifies images"),
)
# the step is the threshold of D3 in 2026-12:token
TOKEN_LOSS = _built_in(
    *("token_loss", "frozen_token_loss", "margin_nats", 1.0, "nats", 4, 0.05),
    *("cross entropy per token of the test set", "test loss per token, nats"),
    *("sequences", "predicts a token from earlier tokens only"),
)
HEADLINES: Mapping[str, Headline] = MappingProxyType({item.name: item for item in (ACCURACY, TOKEN_LOSS)})
MARGINS: Mapping[str, Headline] = MappingProxyType({item.margin: item for item in HEADLINES.values()})
DEFAULT = ACCURACY  # headline of a run that recorded no main metric; pages then show why the value is missing
MARGIN_LABEL, MARGIN_SYMBOL = DEFAULT.margin_metric.label, DEFAULT.margin_metric.symbol  # the same for all headlines


def logged_headline(scalars: Collection[str], conventions: Mapping[str, Scalar] = MappingProxyType({})) -> Headline:
    """Return the headline that conventions declare, or the built-in one among `scalars`."""
    built_in = (item for item in HEADLINES.values() if item.name in scalars)
    return declared_headline(conventions) or next(built_in, DEFAULT)


def headline_of(measurements: Measurements) -> Headline:
    """Return the headline of a run's task, even if its main metric is N/A; the default is DEFAULT."""
    return logged_headline(measurements.scalars, measurements.conventions)


def headlines_of(records: Iterable[RunRecord]) -> tuple[Headline, ...]:
    """Return the headlines of several runs in order, without repeats, or DEFAULT if there are no runs."""
    return tuple(dict.fromkeys(headline_of(record.measurements) for record in records)) or (DEFAULT,)
