"""Records of a run: its specification, its measurements and the record for audits."""

from __future__ import annotations

import dataclasses
import re
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from fa_registry import jsonio
from fa_registry.field_types import Converted, Fields, Limits, Many
from fa_registry.records.manifest_checks import CONVENTIONS, BatchSize, Epochs, Feedback, Provenance, Whole
from fa_registry.records.notebook_repr import NotebookRepr
from fa_registry.records.readings import UNCHECKED_GRADIENT, WRONG_GRADIENT, Reading, Reason, SampleScores, Series

Scalar = str | int | float | bool
MOST = {
    int: 1_000_000,
    float: 1e30,
}  # greatest absolute value of an option; float32 ends at 3.4e38, and numbers are multiplied
COUNT = re.compile("[1-9][0-9]{0,5}")  # a whole number of at least 1, as text
# The frozen control with LONGER times the epochs of the runs that are compared with it.
FROZEN_LONG, LONGER = "frozen_long", 2
# The control that trains all blocks by backpropagation, with the local heads of methods such as mono_forward.
DEEP_SUPERVISION = "deep_supervision"
STRUCTURE = "structure"  # the only option of a user-supplied network in a specification: a digest of its weights' names and shapes


@dataclass(frozen=True)
class Recipe:
    """Optimisation settings of a run.

    The defaults are those of the paper arXiv 2606.21126. The JSON form contains the fields of ALWAYS_RECORDED, and another field
    only if it has not its default. So a new field changes no identity of a run that does not use it.
    """

    optimizer: str = "adamw"
    """name of the optimizer"""
    learning_rate: float = 1e-3
    """largest learning rate"""
    weight_decay: float = 0.01
    """decoupled weight decay"""
    schedule: str = "cosine"
    """schedule of the learning rate over epochs"""
    batch_size: BatchSize = 128
    """samples per batch"""
    credit_norm: str = "rms"
    """normalisation of the credit before it is used"""
    clip_credit: float = 0.0
    """largest norm of a sample's credit at a site, in the scale of the summed loss; 0 for no limit"""
    clip_gradient: float = 0.0
    """largest norm of the gradient of all weights of the network together; 0 for no limit. The feedback's gradient is scaled
    by the same number"""
    momentum: float = 0.0
    """momentum of sgd"""
    beta1: float = 0.9
    """decay rate of the first moment of adamw"""
    beta2: float = 0.999
    """decay rate of the second moment of adamw"""
    adam_eps: float = 1e-8
    """ε of adamw, added to the root of the second moment"""
    warmup_epochs: int = 0
    """number W of epochs with a rising learning rate: epoch e < W, from 0, has the rate lr (e+1)/(W+1); then the schedule begins"""
    step_epochs: int = 0
    """number of epochs after which the schedule `step` multiplies the learning rate, each time, counted from the warm-up"""
    step_factor: float = 0.1
    """number by which the schedule `step` multiplies the learning rate"""
    rate_embedding: float = 1.0
    """factor of the learning rate for the embedding"""
    rate_blocks: float = 1.0
    """factor of the learning rate for the blocks and for a feedback that learns by a loss"""
    rate_head: float = 1.0
    """factor of the learning rate for the head and the norm before it"""
    validation: float = 0.0
    """share of the training data that is not trained on, drawn from the seed; its main metric is recorded after each epoch"""
    select: str = "last"
    """epoch whose state is the result of the run: `last`, or `best validation`, the first one with the best main metric on the
    validation samples"""

    def __json__(self) -> dict[str, Scalar]:
        """Return field → value, with the `further` fields only where they differ from their defaults."""
        return {name: getattr(self, name) for name in ALWAYS_RECORDED} | self.further

    @property
    def further(self) -> dict[str, Scalar]:
        """The fields that are not in ALWAYS_RECORDED and differ from their defaults."""
        later = [field for field in dataclasses.fields(self) if field.name not in ALWAYS_RECORDED]
        return {field.name: getattr(self, field.name) for field in later if getattr(self, field.name) != field.default}

    @property
    def of_credit(self) -> dict[str, Scalar]:
        """The fields that apply to a credit and differ from their defaults.

        They belong to the method, not to the setting.
        """
        default = Recipe()
        names = (name for name in OF_CREDIT if getattr(self, name) != getattr(default, name))
        return {name: getattr(self, name) for name in names}

    @property
    def for_controls(self) -> Recipe:
        """The recipe of controls: the fields that apply to a credit have their defaults.

        Backpropagation trains the controls, so it has no such credit.
        """
        return dataclasses.replace(self, **{name: getattr(Recipe(), name) for name in OF_CREDIT})


