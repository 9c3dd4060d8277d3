"""What was published of a run, and what an audit found beside it: one row for every published figure, whatever the outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from fa_registry.records.readings import Reading
from fa_registry.records.runs import Recipe, RunSpec, Scalar

ReproductionOutcome = Literal["reproduced", "not shown", "differs", "not comparable", "not measured", "not at hand"]
REPRODUCTION_OUTCOMES = get_args(ReproductionOutcome)


@dataclass(frozen=True)
class Published:
    """A published figure in the one form it was published in, exactly one of which is given."""

    value: float | None = None
    """a single number"""
    mean: float | None = None
    """over seeds, with std and n"""
    std: float | None = None
    """over seeds, ddof 1"""
    n: int | None = None
    """number of seeds"""
    values: tuple[float, ...] = ()
    """one a seed"""
    low: float | None = None
    """where a range begins"""
    high: float | None = None
    """where it ends"""
    below: float | None = None
    """an upper bound alone"""
    above: float | None = None
    """a lower bound alone"""
    never: bool = False
    """a rule fires on no run"""


@dataclass(frozen=True)
class Margin:
    """How far a difference may go and still count as the same."""

    size: float
    """in the unit of the figure, in decades on scale log10, as a rate for a rule that never fires; 0 for a bound"""
    scale: Literal["linear", "log10"] = "linear"
    """of the difference and its size"""
    why: str = ""
    """how that was chosen, before any run"""


@dataclass(frozen=True)
class ReferenceSetting:
    """What a published run was: an option or recipe field that is not named had its default."""

    architecture: str
    """the model"""
    dataset: str
    """the data set"""
    epochs: int
    """trained"""
    architecture_options: Mapping[str, Scalar] = field(default_factory=dict)
    """option of the architecture → value"""
    recipe: Mapping[str, Scalar] = field(default_factory=dict)
    """field of the recipe → value"""
    assumed: str = ""
    """what nobody published"""


@dataclass(frozen=True)
class PublishedFigure:
    """One published number with where it stands, what it is compared with, and by which margin."""

    quantity: str
    """which figure"""
    method: str
    """the credit rule"""
    published: Published
    """the number or numbers"""
    margin: Margin
    """how far a difference may go"""
    setting: ReferenceSetting | None
    """of the published run; null where it is not known"""
    source: str
    """table, figure or page"""
    penalty: float = 0.0
    """strength λ of the residual penalty"""
    control: str = "none"
    """none, or which control it was"""
    method_options: Mapping[str, Scalar] = field(default_factory=dict)
    """option of the method → value"""
    site: str = ""
    """a number, last, mid (⌊L/2⌋), deep (mean over 1..L), or nothing for what a run has one of"""
    epoch: int | None = None
    """of the trajectory, nothing for the end"""
    rule: str = ""
    """of a first fire"""
    factor: float = 1.0
    """what a measured number is multiplied by first"""
    remark: str = ""
    """what a reader must know besides"""
    not_measured: str = ""
    """why no run here can yield it"""
    not_at_hand: str = ""
    """why the published value could not be looked up; `published` is empty then"""

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
class MeasuredFigure:
    """One run's figure beside the published one."""

    seed: int
    """of the run"""
    run_id: str
    """id of the run in the tracking store"""
    reading: Reading
    """its figure"""
    never: bool = False
    """of a first fire, whether every epoch was followed and none fired; there is no number then. Reports of older releases say
    so in the reading's reason alone
    """


@dataclass(frozen=True)
class FigureVerdict:
    """A published figure and what became of it."""

    figure: PublishedFigure
    """what was published"""
    outcome: ReproductionOutcome
    """what became of it"""
    reason: str
    """why, in words"""
    measured: tuple[MeasuredFigure, ...] = ()
    """one a run of the group it was compared with"""
    setting: str = ""
    """of the runs it was compared with, in words"""
    mean: Reading = Reading(None, "nothing was measured")
    """over them, geometric on scale log10"""
    std: Reading = Reading(None, "nothing was measured")
    """over them, ddof 1"""
    difference: Reading = Reading(None, "not tested")
    """measured − published, in the unit of the test: decades on scale log10"""
    interval_90: tuple[float, float] | None = None
    """of the difference (low, high), in the unit of the test; null where nothing was tested"""
    margin: float = 0.0
    """in the unit of the test, half of a published range included; 0 where nothing was tested"""

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(run.run_id for run in self.measured)


@dataclass(frozen=True)
class Reproduction:
    """Every figure of a reference with its outcome, in the order of the file."""

    reference: str
    """the study whose published figures these are"""
    title: str
    """of the reference, in words"""
    digest: str
    """SHA-256 of the reference.toml"""
    rows: tuple[FigureVerdict, ...]
    """one a published figure"""
    remarks: tuple[str, ...] = ()
    """what a reader must know besides"""
