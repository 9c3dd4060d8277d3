"""The indexes of one report. They are built once and used for all pages.

Without the indexes, every form would search all runs of the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fa_registry.metrics import Known, kind_of, subject_of
from fa_registry.protocol.builtin_editions import DIGEST, FOREIGN, SHIPPED, describe_edition, provenance_of
from fa_registry.protocol.grouping import Differing, Group, NearSettings, groups, newest_controls, seeds_key
from fa_registry.protocol.replay_summary import replays_text
from fa_registry.protocol.verdict import combine_verdicts
from fa_registry.records import (
    DEEP_SUPERVISION,
    FROZEN_LONG,
    AuditReport,
    EditionReference,
    Exclusion,
    Finding,
    Judgement,
    OtherRun,
    RunAudit,
    RunSpec,
    Verdict,
)
from fa_registry.reporting.labels import group_label, slug
from fa_registry.reporting.report_values import SEVERITY, Columns, Values, audit_columns, shown_outcome
from fa_registry.reporting.text.filters import na, reading
from fa_registry.reporting.view_models import (
    ChangedEdition,
    ComparedRow,
    Difference,
    IntegrityRow,
    Link,
    Truncated,
)

OUTCOME_TEXT = {
    "pass": "passes",
    "warn": "warns",
    "fail": "fires",
    "error": "crashed",
    "not_applicable": "could not be judged",
    "inapplicable": "does not apply",
    "skipped": "was skipped",
    "waived": "is waived",
}
MOST_CHANGES = 60  # changes of an edition that a page shows; a user-supplied file may differ in every text
MOST_STATEMENT = 6  # different findings on one subject that a page shows
MOST_RUNS = 8
SAME_FINDINGS = "The findings are the same, but the editions draw different verdicts from them."
NOT_JUDGED = Verdict("incomplete", "not judged")
Judged = tuple[EditionReference, Sequence[Finding]]  # an edition, and its findings on the runs of one group


def _seeds(pairs: Iterable[tuple[str, int]]) -> Mapping[str, frozenset[int]]:
    seeds: dict[str, set[int]] = {}
    for name, seed in pairs:
        seeds.setdefault(name, set()).add(seed)
    return {name: frozenset(seed_set) for name, seed_set in seeds.items()}


@dataclass(frozen=True)
class Sources:
    """A report with indexes of its groups, forms, judgements and excluded runs.

    Args:
        groups: The groups in the order of the pages.
        links: The link to the form of each group; None for controls.
        editions: The editions. The first edition is the leading edition, which determines the verdicts in the report.
        judgements: For each edition, a mapping from run id to judgement.
        exclusions: Mapping from a group to its excluded runs. The key is `seeds_key` of the specification. If the specification is
            not known, the key is (method label, setting).
    """

    report: AuditReport
    groups: tuple[Group, ...]
    links: tuple[Link | None, ...]
    values: Values
    editions: tuple[EditionReference, ...]
    judgements: tuple[Mapping[str, RunAudit | Judgement], ...]
    exclusions: Mapping[str | tuple[str, str], Sequence[Exclusion]]

    @classmethod
    def of(cls, report: AuditReport) -> Sources:
        """Return the report and its indexes. The function reads the runs once."""
        ordered = groups(report)
        exclusions: dict[str | tuple[str, str], list[Exclusion]] = {}
        for exclusion in report.excluded:
            key = seeds_key(exclusion.spec) if exclusion.spec else (exclusion.method, exclusion.setting)
            exclusions.setdefault(key, []).append(exclusion)
        leading = {run.record.run_id: run for run in report.runs}
        further = ({judgement.run_id: judgement for judgement in opinion.judgements} for opinion in report.opinions)
        return cls(
            report,
            ordered,
            tuple(None if group.control else form_link(group) for group in ordered),
            Values.of(report),
            (report.edition, *(opinion.edition for opinion in report.opinions)),
            (leading, *further),
            exclusions,
        )

    @property
    def known(self) -> Known:
        """The metrics of the report."""
        return self.values.known

    def replays(self, group: Group) -> str:
        """Return a text that explains the level of proof of a group.

        The text contains the number of replays, and the levels of proof of the controls of the setting.
        """
        text = replays_text([run.record.integrity for run in group.runs])
        levels = [] if group.control else self._control_levels.get(group.runs[0].record.spec.setting.identity, [])
        return f"{text}; controls: {', '.join(levels)}" if levels else text

    @cached_property
    def _control_levels(self) -> Mapping[str, list[str]]:
        """Mapping from the identity of a setting to the levels of proof of its controls, as `frozen replayed`."""
        levels: dict[str, list[str]] = {}
        for group in self.groups:
            if group.control:
                setting = group.runs[0].record.spec.setting.identity
                levels.setdefault(setting, []).append(f"{group_label(group)} {group.verdict.proof}")
        return levels

    def controls(self, group: Group) -> list[Group]:
        """Return the frozen controls of the runs of a group, as groups that contain only these controls."""
        ids = {run.frozen_run_id for run in group.runs}
        paired = (
            (other, tuple(run for run in other.runs if run.record.run_id in ids))
            for other in self.groups
            if other.control
        )
        return [replace(other, runs=runs) for other, runs in paired if runs]

    def shallow(self, group: Group) -> list[RunAudit]:
        """Return the controls without blocks in the setting and with the seeds of a group."""
        setting = group.runs[0].record.spec.setting.identity
        seeds = {run.record.spec.seed for run in group.runs}
        return [
            run
            for other in self.groups
            for run in other.runs
            if (spec := run.record.spec).control == "shallow"
            and spec.setting.identity == setting
            and spec.seed in seeds
        ]

    def deep_supervision(self, group: Group) -> list[RunAudit]:
        """Return the controls deep_supervision in the setting of a group, one for each of its seeds.

        The newest control of a seed counts. Only complete and intact runs that bp trained without a penalty count.
        """
        records = (
            run.record for run in self.report.runs if (run.record.spec.method, run.record.spec.penalty) == ("bp", 0)
        )
        controls = newest_controls(records, DEEP_SUPERVISION)
        keys = [(run.record.spec.setting.identity, run.record.spec.seed) for run in group.runs]
        chosen = {controls[key].run_id for key in keys if key in controls}
        return [run for run in self.report.runs if run.record.run_id in chosen]

    @cached_property
    def near_settings(self) -> NearSettings:
        """Index that finds judged specifications with nearly equal settings."""
        return NearSettings(run.record.spec for run in self.report.runs)

    @cached_property
    def near_runs(self) -> Mapping[str, Sequence[tuple[OtherRun, Differing]]]:
        """Mapping from `RunSpec.seeds` to tuples (run in nearly the same setting, numbers that differ)."""
        runs: dict[str, list[tuple[OtherRun, Differing]]] = {}
        for other in self.report.choice.beside if self.report.choice else ():
            for judged, differing in self.near_settings.near(other.spec):
                runs.setdefault(judged.seeds, []).append((other, differing))
        return runs

    @cached_property
    def judged_seeds(self) -> Mapping[str, frozenset[int]]:
        """Mapping from `RunSpec.seeds`, which identifies a group, to the judged seeds of the group."""
        return _seeds((spec.seeds, spec.seed) for spec in self._specs)

    @cached_property
    def seeds_of_methods(self) -> Mapping[str, Mapping[str, frozenset[int]]]:
        """Judged seeds of every method by setting: identity of the setting → label → seeds, without controls."""
        by_setting: dict[str, dict[str, frozenset[int]]] = {}
        for group in self.groups:
            if not group.control:
                seeds = frozenset(run.record.spec.seed for run in group.runs)
                by_setting.setdefault(group.runs[0].record.spec.setting.identity, {})[group_label(group)] = seeds
        return by_setting

    @cached_property
    def columns(self) -> Columns:
        """The columns of the audit table in which at least one run has a number."""
        return audit_columns(self.report.runs, card_metrics=self.known)

    @cached_property
    def control_seeds(self) -> Mapping[str, frozenset[int]]:
        """Mapping from the identity of a setting to the judged seeds of frozen controls."""
        return _seeds((spec.setting.identity, spec.seed) for spec in self._specs if spec.control == "frozen")

    @property
    def _specs(self) -> Iterator[RunSpec]:
        return (run.record.spec for run in self.report.runs)

    @property
    def forms(self) -> Iterator[tuple[Group, Link]]:
        """Every group that has a form, with the link to the form."""
        return ((group, link) for group, link in zip(self.groups, self.links, strict=True) if link)

    def left_out(self, group: Group) -> tuple[OtherRun, ...]:
        """Return the complete runs of a group and of its controls that the audit left out."""
        spec = group.runs[0].record.spec
        return tuple(
            other
            for other in self.report.left_out
            if other.spec.seeds == spec.seeds
            or (other.spec.control in ("frozen", FROZEN_LONG) and other.spec.setting.identity == spec.setting.identity)
        )

    def excluded(self, group: Group) -> tuple[Exclusion, ...]:
        """Return the runs of a group that were selected for the audit but not judged.

        If the specification of a run cannot be read, the run is in the result for every variant of its method.
        """
        keys = seeds_key(group.runs[0].record.spec), (group.method, group.setting)
        return tuple(exclusion for key in keys for exclusion in self.exclusions.get(key, ()))

    def compared(self, group: Group, href: str) -> ComparedRow:
        """Return the verdicts of all editions on one group, whose form has the address `href`.

        If the outcomes differ, the result also contains the differences between the editions.
        """
        judged = self.judgements_of(group)
        verdicts = tuple(combine_verdicts(run.verdict for run in runs) if runs else NOT_JUDGED for _, runs in judged)
        edition_differences: tuple[Difference, ...] = ()
        if len({verdict.outcome for verdict in verdicts}) > 1:
            findings = [(edition, [finding for run in runs for finding in run.findings]) for edition, runs in judged]
            edition_differences = tuple(differences(findings, self.known))
        return ComparedRow(group_label(group), group.setting, href, verdicts, edition_differences)

    def judgements_of(self, group: Group) -> list[tuple[EditionReference, tuple[RunAudit, ...]]]:
        """Return (edition, the runs as judged by this edition) for every edition, the leading first."""
        return [
            (
                edition,
                tuple(
                    replace(run, findings=judgement.findings, verdict=judgement.verdict)
                    for run in group.runs
                    if (judgement := by_run.get(run.record.run_id))
                ),
            )
            for edition, by_run in zip(self.editions, self.judgements, strict=True)
        ]


def form_link(group: Group) -> Link:
    return Link(group_label(group), group.method, group.setting, group.verdict, f"forms/{slug(group)}")


def changed_editions(editions: Iterable[EditionReference]) -> Iterator[ChangedEdition]:
    """Yield every edition that is modified or not built in, with its changes."""
    for edition in editions:
        if provenance_of(edition) != SHIPPED or edition.overrides:
            changes = () if provenance_of(edition) == FOREIGN else edition.differences
            yield ChangedEdition(edition, _why_changed(edition), Truncated.first(MOST_CHANGES, changes))


def _why_changed(edition: EditionReference) -> str:
    if provenance_of(edition) == SHIPPED:
        return "thresholds of this edition were overridden for this audit"
    if provenance_of(edition) == FOREIGN:
        return (
            f"this installation has no edition with the digest {edition.digest[:DIGEST]}, "
            "so the rules of this edition are not known"
        )
    if not edition.based_on:
        return "this edition shares no rule with a built-in edition"
    return f"this edition is a user-supplied file, and differs from {edition.based_on} in {len(edition.differences)} points"


def differences(judged: Sequence[Judged], card_metrics: Known) -> list[Difference]:
    """Return one row per subject that the editions judge differently.

    A subject is, for example, scale or depth. If no subject is judged differently, the only row states that the findings are the
    same.
    """
    rows = []
    for subject in dict.fromkeys(subject_of(finding.quantity) for _, findings in judged for finding in findings):
        findings_by_edition = [
            (edition, [finding for finding in findings if subject_of(finding.quantity) == subject])
            for edition, findings in judged
        ]
        if len({_decides(findings) for _, findings in findings_by_edition}) > 1:
            clauses = (_clause(edition, findings, card_metrics) for edition, findings in findings_by_edition)
            rows.append(Difference(subject, tuple(clauses)))
    return rows or [Difference("verdict", (SAME_FINDINGS,))]


def _decides(findings: Iterable[Finding]) -> str:
    """Return the most severe outcome of the gating findings."""
    outcomes = [shown_outcome(finding) for finding in findings if finding.gating]
    return min(outcomes, key=SEVERITY.index, default="pass")


def _clause(edition: EditionReference, findings: Sequence[Finding], card_metrics: Known) -> str:
    if not findings:
        return f"{describe_edition(edition)} does not judge this subject."
    worst = min(findings, key=lambda finding: (not finding.gating, SEVERITY.index(shown_outcome(finding))))
    of_rule = [finding for finding in findings if finding.rule == worst.rule]
    same = [finding for finding in of_rule if (finding.outcome, finding.state) == (worst.outcome, worst.state)]
    share = f" ({len(same)} of {len(of_rule)} seeds)" if len(of_rule) > 1 else ""
    outcome_text = OUTCOME_TEXT[shown_outcome(worst)]
    state_text = f"{worst.state_text}, {outcome_text}" if worst.state else outcome_text
    gate = "" if worst.gating else ", but does not count for the verdict"
    return (
        f"{describe_edition(edition)}: {worst.rule} {worst.title} {state_text}{gate}, required {worst.required}, "
        f"observed {_observed(same, card_metrics)}{share}."
    )


def _observed(findings: Sequence[Finding], card_metrics: Known) -> str:
    readings = [finding.observed for finding in findings if finding.observed.value is not None]
    if not readings:
        missing = findings[0].observed
        return missing.reason if missing.not_finite else f"{na(missing)} ({missing.reason})"
    readings.sort(key=lambda observed: observed.value)
    kind = kind_of(findings[0].quantity, card_metrics)
    return " to ".join(dict.fromkeys(reading(observed, kind) for observed in (readings[0], readings[-1])))


WORST_FIRST = ("differs", "not possible", "agrees")


@dataclass(frozen=True)
class EvidenceGroup:
    """The runs with the same result of one check.

    Args:
        outcome: A word of CheckOutcome: agrees, differs or not possible.
    """

    outcome: str
    detail: str
    run_ids: Truncated[str]


@dataclass(frozen=True)
class EvidenceRow:
    """Results of the audit's checks on one subject.

    Attributes:
        counts: Outcome → number of runs; the worst outcome is first.
        said: The runs with each result, worst first.
    """

    subject: str
    counts: Mapping[str, int]
    said: Truncated[EvidenceGroup]

    @property
    def outcome(self) -> str:
        """The worst outcome of all runs."""
        return next(outcome for outcome, count in self.counts.items() if count)


def evidence(runs: Sequence[RunAudit], excluded: Sequence[Exclusion] = ()) -> tuple[EvidenceRow, ...]:
    """Return the results of the audit's checks, one row per subject.

    The rows are in the order of the checks and include excluded runs.
    """
    subjects: dict[str, dict[tuple[str, str], list[str]]] = {}
    for one in (*(run.record for run in runs), *excluded):
        for check in one.integrity.checks if one.integrity else ():
            run_ids_by_result = subjects.setdefault(check.subject, {})
            run_ids_by_result.setdefault((check.outcome, check.detail), []).append(one.run_id)
    return tuple(_row(subject, by_result) for subject, by_result in subjects.items())


def integrity_states(runs: Sequence[RunAudit], excluded: Sequence[Exclusion]) -> list[IntegrityRow]:
    """Return the integrity of judged runs, and the state `mismatch` of excluded runs that are not intact."""
    rows = [
        IntegrityRow(one.run_id, one.name, "mismatch", one.integrity.details if one.integrity else (one.reason,))
        for one in not_intact(excluded)
    ]
    records = (run.record for run in runs)
    return rows + [IntegrityRow(one.run_id, one.name, one.integrity.state, one.integrity.details) for one in records]


def not_intact(excluded: Iterable[Exclusion]) -> list[Exclusion]:
    """Return the excluded runs that differ from their recorded files."""
    return [exclusion for exclusion in excluded if exclusion.kind == "integrity"]


def _row(subject: str, run_ids: Mapping[tuple[str, str], Sequence[str]]) -> EvidenceRow:
    ordered = sorted(run_ids.items(), key=lambda item: WORST_FIRST.index(item[0][0]))
    statement = [EvidenceGroup(outcome, detail, Truncated.first(MOST_RUNS, ids)) for (outcome, detail), ids in ordered]
    counts = Counter(outcome for (outcome, _), ids in ordered for _ in ids)
    by_outcome = {outcome: counts[outcome] for outcome in WORST_FIRST}
    return EvidenceRow(subject, by_outcome, Truncated.first(MOST_STATEMENT, statement))