EVERY = 10  # epochs between two costlier measurements, see RunSpec.is_due
BEST_VALIDATION = "best validation"  # value of Recipe.select
OF_CREDIT = ("credit_norm", "clip_credit")
# Fields that the JSON form of a recipe contains even with their defaults.
ALWAYS_RECORDED = ("optimizer", "learning_rate", "weight_decay", "schedule", "batch_size", "credit_norm")


def validation_count(samples: int, share: float) -> int:
    """Return the number of validation samples, which is the rounded share of the training data.

    It is at least 1 for a share above 0.
    """
    return max(1, round(share * samples)) if share else 0


def pairs(options: Mapping[str, Scalar]) -> str:
    """Return the options as `name=value,name=value`, sorted by name."""
    return ",".join(f"{name}={plain(value)}" for name, value in sorted(options.items()))


def plain(value: Scalar) -> str:
    """Return a value as the user types it, for example `true` instead of `True`."""
    return str(value).lower() if isinstance(value, bool) else f"{value}"


@dataclass(frozen=True)
class RunSpec:
    """Specification of a run: everything that determines its result.

    The digest of the specification is the identity of the run.
    """

    method: str
    """the credit rule"""
    architecture: str
    """the model"""
    dataset: str
    """the data set"""
    seed: Whole
    """seed of the run"""
    epochs: Epochs
    """number of epochs to train"""
    method_options: Mapping[str, Scalar] = field(default_factory=dict)
    """option of the method → value"""
    architecture_options: Mapping[str, Scalar] = field(default_factory=dict)
    """option of the architecture → value"""
    recipe: Recipe = field(default_factory=Recipe)
    """settings of the optimisation"""
    penalty: float = 0.0
    """strength λ of the residual penalty; 0 for none"""
    penalty_embedding: float = 0.0
    """strength λ_0 of the penalty on the embedding's output h_0; 0 for none"""
    control: str = "none"
    """none, or the name of the control"""
    precision: str = "fp32"
    """precision of training"""
    device_class: str = "cpu"
    """cpu or cuda"""
    weights: str = ""
    """SHA-256 of the weights file of an adopted run, which was trained elsewhere; empty for a run trained here"""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without cached values."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @cached_property  # read many times while runs are grouped; all fields are frozen
    def identity(self) -> str:
        """SHA-256 of the specification; equal specifications are the same run.

        A penalty on the embedding of 0 is no part of the digest.
        """
        fields = self.__getstate__()
        if not self.penalty_embedding:
            del fields["penalty_embedding"]
        return jsonio.digest_of(fields)

    @cached_property
    def setting(self) -> RunSpec:
        """Copy of the specification with only the fields that must be equal in comparable runs.

        In the copy, method, method options, penalties, control, seed, weights and the recipe's fields for a credit are empty.
        The epochs are those of the runs of the setting, even if the control trains longer.
        """
        recipe = dataclasses.replace(self.recipe.for_controls, credit_norm="")
        blank = {"method": "", "method_options": {}, "control": "none", "seed": 0, "weights": ""}
        setting = dataclasses.replace(self.unpenalised, recipe=recipe, **blank)
        if self.control == FROZEN_LONG and not self.epochs % LONGER:
            setting = dataclasses.replace(setting, epochs=self.epochs // LONGER)
        return SETTINGS.setdefault(setting.identity, setting)

    @cached_property
    def seeds(self) -> str:
        """Digest that is equal for all runs that differ only in the seed.

        Adopted runs, which another program trained, have another digest than runs that were trained here.
        """
        return sys.intern(dataclasses.replace(self, seed=0, weights="adopted" if self.weights else "").identity)

    def is_due(self, epoch: int) -> bool:
        """Return whether an epoch's costlier measurements are due: the float64 pass, and a gradient's check.

        They are due at every EVERY-th epoch and at the last one. If the recipe selects an epoch, each one may be the last. The
        float64 pass is made at other epochs too where the gradient is below metrics.SMALL_REFERENCE.
        """
        return epoch % EVERY == 0 or epoch == self.epochs or self.recipe.select == BEST_VALIDATION

    @property
    def unpenalised(self) -> RunSpec:
        """Copy of the specification without penalties."""
        return dataclasses.replace(self, penalty=0.0, penalty_embedding=0.0)

    @property
    def is_tracked(self) -> bool:
        """Whether a user-supplied training loop trained the run, so no command trains this run again."""
        return self.architecture_options.keys() == {STRUCTURE}

    @property
    def method_label(self) -> str:
        """Label of the method, such as `dfa+pen λ=0.01, embedding 0.01`, or the name of the control.

        The label of an adopted run, which another program trained, ends with `adopted`. This suffix distinguishes the run from
        runs that were trained here.
        """
        base = self.method if self.control == "none" else self.control
        if self.control.startswith("ladder"):  # the method of the run trains a ladder; bp trains the other controls
            base = f"{self.method} {self.control.replace('_', ' ')}"
        # all digits, because different λ must have different labels: 0.01, 1e-05, 1
        strengths = (("λ=", self.penalty), ("embedding ", self.penalty_embedding))
        penalties = ", ".join(f"{name}{value!r}".removesuffix(".0") for name, value in strengths if value)
        label = f"{base}+pen {penalties}" if penalties else base
        return f"{label} adopted" if self.weights else label

    @cached_property
    def label(self) -> str:
        """Label of the method with its options, such as `dtp (sigma=0.3)`, for tables.

        Different methods of a setting have different labels.
        """
        return self.labelled(self.method_label)

    def labelled(self, name: str) -> str:
        """Return `name` with the options of the method in parentheses, if there are any."""
        return f"{name} ({pairs(self.distinct)})" if self.distinct else name

    @property
    def distinct(self) -> Mapping[str, Scalar]:
        """Options of the method, and the recipe's fields for a credit that differ from the default."""
        return {**self.method_options, **self.recipe.of_credit}


# One object per setting, because ten thousand runs may share ten settings.
SETTINGS: weakref.WeakValueDictionary[str, RunSpec] = weakref.WeakValueDictionary()


@dataclass(frozen=True, repr=False)
class Measurements(NotebookRepr):
    """Measurements on the fixed evaluation batch at one time."""

    sites: Mapping[str, Annotated[Sequence[Reading], Series]]
    """metric → one Reading per site (index = site, 0..L)"""
    scalars: Mapping[str, Reading]
    """metric → Reading"""
    conventions: Annotated[Mapping[str, Scalar], Fields(CONVENTIONS, further=Scalar)] = field(default_factory=dict)
    """how the metrics were measured (eval batch size and digest, vector convention, threads)"""
    failures: Mapping[str, str] = field(default_factory=dict)
    """name of a diagnostic that crashed → its traceback; its metrics are missing"""
    sample_scores: Mapping[str, SampleScores] = field(default_factory=dict)
    """metric → score of every sample after the last epoch, where the metric is the mean of such scores: the main metric on the test
    set, the mean Γ on the evaluation batch"""

    def __repr__(self) -> str:
        return f"Measurements(scalars: {len(self.scalars)}, metrics by site: {len(self.sites)})"


def objection_in(measurements: Measurements) -> Reason | None:
    """Return why the reference gradient is wrong or could not be checked; None without such a reason."""
    readings = (reading for row in measurements.sites.values() for reading in row)
    return next((one.reason for one in readings if one.kind in (WRONG_GRADIENT, UNCHECKED_GRADIENT)), None)


@dataclass(frozen=True)
class SiteSeries:
    """Values of a metric at all sites, for selected epochs."""

    epochs: Many[int]
    """the epochs, in ascending order"""
    sites: Many[Series]
    """one row per site (0..L), with one entry per epoch"""


CheckOutcome = Literal["agrees", "differs", "not possible"]
# Subjects of checks that become findings.
CREDIT_CHECK, NETWORK_CHECK = "another rule than backpropagation", "answers of the network"
TASK_CHECK, TRAINING_CHECK = "built-in task", "training of the network"
REPETITIONS, DATA_CHECK = "repetitions", "data of the data set"
# Names of conventions: the number of classes; the main metric of a model that ignores its inputs; the number of test samples
# that are also training samples; and whether the states form a residual stream.
CLASSES, CHANCE, SHARED_SAMPLES, STREAM = "classes", "chance", "test_samples_in_train", "stream"
BIGRAM = (
    "bigram_loss"  # convention of token runs: entropy of a token given the one before it, nats, in the training text
)
# Values of STREAM: blocks add to a stream; blocks replace the state; or a norm sets the length of the state after each block.
RESIDUAL, REPLACED, NORMALISED = "residual", "replaced", "normalised"


@dataclass(frozen=True)
class Check:
    """Result of one comparison of a run with its recorded files and digests."""

    subject: str
    """subject: "figures", "initial weights", "feedback", "first steps", "final weights", "tables", "code", …"""
    outcome: CheckOutcome
    """whether the run agrees with its recorded files and digests"""
    detail: str = ""
    """description of the result"""
    steps: int = 0
    """number of training steps that were replayed"""
    epochs: int = 0
    """number of whole epochs that were replayed"""
    rows: int = 0
    """number of epochs whose recorded measurements were recomputed, including the initialisation"""
    elsewhere: bool = False
    """whether the check is inconclusive because the audit has another configuration (machine, libraries) than the run"""
    others: Many[str] = ()
    """ids of the runs with which the check compared the run"""


@dataclass(frozen=True)
class FigureDifference:
    """Logged metric that the audit did not reproduce."""

    quantity: str
    """the metric"""
    site: int | None
    """the site, 0..L; null for a metric with one value per run"""
    logged: Reading
    """the value that training logged"""
    recomputed: Reading
    """the value that the audit computed"""


@dataclass(frozen=True)
class Integrity:
    """Result of the recomputation of a run's logged metrics."""

    state: Literal["verified", "trusted", "unverifiable", "mismatch"]
    """verified, mismatch, unverifiable, or trusted (not recomputed)"""
    details: Many[str] = ()
    """the reasons as text, the most important first"""
    checks: Many[Check] = ()
    """other comparisons with the recorded files; if one differs, the state is mismatch"""
    differences: Many[FigureDifference] = ()
    """every metric that was not reproduced"""


@dataclass(frozen=True)
class Conformance:
    """Result of the check whether a run's method matches its plug-in card."""

    state: Literal["own", "passed", "failed", "stated", "unchecked"]
    """own: a built-in method, which this package's tests check; passed: measured by this
    audit; failed: measured by this audit or reported in the run's files; stated: passed according to the run's files,
    but not measurable here; unchecked: not measured
    """
    failures: Many[str] = ()
    """one line per property that fails; the reason if the state is stated or unchecked"""
    architecture: str = ""
    """the architecture on which the method was checked"""
    sign: Literal["tested", "not tested", ""] = ""
    """whether a property that passed determines the sign of the credit; empty if the method was not checked"""


@dataclass(frozen=True, repr=False)
class RunRecord(NotebookRepr):
    """Run as an audit reads it from the store."""

    run_id: str
    """id of the run in the tracking store"""
    name: str
    """readable name of the run; untrusted text"""
    setting: str
    """readable name of the setting; runs of one setting are comparable"""
    status: Literal["complete", "diverged", "failed"]
    """how the training ended"""
    spec: RunSpec
    """the run's specification"""
    measurements: Measurements
    """measurements of the finished run"""
    trajectory: Mapping[str, Series]
    """headline metric (h_L, g_L, growth_max, accuracy, …) → one Reading per epoch (index = epoch, 0 = init)"""
    integrity: Integrity
    """whether the metrics were reproduced"""
    digests: Mapping[str, str] = field(default_factory=dict)
    """artifact path → SHA-256"""
    feedback: Feedback = field(default_factory=dict)
    """distribution, shapes, seed and SHA-256 of the feedback matrices; empty if the method has none"""
    provenance: Provenance = field(default_factory=dict)
    """commit, versions, hardware, digest of the data"""
    by_site: Mapping[str, SiteSeries] = field(default_factory=dict)
    """metric (growth, gamma) → its readings by site at evenly spaced epochs"""
    conformance: Conformance | None = None
    """whether the method matches its card; null if no audit checked this"""
    recorded_result: Reading | None = None
    """main metric of the recorded weights, if `measurements` are those of the audit's own training of the specification (on
    another configuration than that of the recorded training); else null
    """

    def __repr__(self) -> str:
        return f"RunRecord({self.name!r}, {self.status}, {self.run_id})"


@dataclass(frozen=True)
class Option:
    """Option of a method or an architecture, as its card declares it."""

    default: Scalar
    """default value; its type is the type of the option: text, a whole number, a number, true or false"""
    help: str
    """short description"""
    source: str = ""
    """source of the default"""
    least: float | None = None
    """the smallest value allowed"""
    above: float | None = None
    """the value must be larger than this number"""
    below: float | None = None
    """the value must be smaller than this number"""
    choices: Many[Scalar] = ()
    """the allowed values; empty if any value is allowed"""
    or_count: bool = False
    """whether a text of `choices` may be replaced by a whole number of at least 1"""
    needs: str = ""
    """name of an option of the same card that must be true if this option has another value than its default"""
    omit_default: bool = False
    """whether a specification omits the option if it has its default, so that an added option changes no identity"""

    @cached_property
    def kind(self) -> Any:
        """Type of the option's values, with their limits; see `fa_registry.jsonio.parse_fields`."""
        kind = type(self.default)
        most = MOST.get(kind)
        least = -most if most and self.least is None else self.least
        return Annotated[kind, Limits(ge=least, gt=self.above, le=most, lt=self.below), Converted(self._chosen)]

    def _chosen(self, value: Scalar) -> Scalar:
        if self.choices and value not in self.choices and not (self.or_count and COUNT.fullmatch(value)):
            count = ", or a whole number from 1 to 999,999" * self.or_count
            one_of = "one of " * (len(self.choices) > 1 or not self.or_count)
            raise ValueError(f"expected {one_of}{', '.join(map(str, self.choices))}{count}, found {value!r}")
        return value
