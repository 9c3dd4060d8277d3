"""What was published of a run, and what an audit found beside it: one row for every published figure, whatever the outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from fa_registry.records.readings import Reading
from fa_registry.records.runs import Recipe, RunSpec, Scalar

REPRODUCTION_OUTCOMES = ("reproduced", "not shown", "differs", "not comparable", "not measured")


@dataclass(frozen=True)
class Published:
    """A published figure in the one form it was published in, exactly one of which is given.

    value: a single number; mean with std (ddof 1) and n; values: one a seed; low and high: the ends of a range;
    below, above: a bound alone; never: a rule fires on no run.
    """

    value: float | None = None
    mean: float | None = None
    std: float | None = None
    n: int | None = None
    values: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    below: float | None = None
    above: float | None = None
    never: bool = False


@dataclass(frozen=True)
class Margin:
    """How far a difference may go and still count as the same; why: how that was chosen, before any run.

    size: in the unit of the figure, in decades on scale log10, as a rate for a rule that never fires; 0 for a bound.
    """

    size: float
    scale: str = "linear"
    why: str = ""


@dataclass(frozen=True)
class ReferenceSetting:
    """What a published run was: an option or recipe field that is not named had its default. assumed: what nobody published."""

    architecture: str
    dataset: str
    epochs: int
    architecture_options: Mapping[str, Scalar] = field(default_factory=dict)
    recipe: Mapping[str, Scalar] = field(default_factory=dict)
    assumed: str = ""


@dataclass(frozen=True)
class PublishedFigure:
    """One published number with where it stands, what it is compared with, and by which margin.

    site: a number, last, mid (⌊L/2⌋), deep (mean over 1..L), or nothing for what a run has one of. epoch: of the
    trajectory, nothing for the end. rule: of a first fire. factor: what a measured number is multiplied by first.
    not_measured: why no run here can yield it.
    """

    quantity: str
    method: str
    published: Published
    margin: Margin
    setting: ReferenceSetting | None
    source: str
    penalty: float = 0.0
    control: str = "none"
    method_options: Mapping[str, Scalar] = field(default_factory=dict)
    site: str = ""
    epoch: int | None = None
    rule: str = ""
    factor: float = 1.0
    remark: str = ""
    not_measured: str = ""

    @property
    def label(self) -> str:
        """As the tables of runs call it, with the options that were said: `dfa+pen λ=0.01`, `ep (contrast=state)`, `frozen`."""
        norm = self.setting.recipe.get("credit_norm", Recipe.credit_norm) if self.setting else Recipe.credit_norm
        spec = RunSpec(self.method, "", "", 0, 0, self.method_options, penalty=self.penalty, control=self.control)
        return dataclasses.replace(spec, recipe=Recipe(credit_norm=str(norm))).label


@dataclass(frozen=True)
class Reference:
    """A study's reference.toml, with what it takes over from other studies. digest: SHA-256 of the file's bytes."""

    study: str
    title: str
    digest: str
    figures: tuple[PublishedFigure, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One run's figure beside the published one.

    never: of a first fire, whether every epoch was followed and none fired; there is no number then. Reports of older releases
    say so in the reading's reason alone.
    """

    seed: int
    run_id: str
    reading: Reading
    never: bool = False


@dataclass(frozen=True)
class FigureVerdict:
    """A published figure and what became of it. outcome: one of REPRODUCTION_OUTCOMES; reason: why, in words.

    measured: one a run of the group it was compared with. mean: over them, geometric on scale log10; std: ddof 1.
    difference, interval_90 (low, high) and margin: in the unit of the test, decades on scale log10. margin includes half
    of a published range. N/A, none and 0 where nothing was tested.
    """

    figure: PublishedFigure
    outcome: str
    reason: str
    measured: tuple[Measured, ...] = ()
    setting: str = ""
    mean: Reading = Reading(None, "nothing was measured")
    std: Reading = Reading(None, "nothing was measured")
    difference: Reading = Reading(None, "not tested")
    interval_90: tuple[float, float] | None = None
    margin: float = 0.0

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(run.run_id for run in self.measured)


@dataclass(frozen=True)
class Reproduction:
    """Every figure of a reference with its outcome, in the order of the file."""

    reference: str
    title: str
    digest: str
    rows: tuple[FigureVerdict, ...]
    remarks: tuple[str, ...] = ()
