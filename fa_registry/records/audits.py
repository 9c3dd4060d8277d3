"""What an audit says of runs: findings, verdicts, and the report that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fa_registry.records.readings import Reading
from fa_registry.records.reproduction import Reproduction
from fa_registry.records.runs import SCHEMA, Integrity, RunRecord, RunSpec, Scalar

OUTCOMES = ("pass", "warn", "fail", "error", "not_applicable", "skipped", "waived")


@dataclass(frozen=True)
class FurtherLimit:
    """What a rule asks for beside its leading condition. quantity: which figure is compared; threshold: with what."""

    quantity: str
    threshold: float


@dataclass(frozen=True)
class GuardReading:
    """What the guard of a rule saw where it fired.

    quantity: which figure it watches; crossed: the side of its limit, an operator of the editions; observed: the figure. mean: of
    the quantity over the sites that count, where `observed` is a share of it; null else.
    """

    quantity: str
    crossed: str
    observed: Reading
    site: int | None = None
    mean: float | None = None


@dataclass(frozen=True)
class Finding:
    """One rule's judgement of one run, the limit travelling with it.

    outcome: pass; warn (neither clear nor firing: noisy, undecided, provisional); fail (the rule fires); error (it crashed);
    not_applicable (a figure is missing); skipped (the edition lets it); waived. state: the rule's word for what it saw, e.g.
    OK, EXPLODED, AT FLOOR, CONVERGED, NOISY, CLEARS, UNDERCUT, UNDECIDED. gating: whether the verdict looks at it.
    observed: with `interval` (low, high) where it is an estimate over seeds, then of all `seeds` runs of the group.
    confidence: the level of that interval; none without one, and in reports of older releases, where it was 0.95.
    look: the how-many-th set of the group's seeds an audit judged, from 1; the more looks, the higher the level.
    further: the limits of the rule's further conditions, its guard's last.
    crossed: where the rule fires, how: the operator of its leading condition (above, below, below_reference_plus); empty where
    it does not, and in reports of older releases. guard: what the rule's guard saw, where it fired. limit: as `required`, without
    the unit; empty where no edition set one, and in reports of older releases. An edition is free in its words: whoever asks
    what a finding means asks these.
    detail: the traceback of an error, or who waived it, when and why.
    stated: it rests on a frozen accuracy that the author stated and nobody measured here, over seeds that of any of them; it is
    never a pass then, but STATED at best.
    """

    rule: str
    title: str
    outcome: str
    quantity: str
    observed: Reading
    required: str
    sentence: str
    run_id: str
    state: str = ""
    gating: bool = True
    threshold: float | None = None
    site: int | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 1
    reference_run_id: str = ""
    first_fire: int | None = None
    detail: str = ""
    stated: bool = False
    confidence: float | None = None
    look: int = 1
    further: tuple[FurtherLimit, ...] = ()
    crossed: str = ""
    guard: GuardReading | None = None
    limit: str = ""

    @property
    def quantities(self) -> tuple[str, ...]:
        """Every figure that the rule looks at, the leading one first."""
        return (self.quantity, *(further.quantity for further in self.further))


@dataclass(frozen=True)
class Verdict:
    """outcome: pass, warn, fail, incomplete or control; label: what people read, e.g. `FAIL(D1+D3)`."""

    outcome: str
    label: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunAudit:
    """One run with its findings and verdict by the report's leading edition."""

    record: RunRecord
    findings: tuple[Finding, ...]
    verdict: Verdict
    frozen_run_id: str = ""


@dataclass(frozen=True)
class Judgement:
    """What another edition than the leading one says of a run."""

    run_id: str
    findings: tuple[Finding, ...]
    verdict: Verdict


