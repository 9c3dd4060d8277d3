"""What a run is: its specification, what was measured, and the record the audit reads."""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from fa_registry import jsonio
from fa_registry.disk_spill import SpilledFields
from fa_registry.records import manifest_checks
from fa_registry.records.notebook_repr import NotebookRepr
from fa_registry.records.readings import NOT_CHECKED, NOT_ITS_GRADIENT, Reading, Series

SCHEMA = 2  # 2: several editions a report, series as rows of numbers, failures of diagnostics

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Recipe:
    """How any method is optimised; the defaults are the paper's (settings of arXiv 2606.21126)."""

    optimizer: str = "adamw"
    """by name"""
    learning_rate: float = 1e-3
    """at its largest"""
    weight_decay: float = 0.01
    """decoupled"""
    schedule: str = "cosine"
    """of the learning rate over epochs"""
    batch_size: int = 128
    """samples"""
    credit_norm: str = "rms"
    """how the credit is scaled before it acts"""


def pairs(options: Mapping[str, Scalar]) -> str:
    """`name=value,name=value`, sorted; as an entry point takes them."""
    return ",".join(f"{name}={plain(value)}" for name, value in sorted(options.items()))


def plain(value: Scalar) -> str:
    """A value as a person types it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else f"{value}"


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a run's result. Its digest is the run's identity."""

    method: str
    """the credit rule"""
    architecture: str
    """the model"""
    dataset: str
    """the data set"""
    seed: int
    """of the run"""
    epochs: int
    """to train"""
    method_options: Mapping[str, Scalar] = field(default_factory=dict)
    """option of the method → value"""
    architecture_options: Mapping[str, Scalar] = field(default_factory=dict)
    """option of the architecture → value"""
    recipe: Recipe = field(default_factory=Recipe)
    """how it is optimised"""
    penalty: float = 0.0
    """strength λ of the residual penalty; 0 for none"""
    control: str = "none"
    """none, or which control this run is"""
    precision: str = "fp32"
    """of training"""
    device_class: str = "cpu"
    """cpu or cuda"""
    weights: str = ""
    """SHA-256 of the weights file of a run that was trained elsewhere and adopted; empty for one trained here"""

    def __getstate__(self) -> dict[str, Any]:
        """Without what was worked out from it: another process shares its own."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @cached_property  # asked for again and again while many runs are grouped; nothing it depends on can change
    def identity(self) -> str:
        """SHA-256 of the canonical JSON: equal specs are the same run."""
        return jsonio.digest_of(self)

    @cached_property
    def setting(self) -> RunSpec:
        """This spec with method, penalty, control and seed blanked: runs of one setting are comparable."""
        recipe = dataclasses.replace(self.recipe, credit_norm="")
        setting = dataclasses.replace(
            self, method="", method_options={}, penalty=0.0, control="none", seed=0, recipe=recipe, weights=""
        )
        return SETTINGS.setdefault(setting.identity, setting)

    @cached_property
    def seeds(self) -> str:
        """What the seeds of one method in one setting share. An adopted run is no seed of the runs that were trained here."""
        return sys.intern(dataclasses.replace(self, seed=0, weights="adopted" if self.weights else "").identity)

    @property
    def method_label(self) -> str:
        """`dfa`, `dfa+pen λ=0.01`, `dfa ladder 2`, `dfa adopted` (not a seed of the runs trained here), or the control's name."""
        base = self.method if self.control == "none" else self.control
        if self.control.startswith("ladder"):  # a ladder is one of its method; the other controls are bp's
            base = f"{self.method} {self.control.replace('_', ' ')}"
        # every digit that tells it from another λ: 0.01, 1e-05, 1
        strength = f"{self.penalty!r}".removesuffix(".0")
        label = f"{base}+pen λ={strength}" if self.penalty else base
        return f"{label} adopted" if self.weights else label

    @cached_property
    def label(self) -> str:
        """What every table calls it: `dfa`, `dtp (sigma=0.3)`, `dfa (credit_norm=none)`. Two methods of a setting share none."""
        return self.labelled(self.method_label)

    def labelled(self, name: str) -> str:
        """`name` with what makes it another than the plain method."""
        return f"{name} ({pairs(self.distinct)})" if self.distinct else name

    @property
    def distinct(self) -> Mapping[str, Scalar]:
        """What makes it another than the plain method: its options, and a credit that is not normalised as usual."""
        norm = self.recipe.credit_norm
        return {**self.method_options, **({} if norm == Recipe().credit_norm else {"credit_norm": norm})}


# Of each identity one is in memory: ten thousand runs may share ten.
SETTINGS: weakref.WeakValueDictionary[str, RunSpec] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Measurements:
    """What was measured on the fixed eval batch at one moment."""

    sites: Mapping[str, Annotated[Sequence[Reading], Series]]
    """quantity → one Reading a site (index = site, 0..L)"""
    scalars: Mapping[str, Reading]
    """quantity → Reading"""
    conventions: Mapping[str, Scalar] = field(default_factory=dict)
    """how it was measured (eval batch size and digest, vector convention, threads)"""
    failures: Mapping[str, str] = field(default_factory=dict)
    """name of a diagnostic that crashed → its traceback; what it measures is absent then"""


def objection_in(measurements: Measurements) -> str:
    """Return why the reference gradient of these measurements is refuted; empty if it is not, or was not checked."""
    reasons = (reading.reason for row in measurements.sites.values() for reading in row if reading.value is None)
    return next((reason for reason in reasons if reason.startswith((NOT_ITS_GRADIENT, NOT_CHECKED))), "")


