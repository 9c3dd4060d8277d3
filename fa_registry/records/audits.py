"""What an audit says of runs: findings, verdicts, and the report that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fa_registry.disk_spill import SpilledFields
from fa_registry.records.notebook_repr import NotebookRepr
from fa_registry.records.readings import Reading
from fa_registry.records.reproduction import Reproduction
from fa_registry.records.runs import SCHEMA, CheckOutcome, Integrity, RunRecord, RunSpec, Scalar

Outcome = Literal["pass", "warn", "fail", "error", "not_applicable", "skipped", "waived"]
OUTCOMES = get_args(Outcome)


@dataclass(frozen=True)
class FurtherLimit:
    """What a rule asks for beside its leading condition."""

    quantity: str
    """which figure is compared"""
    threshold: float
    """with what"""


@dataclass(frozen=True)
class GuardReading:
    """What the guard of a rule saw where it fired."""

    quantity: str
    """which figure it watches"""
    crossed: str
    """the side of its limit, an operator of the editions"""
    observed: Reading
    """the figure"""
    site: int | None = None
    """where it was observed, 0..L; null where it is no figure of one site"""
    mean: float | None = None
    """of the quantity over the sites that count, where `observed` is a share of it; null else"""


@dataclass(frozen=True)
class Finding:
    """One rule's judgement of one run, the limit travelling with it."""

    rule: str
    """code of the rule"""
    title: str
    """of the rule, in words"""
    outcome: Outcome
    """pass (it clears); warn (neither clear nor firing: noisy, undecided, provisional); fail (the rule fires); error (it crashed);
    not_applicable (a figure is missing); skipped (the edition lets it); waived
    """
    quantity: str
    """which figure it looks at"""
    observed: Reading
    """with `interval` (low, high) where it is an estimate over seeds, then of all `seeds` runs of the group"""
    required: str
    """the limit, in words, with its unit"""
    sentence: str
    """required and observed in one sentence"""
    run_id: str
    """the run it judges"""
    state: str = ""
    """the rule's word for what it saw, e.g. OK, EXPLODED, AT FLOOR, CONVERGED, NOISY, CLEARS, UNDERCUT, UNDECIDED"""
    gating: bool = True
    """whether the verdict looks at it"""
    threshold: float | None = None
    """the limit as a number"""
    site: int | None = None
    """where it was observed, 0..L; null where it is no figure of a site"""
    interval: tuple[float, float] | None = None
    """interval (low, high) of the observed estimate"""
    seeds: int = 1
    """how many runs it was observed over"""
    reference_run_id: str = ""
    """of the control it was compared with"""
    first_fire: int | None = None
    """first epoch at which the rule fires; null where it never does or cannot be followed"""
    detail: str = ""
    """the traceback of an error, or who waived it, when and why"""
    stated: bool = False
    """it rests on a frozen accuracy that this audit did not prove: the author stated it, or the frozen control is not proven; over
    seeds, that of any of them. It is never a pass then, but STATED at best
    """
    confidence: float | None = None
    """the level of that interval; none without one, and in reports of older releases, where it was 0.95"""
    look: int = 1
    """the how-many-th set of the group's seeds an audit judged, from 1; the more looks, the higher the level"""
    further: tuple[FurtherLimit, ...] = ()
    """the limits of the rule's further conditions, its guard's last"""
    crossed: str = ""
    """where the rule fires, how: the operator of its leading condition (above, below, below_reference_plus); empty where it
    does not, and in reports of older releases
    """
    guard: GuardReading | None = None
    """what the rule's guard saw, where it fired"""
    limit: str = ""
    """as `required`, without the unit; empty where no edition set one, and in reports of older releases. An edition is free in
    its words: whoever asks what a finding means asks these
    """
    basis: str = ""
    """on what its interval over seeds rests; empty without one, and in reports of older releases"""

    @property
    def quantities(self) -> tuple[str, ...]:
        """Every figure that the rule looks at, the leading one first."""
        return (self.quantity, *(further.quantity for further in self.further))


