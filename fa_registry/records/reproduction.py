"""Records of published values and of their comparison with audited runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fa_registry.field_types import Many, Text
from fa_registry.records.readings import Reading
from fa_registry.records.runs import OF_CREDIT, Recipe, RunSpec, Scalar

ReproductionOutcome = Literal["reproduced", "not shown", "differs", "not comparable", "not measured", "not at hand"]
REPRODUCTION_OUTCOMES = get_args(ReproductionOutcome)


@dataclass(frozen=True)
class Published:
    """Published result of exactly one kind.

    The kinds are: a number; mean, std and n; one value per seed; a range; an upper or a lower bound; the statement that a rule
    never fires.
    """

    value: float | None = None
    """a single number"""
    mean: float | None = None
    """mean over seeds; requires std and n"""
    std: float | None = None
    """standard deviation over seeds, ddof 1"""
    n: int | None = None
    """number of seeds"""
    values: Many[float] = ()
    """one value per seed"""
    low: float | None = None
    """lower end of a range"""
    high: float | None = None
    """upper end of a range"""
    below: float | None = None
    """upper bound of the value, if nothing else was published"""
    above: float | None = None
    """lower bound of the value, if nothing else was published"""
    never: bool = False
    """whether the rule fires on no run according to the publication"""


@dataclass(frozen=True)
class Margin:
    """Largest difference at which a measured and a published value count as equal."""

    size: float
    """size in the unit of the metric, or in decades on scale log10; for `never`, the size is a share of runs; 0 for a bound"""
    scale: Literal["linear", "log10"] = "linear"
    """scale on which the difference is computed"""
    why: str = ""
    """how the margin was chosen before the first run"""


@dataclass(frozen=True)
class ReferenceSetting:
    """Setting of a published run. Options that are not listed have their defaults."""

    architecture: Text
    """the model"""
    dataset: Text
    """the data set"""
    epochs: int
    """number of trained epochs"""
    architecture_options: Mapping[str, Scalar] = field(default_factory=dict)
    """option of the architecture → value"""
    recipe: Mapping[str, Scalar] = field(default_factory=dict)
    """field of the recipe → value"""
    assumed: str = ""
    """assumptions about facts that were not published"""


@dataclass(frozen=True)
class PublishedFigure:
    """Published value with its source, the metric to compare, and the margin."""

    quantity: str
    """the metric"""
    method: str
    """the credit rule"""
    published: Published
    """the published number or numbers"""
    margin: Margin
    """the largest difference that counts as equal"""
    setting: ReferenceSetting | None
    """setting of the published run; null if it is not known"""
    source: str
    """table, figure or page"""
    penalty: float = 0.0
    """strength λ of the residual penalty"""
    control: str = "none"
    """none, or the name of the control"""
    method_options: Mapping[str, Scalar] = field(default_factory=dict)
    """option of the method → value"""
    site: str = ""
    """a number, last or mid (⌊L/2⌋); empty for a metric with one value per run"""
    epoch: int | None = None
    """epoch of the trajectory; null for the end of training"""
    rule: str = ""
    """code of the rule, for a first fire"""
    factor: float = 1.0
    """a measured number is multiplied by this factor before the comparison"""
    remark: str = ""
    """further remark for the reader"""
    not_measured: str = ""
    """why no run of this package can measure the value"""
    not_at_hand: str = ""
    """why the published value could not be looked up; `published` is empty in that case"""

    @property
    def label(self) -> str:
        """Label in the tables of runs, such as `dfa+pen λ=0.01` or `ep (contrast=state)`."""
        given = self.setting.recipe if self.setting else {}
        spec = RunSpec(self.method, "", "", 0, 0, self.method_options, penalty=self.penalty, control=self.control)
        of_credit: dict[str, Any] = {name: given[name] for name in OF_CREDIT if name in given}
        return dataclasses.replace(spec, recipe=Recipe(**of_credit)).label


@dataclass(frozen=True)
class Reference:
    """Published values of a study, from reference.toml and files of other studies.

    The digest covers all these files.
    """

    study: str
    title: str
    digest: str
    figures: Many[PublishedFigure]
    remarks: Many[str] = ()


@dataclass(frozen=True)
class MeasuredFigure:
    """Value of one run that is compared with a published value."""

    seed: int
    """seed of the run"""
    run_id: str
    """id of the run in the tracking store"""
    reading: Reading
    """value of the run"""
    never: bool = False
    """for a first fire: true if every epoch was recorded and the rule never fired, so there is no number"""


@dataclass(frozen=True)
class FigureVerdict:
    """Published value with the outcome of its comparison."""

    figure: PublishedFigure
    """the published value"""
    outcome: ReproductionOutcome
    """outcome of the comparison"""
    reason: str
    """reason for the outcome"""
    measured: Many[MeasuredFigure] = ()
    """one per run of the group with which the published value was compared"""
    setting: str = ""
    """readable name of these runs' setting"""
    mean: Reading = Reading(None, "nothing was measured")
    """mean over these runs, geometric on scale log10"""
    std: Reading = Reading(None, "nothing was measured")
    """standard deviation over these runs, ddof 1"""
    difference: Reading = Reading(None, "not tested")
    """measured − published, in the unit of the published value, or in decades on scale log10"""
    interval_90: tuple[float, float] | None = None
    """90 % interval (low, high) of `difference`; null if nothing was tested"""
    margin: float = 0.0
    """limit below which |`difference`| counts as equal. For a published range, the limit includes half the width of the range.
    For `never`, the limit is a share of runs. 0 if nothing was tested
    """

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(run.run_id for run in self.measured)


@dataclass(frozen=True)
class Reproduction:
    """All published values of a reference with their outcomes, in file order."""

    reference: str
    """the study with the published values"""
    title: str
    """title of the reference"""
    digest: str
    """SHA-256 of the reference.toml"""
    rows: Many[FigureVerdict]
    """one per published value"""
    remarks: Many[str] = ()
    """further remarks for the reader"""
