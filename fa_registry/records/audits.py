"""Records of an audit: findings, verdicts and the report that contains them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fa_registry.field_types import Many
from fa_registry.records.notebook_repr import NotebookRepr
from fa_registry.records.readings import Reading
from fa_registry.records.reproduction import Reproduction
from fa_registry.records.runs import CheckOutcome, Integrity, RunRecord, RunSpec, Scalar
from fa_registry.schema_number import SCHEMA

Outcome = Literal["pass", "warn", "fail", "error", "not_applicable", "skipped", "waived"]
OUTCOMES = get_args(Outcome)
# How far replays prove the trainings behind a verdict, weakest first; see protocol.replay_summary.
ProofLevel = Literal["stated", "started", "replayed"]
PROOF_LEVELS = get_args(ProofLevel)
# Causes that leave a comparison with the frozen controls undecided. The first six are missing evidence, in the order in which a
# form names them; the last two are intervals that contain their limit.
UndecidedCause = Literal[
    "too few seeds",
    "seeds left out",
    "control unproven",
    "control at chance",
    "control below shallow",
    "depends on the length of training",
    "test set unknown",
    "outlier",
    "margin at the limit",
    "several methods",
    "replay on the other side",
    "accuracy at chance",
]
Side = Literal["above", "below"]  # of a limit
Inapplicable = Literal["no residual stream"]  # why a rule does not apply to a run; nothing is missing then


@dataclass(frozen=True)
class FurtherLimit:
    """Limit of an additional condition of a rule."""

    quantity: str
    """the metric that is compared"""
    threshold: float
    """the limit"""


@dataclass(frozen=True)
class GuardReading:
    """Observed value of a guard that fired.

    A guard is a condition that a rule checks first. If the guard fires, the finding is a warning.
    """

    quantity: str
    """the guard's metric"""
    crossed: str
    """how the observed value crossed the limit, as an operator of the editions (above, below, …)"""
    observed: Reading
    """the observed value"""
    site: int | None = None
    """the site, 0..L; null if the metric is not measured by site"""
    mean: float | None = None
    """mean of the metric over the sites that count; null if `observed` is not a share of this mean"""


@dataclass(frozen=True)
class ControlMargin:
    """Margin over another control than the frozen control, in the unit of the finding's metric."""

    mean: float
    """the mean margin over seeds"""
    interval: tuple[float, float] | None
    """interval (low, high) of the mean, at the level of the finding's interval; null for one seed"""
    seeds: Many[int]
    """the seeds that have this control"""


