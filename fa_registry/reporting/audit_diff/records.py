"""The records of a difference between two audits, A and B: what `fa-registry diff --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fa_registry.records import SCHEMA, Finding, Reading, Verdict

HOW = ("run id", "specification")


@dataclass(frozen=True)
class Side:
    """One of the two audits. title, selection, edition: of the audit. runs: how many were judged.

    digest: SHA-256 of the report's canonical JSON; two audits with one digest are identical.
    """

    title: str
    selection: str
    edition: str
    runs: int
    digest: str


@dataclass(frozen=True)
class Change:
    """Anything else than a figure or a finding. what: which thing. before, after: in A and in B; empty where it has none.

    A long value stands there as its SHA-256.
    """

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class FigureChange:
    """A measured number that is not equal in A and B. name: a scalar, or `quantity[site]`. before, after: in A and in B."""

    name: str
    before: Reading
    after: Reading


@dataclass(frozen=True)
class FindingChange:
    """What a rule of the leading edition says of a run. rule, title: of the rule. before, after: in A and in B, null for none.

    decided: whether its outcome or its state changed, or one of the two is missing; else a figure or a limit alone.
    """

    rule: str
    title: str
    decided: bool
    before: Finding | None
    after: Finding | None


@dataclass(frozen=True)
class RuleChange:
    """What changed for a rule of the leading edition. rule, title: of the rule.

    required_a, required_b: its limits, in words. outcomes_a, outcomes_b: outcome → how many runs, of those in both audits.
    moved: run ids in B of the runs whose outcome changed.
    """

    rule: str
    title: str
    required_a: tuple[str, ...]
    required_b: tuple[str, ...]
    outcomes_a: Mapping[str, int]
    outcomes_b: Mapping[str, int]
    moved: tuple[str, ...]


@dataclass(frozen=True)
class RunName:
    """A run that only one of the audits has. run_id: in the tracking store. name, method, setting, seed: of the run.

    verdict: by the leading edition, as people read it.
    """

    run_id: str
    name: str
    method: str
    setting: str
    seed: int
    verdict: str


@dataclass(frozen=True)
class RunChange:
    """A run that is in both audits and not the same. run_id_a, run_id_b: in A and in B. method, setting, seed: of the run.

    matched: by run id, or by specification where it was trained again. verdict_a, verdict_b: by the leading editions.
    findings: of the leading editions, that differ. figures: that are not equal. changes: whatever else is not equal.
    """

    run_id_a: str
    run_id_b: str
    matched: str
    method: str
    setting: str
    seed: int
    verdict_a: Verdict
    verdict_b: Verdict
    findings: tuple[FindingChange, ...]
    figures: tuple[FigureChange, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class AuditDiff:
    """What changed from audit A to audit B. a, b: the two audits. same: nothing is listed here.

    matched: how many runs are in both; trained_again: those of them that have another run id. report: what was asked and
    what applies to all runs. rules: by rule. runs: by run, those that changed. only_a, only_b: runs in one audit alone.
    schema: version of the records.
    """

    a: Side
    b: Side
    same: bool
    matched: int
    trained_again: int
    report: tuple[Change, ...]
    rules: tuple[RuleChange, ...]
    runs: tuple[RunChange, ...]
    only_a: tuple[RunName, ...]
    only_b: tuple[RunName, ...]
    schema: int = SCHEMA
