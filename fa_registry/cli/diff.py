"""Output of the command `diff`: the two audits, and the differences of reports, runs and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fa_registry.cli.tables import SHORT_ID, print_json, print_out, table
from fa_registry.errors import pluralise

if TYPE_CHECKING:
    from fa_registry.records import Finding, Reading
    from fa_registry.reporting.diff import AuditDiff, Change, DiffSide, RunChange, RunName

NOTHING, VARIOUS = "—", "not the same for all runs"
RUN = ["run", "method", "seed", "setting"]


def diffed(difference: AuditDiff, names: tuple[str, str], as_json: bool) -> None:
    """Print the differences between two audits, whose `names` the user typed."""
    if as_json:
        print_json(difference)
        return
    for letter, name, side in zip("AB", names, (difference.a, difference.b), strict=True):
        print_out(f"{letter}: {name}: {_text(side)}")
    if difference.same:
        print_out(_sameness(difference))
        return
    _section("Audit", ["what", "A", "B"], [_change(entry) for entry in difference.report])
    _section("By rule", ["rule", "required", "runs in A", "runs in B", "moved"], list(_rules(difference)))
    _section("Verdicts", [*RUN, "A", "B"], list(_verdicts(difference.runs)))
    _section("Findings that changed", [*RUN, "rule", "observed in A", "observed in B"], list(_findings(difference)))
    _section("Headline metrics", [*RUN, "metric", "A", "B"], list(_figures(difference.runs)))
    _section("Other fields of runs", ["what", "A", "B", "runs"], list(_others(difference.runs)))
    _section("Only in A", [*RUN, "verdict"], [_alone(entry) for entry in difference.only_a])
    _section("Only in B", [*RUN, "verdict"], [_alone(entry) for entry in difference.only_b])
    print_out(_summary(difference))


def _text(side: DiffSide) -> str:
    runs, digest = pluralise(side.runs, "run"), side.digest[:SHORT_ID]
    return f"{side.title} ({side.selection}), {runs}, edition {side.edition}, digest {digest}"


def _sameness(difference: AuditDiff) -> str:
    if difference.a.digest == difference.b.digest:
        return f"identical: {pluralise(difference.matched, 'run')}, every record the same"
    retrained = f"{difference.trained_again} of these runs with another run id"
    return f"the same: {pluralise(difference.matched, 'run')}, {retrained}; no finding or metric differs"


def _section(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        table(header, rows, title)


def _change(change: Change) -> list[str]:
    return [change.what, change.before or NOTHING, change.after or NOTHING]


def _rules(difference: AuditDiff) -> Iterator[list[str]]:
    for rule in difference.rules:
        required_a, required_b = "; ".join(rule.required_a) or NOTHING, "; ".join(rule.required_b) or NOTHING
        required = required_a if required_a == required_b else f"{required_a} → {required_b}"
        counts = map(_counts, (rule.outcomes_a, rule.outcomes_b))
        yield [f"{rule.rule} {rule.title}", required, *counts, str(len(rule.moved))]


def _counts(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or NOTHING


def _who(run: RunChange) -> list[str]:
    """Return id, method, seed and setting of a run; if its ids in A and B differ, include both ids."""
    ids = dict.fromkeys((run.run_id_a[:SHORT_ID], run.run_id_b[:SHORT_ID]))
    return [" → ".join(ids), run.method, str(run.seed), run.setting]


def _verdicts(runs: Sequence[RunChange]) -> Iterator[list[str]]:
    for run in runs:
        if run.verdict_a != run.verdict_b:
            yield [*_who(run), run.verdict_a.label, run.verdict_b.label]


def _findings(difference: AuditDiff) -> Iterator[list[str]]:
    """Yield the changed findings of rules that both editions have."""
    one_sided = {rule.rule for rule in difference.rules if not (rule.required_a and rule.required_b)}
    for run in difference.runs:
        for finding in run.findings:
            if finding.decided and finding.rule not in one_sided:
                yield [*_who(run), finding.rule, _seen(finding.before), _seen(finding.after)]


def _seen(finding: Finding | None) -> str:
    if not finding:
        return NOTHING
    state = f" {finding.state}" if finding.state else ""
    return f"{finding.outcome}{state}: {finding.quantity} {_number(finding.observed)}"


def _number(reading: Reading) -> str:
    """Return a number with all digits, because different values must be printed differently."""
    return f"N/A ({reading.reason})" if reading.value is None else repr(reading.value)


def _figures(runs: Sequence[RunChange]) -> Iterator[list[str]]:
    from fa_registry.metrics import HEADLINES, table  # imports numpy, which --help does not need

    shown = table("diff_command", HEADLINES.values())  # the output of --json contains all metrics
    for run in runs:
        for figure in run.figures:
            if figure.name in shown:
                yield [*_who(run), figure.name, _number(figure.before), _number(figure.after)]


def _others(runs: Sequence[RunChange]) -> Iterator[list[str]]:
    """Yield one row per changed field; if the change is not the same for all runs, the values are omitted."""
    by_field: dict[str, list[Change]] = {}
    for run in runs:
        for change in run.changes:
            by_field.setdefault(change.what, []).append(change)
    for changes in by_field.values():
        values = _change(changes[0])[1:] if len(set(changes)) == 1 else [VARIOUS, VARIOUS]
        yield [changes[0].what, *values, str(len(changes))]


def _alone(run: RunName) -> list[str]:
    return [run.run_id[:SHORT_ID], run.method, str(run.seed), run.setting, run.verdict]


def _summary(difference: AuditDiff) -> str:
    verdicts = sum(run.verdict_a != run.verdict_b for run in difference.runs)
    decided = sum(finding.decided for run in difference.runs for finding in run.findings)
    figures = sum(len(run.figures) for run in difference.runs)
    retrained = (
        f", {difference.trained_again} of the common runs have another run id" if difference.trained_again else ""
    )
    return (
        f"different: {verdicts} verdicts, {decided} findings, {figures} metrics; {len(difference.runs)} of {difference.matched} "
        f"common runs changed{retrained}; {len(difference.only_a)} only in A, {len(difference.only_b)} only in B"
    )