@dataclass(frozen=True)
class SiteSeries:
    """A site quantity at some epochs."""

    epochs: tuple[int, ...]
    """which, rising"""
    sites: tuple[Series, ...]
    """one row a site (0..L), its entries at those epochs"""


CheckOutcome = Literal["agrees", "differs", "not possible"]
CHECK_OUTCOMES = get_args(CheckOutcome)
# Subjects of checks that the protocol turns into findings, and the convention that counts test samples of the training set.
CREDIT_CHECK, NETWORK_CHECK = "another rule than backpropagation", "answers of the network"
CLASSES = "classes"  # the convention that records how many classes a data set has
SHARED_SAMPLES = "test_samples_in_train"


@dataclass(frozen=True)
class Check:
    """One thing an audit held against what is sealed with a run."""

    subject: str
    """what was looked at: "figures", "initial weights", "feedback", "first steps", "final weights", "tables", "code", …"""
    outcome: CheckOutcome
    """whether it is what is sealed"""
    detail: str = ""
    """what was found, in words"""
    sealed: bool = True
    """whether the run sealed what its release, or its author, should have left to be held against"""
    steps: int = 0
    """training steps that were replayed for it"""
    epochs: int = 0
    """whole epochs that were replayed for it"""
    rows: int = 0
    """epochs whose recorded measurements were recomputed, the initialisation included"""
    elsewhere: bool = False
    """whether another configuration than the run's kept it from a conclusion"""


@dataclass(frozen=True)
class FigureDifference:
    """A logged figure that did not come out again."""

    quantity: str
    """which figure"""
    site: int | None
    """where, 0..L; null for a figure that a run has one of"""
    logged: Reading
    """by training"""
    recomputed: Reading
    """by the audit"""


@dataclass(frozen=True)
class Integrity:
    """Whether a run's logged figures stand: verified, mismatch, unverifiable, or trusted (not recomputed)."""

    state: Literal["verified", "trusted", "unverifiable", "mismatch"]
    """verified, mismatch, unverifiable, or trusted (not recomputed)"""
    details: tuple[str, ...] = ()
    """the same in words, for people, of which the first few are enough"""
    checks: tuple[Check, ...] = ()
    """what else was held against the sealed files; one that differs makes the state a mismatch. None in older reports"""
    differences: tuple[FigureDifference, ...] = ()
    """every figure that did not come out again; none in reports of older releases, which held the words alone"""


CONFORMANCE_STATES = ("own", "passed", "failed", "stated", "unchecked")


@dataclass(frozen=True)
class Conformance:
    """Whether a run's method is what its card says."""

    state: str
    """one of CONFORMANCE_STATES; own: a method of this package, which its own tests hold; passed, failed: as the audit itself
    has measured, or a failure that the run's files admit; stated: passed by what those files say, and could not be measured
    here; unchecked: nobody measured it
    """
    failures: tuple[str, ...] = ()
    """a line a property that fails; of one stated or unchecked why"""
    architecture: str = ""
    """on which it was checked"""


@dataclass(frozen=True)
class RunRecord(NotebookRepr, SpilledFields):
    """One run as the audit sees it."""

    SPILLED_FIELDS = ("measurements", "trajectory", "integrity", "digests", "feedback", "provenance", "by_site")

    run_id: str
    """id of the run in the tracking store"""
    name: str
    """of the run, as people read it; untrusted text"""
    setting: str
    """readable name of what it is compared within"""
    status: Literal["complete", "diverged", "failed"]
    """how its training ended"""
    spec: RunSpec
    """what was asked for"""
    measurements: Measurements
    """of the finished run"""
    trajectory: Mapping[str, Series]
    """headline quantity (h_L, g_L, growth_max, accuracy, …) → one Reading an epoch (index = epoch, 0 = init)"""
    integrity: Integrity
    """whether its figures stand"""
    digests: Mapping[str, str] = field(default_factory=dict)
    """artifact path → SHA-256"""
    feedback: Mapping[str, Any] = field(default_factory=dict)
    """distribution, shapes, seed and SHA-256 of the feedback matrices; empty where there are none"""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """commit, versions, hardware, digest of the data"""
    by_site: Mapping[str, SiteSeries] = field(default_factory=dict)
    """site quantity (growth, gamma) → its readings site by site, at evenly spread epochs; empty in older audits"""
    conformance: Conformance | None = None
    """of its method; None where no audit looked, and in older ones"""

    def __post_init__(self):
        manifest_checks.check("provenance", manifest_checks.PROVENANCE, self.provenance)
        manifest_checks.check("feedback", manifest_checks.FEEDBACK, self.feedback)


@dataclass(frozen=True)
class Option:
    """An option of a method or an architecture, as its card declares it."""

    default: Scalar
    """what it is where nobody says; its type is the option's: text, a whole number, a number, true or false"""
    help: str
    """what it is, in a few words"""
    source: str = ""
    """where the default comes from"""
    least: float | None = None
    """the smallest value allowed"""
    above: float | None = None
    """a value that it must be larger than"""
    choices: tuple[str, ...] = ()
    """the words allowed, empty for any"""

    def refusal(self, value: Scalar) -> str:
        """What is wrong with a value of the right type; empty where nothing is."""
        if self.choices and value not in self.choices:
            return f"expected one of {', '.join(self.choices)}, found {value!r}"
        if self.least is not None and value < self.least:
            return f"expected at least {self.least:g}, found {value:g}"
        if self.above is not None and value <= self.above:
            return f"expected more than {self.above:g}, found {value:g}"
        return ""