@dataclass(frozen=True, repr=False)
class Finding:
    """Result of one rule for one run, with the limit that was applied."""

    rule: str
    """code of the rule"""
    title: str
    """title of the rule"""
    outcome: Outcome
    """pass (the run clears the rule); warn (noisy or undecided); fail (the rule fires); error (the rule
    crashed); not_applicable (a metric is missing, or the rule does not apply: see `inapplicable`); skipped (the edition
    allows this); waived
    """
    quantity: str
    """the metric that the rule judges"""
    observed: Reading
    """the observed value; for an estimate over several seeds, `interval` and `seeds` describe the estimate"""
    required: str
    """the limit as text, with its unit"""
    sentence: str
    """required and observed in one sentence"""
    run_id: str
    """id of the judged run in the tracking store"""
    state: str = ""
    """the rule's state, e.g. OK, EXPLODED, AT FLOOR, CONVERGED, NOISY, CLEARS, UNDERCUT, UNDECIDED"""
    gating: bool = True
    """whether the verdict uses the finding"""
    threshold: float | None = None
    """the limit as a number"""
    site: int | None = None
    """the site, 0..L; null if the metric is not measured by site"""
    interval: tuple[float, float] | None = None
    """interval (low, high) of the observed estimate"""
    seeds: int = 1
    """number of runs from which the observed value was computed"""
    reference_run_id: str = ""
    """run id of the control with which the run was compared"""
    first_fire: int | None = None
    """first epoch at which the rule fires; null if the rule never fires or the epochs were not recorded"""
    detail: str = ""
    """the traceback of an error; for a waived finding, who waived it, when and why"""
    stated: bool = False
    """whether the frozen accuracy of at least one seed is not proven, because the author stated the accuracy, or because the
    frozen control is not proven. Such a finding never passes; over seeds it is UNDECIDED
    """
    undecided: Many[UndecidedCause] = ()
    """causes of the state UNDECIDED, the most important cause first; empty in any other state"""
    side: Side | Literal[""] = ""
    """side of the limit on which the estimate is if the state is UNDECIDED; empty in any other state"""
    test: str = ""
    """name of the test to which `interval` belongs, such as `paired t test` or `Welch's t test`; empty without an interval"""
    confidence: float | None = None
    """the level of `interval`; null if there is no interval"""
    look: int = 1
    """number of this interim analysis (1: first audit of these seeds); later analyses use a higher confidence level"""
    further: Many[FurtherLimit] = ()
    """limits of the rule's further conditions; the limits of its guard are last"""
    crossed: str = ""
    """the operator of the leading condition (above, below, below_reference_plus) if the rule fires, else empty"""
    guard: GuardReading | None = None
    """the reading of the rule's guard; null if the guard did not fire"""
    limit: str = ""
    """the text `required` without the unit; empty if the limit is not in an edition. Programs should read the other fields,
    because an edition may choose any label
    """
    df: float | None = None
    """degrees of freedom of `interval`; null if they are not known"""
    error_shares: tuple[float, float] | None = None
    """share of the estimate's variance that only more seeds would reduce, and share that only more test samples would reduce;
    either reduces the rest. Null if the runs did not record their answers
    """
    basis: str = ""
    """the assumption on which the interval over seeds is based; empty without an interval"""
    inapplicable: Inapplicable | Literal[""] = ""
    """why the rule does not apply to the run; empty if the rule applies. Otherwise the outcome is not_applicable, but the
    verdict is not incomplete
    """
    over_frozen_long: ControlMargin | None = None
    """margin over the control `frozen_long`, the frozen control with twice the epochs; null without such a control"""

    def __repr__(self) -> str:
        return f"Finding({self.rule}, {self.outcome}, run {self.run_id})"

    def __str__(self) -> str:
        return f"{self.rule}: {self.outcome.replace('_', ' ')}: {self.sentence}"

    @property
    def is_missing(self) -> bool:
        """Whether the rule applies to the run, but could not be judged."""
        return self.outcome == "error" or (self.outcome == "not_applicable" and not self.inapplicable)

    @property
    def state_text(self) -> str:
        """The state, with the side of the limit if the state is UNDECIDED."""
        return ", ".join(filter(None, (self.state, self.side)))

    @property
    def quantities(self) -> tuple[str, ...]:
        """All metrics that the rule uses, the judged metric first."""
        return (self.quantity, *(further.quantity for further in self.further))


@dataclass(frozen=True)
class Flag:
    """Rule that a verdict names because the run does not clear it."""

    rule: str
    """code of the rule"""
    state: str = ""
    """the rule's state in lower case, such as `undecided` or `waived`; empty if the rule fires"""
    side: Side | Literal[""] = ""
    """side of the limit on which the estimate is if the rule is undecided, else empty"""

    def __str__(self) -> str:
        """Return the text of the flag in a label: `D1`, `D3 waived`, or `D3 undecided, below`."""
        return ", ".join(filter(None, (f"{self.rule} {self.state}".strip(), self.side)))


@dataclass(frozen=True)
class Verdict(NotebookRepr):
    """Verdict on a run, which follows from its findings."""

    outcome: Literal["control", "pass", "warn", "incomplete", "fail"]
    """outcome; the possible values are in order of severity"""
    label: str
    """label on pages, e.g. `FAIL(D1+D3)`"""
    flags: Many[Flag] = ()
    """rules that fired, such as `D1`, and rules with a state, such as `D3 undecided, below`"""
    base: str = ""
    """the label without its flags; empty if the label has no flags"""
    proof: ProofLevel = "stated"
    """how far replays prove the trainings of method and controls. replayed: at least one run of each was trained again to its
    end, and its result is judged; started: only first steps were replayed; stated: a training was not compared
    """

    @property
    def full_label(self) -> str:
        """The label with the level of proof, for example `PASS · replayed`."""
        return f"{self.label} · {self.proof}"