@dataclass(frozen=True)
class Verdict(NotebookRepr):
    """What the findings amount to."""

    outcome: Literal["control", "pass", "warn", "incomplete", "fail"]
    """mildest first"""
    label: str
    """what people read, e.g. `FAIL(D1+D3)`"""
    flags: tuple[str, ...] = ()
    """the rules that fired, or their word: `D1`, `D3 undecided`"""


@dataclass(frozen=True)
class RunAudit(NotebookRepr, SpilledFields):
    """One run with its findings and verdict by the report's leading edition."""

    SPILLED_FIELDS = ("findings",)

    record: RunRecord
    """what the run is and what was measured"""
    findings: tuple[Finding, ...]
    """one a rule of the leading edition"""
    verdict: Verdict
    """by the leading edition"""
    frozen_run_id: str = ""
    """of the frozen control it was compared with; empty where there is none"""
    frozen_doubt: str = ""
    """why no frozen control is the reference: what of it is not proven, or which controls differ; empty where one is proven,
    where there is none, and in reports of older releases
    """


@dataclass(frozen=True)
class Judgement(SpilledFields):
    """What another edition than the leading one says of a run."""

    SPILLED_FIELDS = ("findings",)

    run_id: str
    """id of the run in the tracking store"""
    findings: tuple[Finding, ...]
    """one a rule of that edition"""
    verdict: Verdict
    """by that edition"""


@dataclass(frozen=True)
class SecondOpinion:
    """Another edition's judgement of every run of the report, in the report's order."""

    edition: EditionReference
    """who judges"""
    judgements: tuple[Judgement, ...]
    """one a run, in the report's order"""


@dataclass(frozen=True)
class Waiver:
    """A person's decision that a rule's finding on a run (or on every run of a method) shall not count, until `expiry`."""

    rule: str
    """code of the rule"""
    reason: str
    """in the author's words"""
    author: str
    """who decided"""
    date: str
    """when, ISO 8601"""
    expiry: str
    """until when, ISO 8601"""
    run: str = ""
    """a run id or its beginning; empty with `method` given"""
    method: str = ""
    """every run of this method, where no run is named"""
    expired: bool = False
    """at the time of the audit"""


ExclusionKind = Literal["integrity", "ended early", "not trained", "half-written", "broken"]
EXCLUSION_KINDS = get_args(ExclusionKind)


@dataclass(frozen=True)
class Exclusion:
    """A run that was selected but cannot be judged, and why; shown, never dropped in silence."""

    run_id: str
    """id of the run in the tracking store"""
    name: str
    """of the run; untrusted text"""
    reason: str
    """why it cannot be judged"""
    failure: str = ""
    """the traceback of a broken run"""
    method: str = ""
    """the method's label; empty in reports of older releases, as the four below"""
    setting: str = ""
    """the setting's readable name"""
    spec: RunSpec | None = None
    """none where it cannot be read"""
    kind: Literal[ExclusionKind, ""] = ""
    """the same in a word"""
    integrity: Integrity | None = None
    """what was held against the run's files, where they could be read. Reports of older releases hold none of these five"""


@dataclass(frozen=True)
class OtherRun:
    """A run of the store that the audit left out although it is of a method and setting that it judged."""

    run_id: str
    """id of the run in the tracking store"""
    spec: RunSpec
    """its specification: of a judged group but for the seed"""
    setting: str
    """readable name"""
    status: str
    """as the run's tag has it, and what its files say against it"""
    finished: bool
    """whether it was trained to its end"""
    deleted: bool = False
    """whether somebody deleted it in MLflow"""
    newer: bool = False
    """whether it was started after the judged run of its specification"""