@dataclass(frozen=True)
class SecondOpinion:
    """Another edition's judgement of every run of the report, in the report's order."""

    edition: EditionReference
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True)
class Waiver:
    """A person's decision that a rule's finding on a run (or on every run of a method) shall not count, until `expiry`.

    Dates are ISO 8601. run: a run id or its beginning; empty with `method` given. expired: at the time of the audit.
    """

    rule: str
    reason: str
    author: str
    date: str
    expiry: str
    run: str = ""
    method: str = ""
    expired: bool = False


EXCLUSION_KINDS = ("integrity", "ended early", "not trained", "broken")


@dataclass(frozen=True)
class Exclusion:
    """A run that was selected but cannot be judged, and why; shown, never dropped in silence.

    failure: the traceback of a broken run. method, setting: the method's label and the setting's readable name. spec: none
    where it cannot be read. kind: one of EXCLUSION_KINDS. integrity: what was held against the run's files, where they could
    be read. Reports of older releases hold none of these five.
    """

    run_id: str
    name: str
    reason: str
    failure: str = ""
    method: str = ""
    setting: str = ""
    spec: RunSpec | None = None
    kind: str = ""
    integrity: Integrity | None = None


@dataclass(frozen=True)
class OtherRun:
    """A run of the store that the audit left out although it is of a method and setting that it judged.

    setting: readable name. status: as the run's tag has it, and what its files say against it. finished: whether it was trained
    to its end. deleted: whether somebody deleted it in MLflow. newer: whether it was started after the judged run of its
    specification.
    """

    run_id: str
    spec: RunSpec
    setting: str
    status: str
    finished: bool
    deleted: bool = False
    newer: bool = False


@dataclass(frozen=True)
class Choice:
    """How the runs were chosen. asked: what was asked for instead of the file's own, by option: `seeds` → `42, 123`.

    study: whose specifications were asked for; empty where runs were chosen by id or by experiment. others: runs of the study
    with other specifications, which were not audited. superseded: older finished runs of the audited specifications, passed over
    for the newest. unaudited: every further run of the store of a method and setting that was judged; null in older reports, which
    did not look.
    """

    study: str
    asked: Mapping[str, str] = field(default_factory=dict)
    others: int = 0
    superseded: int = 0
    unaudited: tuple[OtherRun, ...] | None = None


@dataclass(frozen=True)
class RuleDifference:
    """One point in which the rules that judged differ from the shipped edition they are based on.

    rule: its code; empty for a field of the edition itself (fail_if, strict, labels). field: its name, `also gain threshold` for
    one of a further condition, `rule` for a rule that only one of the two has. shipped, this: the value in the shipped edition
    and in this one; null where it has none.
    """

    rule: str
    field: str
    shipped: Scalar | None
    this: Scalar | None


@dataclass(frozen=True)
class EditionReference:
    """Which rules judged: the edition's name, the SHA-256 of its file, and any overridden threshold (`D1.threshold` → value).

    Any override makes the edition "modified". shipped: whether the file is the one of that name that shipped with the release that
    judged; null in older reports, which did not say. based_on: of a user's own edition, the shipped one it is based on; empty where
    it shares no rule with any. differences: to that edition; overridden thresholds among them.
    """

    name: str
    title: str
    source: str
    digest: str
    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    shipped: bool | None = None
    based_on: str = ""
    differences: tuple[RuleDifference, ...] = ()


@dataclass(frozen=True)
class AuditReport:
    """A whole audit: what was selected, by which edition, run by run. Rendering it needs nothing else.

    opinions: what further editions say of the same runs. waivers: those that were in force or have expired, applied or not.
    reproduction: the study's published figures beside these; none where the study has no reference.toml. choice: none in
    reports of older releases (in some, none where no study was asked for).
    """

    title: str
    selection: str
    edition: EditionReference
    runs: tuple[RunAudit, ...]
    excluded: tuple[Exclusion, ...] = ()
    remarks: tuple[str, ...] = ()
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    opinions: tuple[SecondOpinion, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    reproduction: Reproduction | None = None
    choice: Choice | None = None
    schema: int = SCHEMA