@dataclass(frozen=True, repr=False)
class RunAudit(NotebookRepr):
    """One run with its findings and its verdict by the leading edition of the audit.

    An audit may use several editions; only the verdicts of the leading edition count.
    """

    record: RunRecord
    """the run's specification and measurements"""
    findings: Many[Finding]
    """one per rule of the leading edition"""
    verdict: Verdict
    """verdict by the leading edition"""
    frozen_run_id: str = ""
    """run id of the frozen control with which the run was compared; empty if there is none"""
    frozen_doubt: str = ""
    """what is not proven about the frozen control, or which frozen controls differ; empty if the control is proven or
    does not exist
    """

    def __repr__(self) -> str:
        return f"RunAudit({self.record.name!r}: {self.verdict.full_label!r})"


@dataclass(frozen=True)
class Judgement:
    """Findings and verdict of one run by an edition other than the leading edition."""

    run_id: str
    """id of the run in the tracking store"""
    findings: Many[Finding]
    """one per rule of that edition"""
    verdict: Verdict
    """verdict by that edition"""


@dataclass(frozen=True)
class SecondOpinion:
    """Findings and verdicts of one further edition for all runs of the report."""

    edition: EditionReference
    """the edition that judges"""
    judgements: Many[Judgement]
    """one per run, in the report's order"""


@dataclass(frozen=True)
class Waiver:
    """Decision of a person to ignore a finding of a run or a method until a given day."""

    rule: str
    """code of the rule"""
    reason: str
    """the author's reason"""
    author: str
    """the person who decided"""
    date: str
    """first day, ISO 8601"""
    expiry: str
    """last day, ISO 8601"""
    run: str = ""
    """a run id or its prefix; empty if `method` is given"""
    method: str = ""
    """label of a method, for all of its runs; empty if `run` is given"""
    expired: bool = False
    """whether the waiver had expired at the time of the audit"""


ExclusionKind = Literal["integrity", "ended early", "not trained", "half-written", "broken"]


@dataclass(frozen=True)
class Exclusion:
    """Selected run that cannot be judged. All pages show the run and the reason."""

    run_id: str
    """id of the run in the tracking store"""
    name: str
    """name of the run; untrusted text"""
    reason: str
    """why the run cannot be judged"""
    failure: str = ""
    """the traceback of a broken run"""
    method: str = ""
    """the method's label; empty if the run's specification could not be read, and so is `setting`"""
    setting: str = ""
    """the setting's readable name"""
    spec: RunSpec | None = None
    """the run's specification; null if it could not be read"""
    kind: Literal[ExclusionKind, ""] = ""
    """category of the reason"""
    integrity: Integrity | None = None
    """the checks of the run's files; null if the files could not be read"""


@dataclass(frozen=True)
class OtherRun:
    """Stored run of an audited method and setting that the audit did not judge."""

    run_id: str
    """id of the run in the tracking store"""
    spec: RunSpec
    """the run's specification, which equals that of a judged group except for the seed"""
    setting: str
    """readable name of the setting"""
    status: str
    """status in the run's tag; if the run's files contradict the tag, the contradiction follows"""
    finished: bool
    """whether the run's training ended"""
    deleted: bool = False
    """whether the run was deleted in MLflow"""
    newer: bool = False
    """whether the run was started after the judged run of the same specification"""


@dataclass(frozen=True)
class SelectionSummary:
    """Description of how the runs of an audit were selected."""

    study: str
    """the study whose specifications were selected; empty if runs were chosen by id or by experiment"""
    asked: Mapping[str, str] = field(default_factory=dict)
    """options that replace values of the study's file: `seeds` → `42, 123`"""
    others: int = 0
    """number of runs of the study with other specifications, which were not audited"""
    superseded: int = 0
    """number of older finished runs of the audited specifications, which the newest run replaces"""
    unaudited: Many[OtherRun] = ()
    """all other stored runs of the judged methods and settings"""
    left_out: Many[str] = ()
    """ids of the complete runs in `unaudited` that this audit had to judge: other seeds, or newer runs of judged seeds. If there
    is one, the audit replaces no verdict tag, allows no claim about its method, and its exit code is 3
    """
    beside: Many[OtherRun] = ()
    """all runs in the store, including judged runs, whose specification differs from that of a judged run only in numbers,
    each by at most 1 %
    """


@dataclass(frozen=True)
class RuleDifference:
    """One field in which the judging edition differs from its built-in base edition."""

    rule: str
    """code of the rule; empty for a field of the edition itself (fail_if, strict, labels)"""
    field: str
    """name of the field; `also gain threshold` for a further condition, `rule` for a rule that only one edition has"""
    shipped: Scalar | None
    """the value in the built-in edition; null if the built-in edition has no such field"""
    this: Scalar | None
    """the value in the judging edition; null if the judging edition has no such field"""