@dataclass(frozen=True)
class SelectionSummary:
    """How the runs were chosen."""

    study: str
    """whose specifications were asked for; empty where runs were chosen by id or by experiment"""
    asked: Mapping[str, str] = field(default_factory=dict)
    """what was asked for instead of the file's own, by option: `seeds` → `42, 123`"""
    others: int = 0
    """runs of the study with other specifications, which were not audited"""
    superseded: int = 0
    """older finished runs of the audited specifications, passed over for the newest"""
    unaudited: tuple[OtherRun, ...] | None = None
    """every further run of the store of a method and setting that was judged; null in older reports, which did not look"""
    beside: tuple[OtherRun, ...] | None = None
    """every run of the store whose specification is a judged one's but for numbers that differ by at most 1 %, judged ones too:
    settings that were tried beside it; null in older reports, which did not look
    """


@dataclass(frozen=True)
class RuleDifference:
    """One point in which the rules that judged differ from the shipped edition they are based on."""

    rule: str
    """its code; empty for a field of the edition itself (fail_if, strict, labels)"""
    field: str
    """its name, `also gain threshold` for one of a further condition, `rule` for a rule that only one of the two has"""
    shipped: Scalar | None
    """the value in the shipped edition; null where it has none"""
    this: Scalar | None
    """the value in this one; null where it has none"""


@dataclass(frozen=True)
class EditionReference:
    """Which rules judged, and how far they are those of a shipped edition. Any override makes the edition "modified"."""

    name: str
    """of the edition"""
    title: str
    """of the edition, in words"""
    source: str
    """who says so"""
    digest: str
    """SHA-256 of the edition's file"""
    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    """`rule.threshold` → the number that was used instead; any makes the edition modified"""
    shipped: bool | None = None
    """whether the file is the one of that name that shipped with the release that judged; null in older reports, which did not
    say
    """
    based_on: str = ""
    """of a user's own edition, the shipped one it is based on; empty where it shares no rule with any"""
    differences: tuple[RuleDifference, ...] = ()
    """to that edition; overridden thresholds among them"""


@dataclass(frozen=True)
class ReplayedRun:
    """A run that was chosen to be trained again to its end."""

    run_id: str
    """id of the run in the tracking store"""
    outcome: CheckOutcome
    """agrees, differs, or not possible"""
    detail: str = ""
    """what was found, in words; empty where the run could not be measured at all"""


@dataclass(frozen=True)
class Replay:
    """Which runs the audit trained again to their end."""

    nonce: str
    """the reader's number by which they were chosen; `--nonce` with it repeats the choice"""
    asked: str
    """auto, all, off, or a number of steps"""
    runs: tuple[ReplayedRun, ...] = ()
    """those that were chosen, in the report's order"""


@dataclass(frozen=True)
class AuditReport(NotebookRepr):
    """A whole audit: what was selected, by which edition, run by run. Rendering it needs nothing else."""

    title: str
    """of the audit, in words"""
    selection: str
    """which runs were asked for, in words"""
    edition: EditionReference
    """the leading edition: whose verdicts count"""
    runs: tuple[RunAudit, ...]
    """every judged run; of several runs of one seed the newest is last"""
    excluded: tuple[Exclusion, ...] = ()
    """runs that were selected and could not be judged"""
    remarks: tuple[str, ...] = ()
    """what a reader must know besides"""
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """`family/name` → what is declared of a method, data set, architecture or diagnostic that occurs"""
    opinions: tuple[SecondOpinion, ...] = ()
    """what further editions say of the same runs"""
    waivers: tuple[Waiver, ...] = ()
    """those that were in force or have expired, applied or not"""
    reproduction: Reproduction | None = None
    """the study's published figures beside these; none where the study has no reference.toml"""
    choice: SelectionSummary | None = None
    """how the runs were chosen; null in reports of older releases (in some, where no study was asked for)"""
    replay: Replay | None = None
    """which runs were trained again to their end; null where logged values were trusted, and in reports of older releases"""
    schema: Literal[SCHEMA] = SCHEMA
    """version of this schema"""