@dataclass(frozen=True)
class EditionReference:
    """Edition that judged the runs, with its differences from a built-in edition."""

    name: str
    """name of the edition"""
    title: str
    """title of the edition"""
    source: str
    """source of the edition"""
    digest: str
    """SHA-256 of the edition's file"""
    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    """`rule.threshold` → the number that was used instead; any override makes the edition modified"""
    shipped: bool = False
    """whether the file is the built-in edition of that name in the release that made the audit"""
    based_on: str = ""
    """the built-in edition on which a user-supplied edition is based; empty if the two editions share no rule"""
    differences: Many[RuleDifference] = ()
    """differences from that built-in edition, including overridden thresholds"""


@dataclass(frozen=True)
class ReplayedRun:
    """Run whose complete training the audit replayed, with the outcome."""

    run_id: str
    """id of the run in the tracking store"""
    outcome: CheckOutcome
    """agrees, differs, or not possible"""
    detail: str = ""
    """description of the result; empty if the run could not be measured"""


@dataclass(frozen=True)
class UnfittedRun:
    """Run whose complete training the audit would have replayed with a larger budget of CPU time."""

    run_id: str
    """id of the run in the tracking store"""
    method: str
    """label of the run's method"""
    setting: str
    """readable name of the run's setting"""
    cpu_seconds: float
    """estimated CPU time of the complete replay in seconds, with two significant digits"""


@dataclass(frozen=True)
class Replay:
    """Selection and outcomes of the runs whose complete training the audit replayed."""

    nonce: str
    """random number that determined which runs were chosen; `--nonce` with this number repeats the choice"""
    asked: str
    """auto, all, off, or a number of steps"""
    runs: Many[ReplayedRun] = ()
    """the chosen runs, in the report's order"""
    typed: bool = False
    """whether the user typed the nonce. A typed nonce can be one that misses a run"""
    audits: int = 1
    """number of audits of these runs that the store counted, including this one. Among several audits, an author can publish the
    one whose nonce misses a run
    """
    budget: float | None = None
    """CPU time in seconds that the reader allowed for complete replays; null if there was no limit"""
    unfitted: Many[UnfittedRun] = ()
    """runs that the budget left out, or whose replay it ended early"""
    needed: float = 0.0
    """estimated budget in seconds with which no run is left out; 0 if none is"""


@dataclass(frozen=True, repr=False)
class AuditReport(NotebookRepr):
    """Complete result of an audit: selection, edition and judged runs.

    The pages of the audit are rendered only from this record.
    """

    title: str
    """title of the audit"""
    selection: str
    """description of the selected runs"""
    edition: EditionReference
    """the leading edition, whose verdicts count"""
    runs: Many[RunAudit]
    """every judged run; among several runs of one seed the newest is last"""
    excluded: Many[Exclusion] = ()
    """runs that were selected but could not be judged"""
    remarks: Many[str] = ()
    """further remarks for the reader"""
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """`family/name` → card of each method, data set, architecture and diagnostic that occurs"""
    opinions: Many[SecondOpinion] = ()
    """judgements of the same runs by further editions"""
    waivers: Many[Waiver] = ()
    """all waivers, including expired waivers and waivers without effect"""
    reproduction: Reproduction | None = None
    """the study's published values compared with these runs; null if the study has no reference.toml"""
    choice: SelectionSummary | None = None
    """how the runs were chosen; null if the judged runs do not come from a store"""
    replay: Replay | None = None
    """the runs that were replayed completely; null if logged values were trusted"""
    schema: Literal[SCHEMA] = SCHEMA
    """number of the schema"""

    @property
    def left_out(self) -> tuple[OtherRun, ...]:
        """Complete runs of the judged methods and settings that this audit had to judge, but left out."""
        choice = self.choice
        return tuple(run for run in choice.unaudited if run.run_id in choice.left_out) if choice else ()

    @property
    def verdict_counts(self) -> str:
        """Number of runs per verdict as text, for example `2 PASS · replayed, 1 FAIL(D3) · started`."""
        counts = Counter(run.verdict.full_label for run in self.runs)
        return ", ".join(f"{count} {label}" for label, count in counts.items()) or "no run was judged"

    def __repr__(self) -> str:
        return f"AuditReport({self.title!r}, edition {self.edition.name}: {self.verdict_counts})"
