"""What diff prints: the two audits, then what changed, from the whole to the single figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fa_registry import jsonio
from fa_registry.cli.tables import SHORT_ID, table

if TYPE_CHECKING:
    from fa_registry.records import Finding, Reading
    from fa_registry.reporting.diff import AuditDiff, Change, RunChange, RunName, Side

HEADLINE = ("accuracy", "h_L", "g_L", "growth_max", "stability_mid", "gamma_deep_mean")  # the rest is in --json
NOTHING, VARIOUS = "—", "not the same for all"
RUN = ["run", "method", "seed", "setting"]


def diffed(found: AuditDiff, names: tuple[str, str], as_json: bool) -> None:
    """Print a difference. names: of the two audits, as they were typed."""
    if as_json:
        click.echo(jsonio.pretty(found), nl=False)
        return
    for letter, name, side in zip("AB", names, (found.a, found.b), strict=True):
        click.echo(f"{letter}: {name}: {_words(side)}")
    if found.same:
        click.echo(_sameness(found))
        return
    _section("Audit", ["what", "A", "B"], [_change(one) for one in found.report])
    _section("By rule", ["rule", "required", "runs in A", "runs in B", "moved"], list(_rules(found)))
    _section("Verdicts", [*RUN, "A", "B"], list(_verdicts(found.runs)))
    _section("Findings judged otherwise", [*RUN, "rule", "observed in A", "observed in B"], list(_findings(found)))
    _section("Headline figures", [*RUN, "figure", "A", "B"], list(_figures(found.runs)))
    _section("Other fields of runs", ["what", "A", "B", "runs"], list(_others(found.runs)))
    _section("Only in A", [*RUN, "verdict"], [_alone(one) for one in found.only_a])
    _section("Only in B", [*RUN, "verdict"], [_alone(one) for one in found.only_b])
    click.echo(_summary(found))


def _words(side: Side) -> str:
    return f"{side.title} ({side.selection}), {side.runs} runs, edition {side.edition}, digest {side.digest[:SHORT_ID]}"


def _sameness(found: AuditDiff) -> str:
    if found.a.digest == found.b.digest:
        return f"identical: {found.matched} runs, every record the same"
    return f"the same: {found.matched} runs, {found.trained_again} of them under another run id; no finding or figure differs"


def _section(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        table(header, rows, title)


def _change(one: Change) -> list[str]:
    return [one.what, one.before or NOTHING, one.after or NOTHING]


def _rules(found: AuditDiff) -> Iterator[list[str]]:
    for one in found.rules:
        before, after = "; ".join(one.required_a) or NOTHING, "; ".join(one.required_b) or NOTHING
        required = before if before == after else f"{before} → {after}"
        yield [
            f"{one.rule} {one.title}",
            required,
            _counts(one.outcomes_a),
            _counts(one.outcomes_b),
            str(len(one.moved)),
        ]


def _counts(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or NOTHING


def _who(run: RunChange) -> list[str]:
    """The run's id in A, and in B where that is another."""
    ids = dict.fromkeys((run.run_id_a[:SHORT_ID], run.run_id_b[:SHORT_ID]))
    return [" → ".join(ids), run.method, str(run.seed), run.setting]


def _verdicts(runs: Sequence[RunChange]) -> Iterator[list[str]]:
    for run in runs:
        if run.verdict_a != run.verdict_b:
            yield [*_who(run), run.verdict_a.label, run.verdict_b.label]


def _findings(found: AuditDiff) -> Iterator[list[str]]:
    """But those of a rule that only one of the editions has: by rule, that is one line."""
    one_sided = {rule.rule for rule in found.rules if not (rule.required_a and rule.required_b)}
    for run in found.runs:
        for one in run.findings:
            if one.decided and one.rule not in one_sided:
                yield [*_who(run), one.rule, _seen(one.before), _seen(one.after)]


def _seen(finding: Finding | None) -> str:
    if not finding:
        return NOTHING
    state = f" {finding.state}" if finding.state else ""
    return f"{finding.outcome}{state}: {finding.quantity} {_number(finding.observed)}"


def _number(reading: Reading) -> str:
    """Every digit: two figures that differ must not look alike."""
    return f"N/A ({reading.reason})" if reading.value is None else repr(reading.value)


def _figures(runs: Sequence[RunChange]) -> Iterator[list[str]]:
    for run in runs:
        for one in run.figures:
            if one.name in HEADLINE:
                yield [*_who(run), one.name, _number(one.before), _number(one.after)]


def _others(runs: Sequence[RunChange]) -> Iterator[list[str]]:
    """Runs that were trained again differ in every digest: one line a field, with the values where all runs share them."""
    by_field: dict[str, list[Change]] = {}
    for run in runs:
        for one in run.changes:
            by_field.setdefault(one.what, []).append(one)
    for several in by_field.values():
        values = _change(several[0])[1:] if len(set(several)) == 1 else [VARIOUS, VARIOUS]
        yield [several[0].what, *values, str(len(several))]


def _alone(run: RunName) -> list[str]:
    return [run.run_id[:SHORT_ID], run.method, str(run.seed), run.setting, run.verdict]


def _summary(found: AuditDiff) -> str:
    verdicts = sum(run.verdict_a != run.verdict_b for run in found.runs)
    decided = sum(one.decided for run in found.runs for one in run.findings)
    figures = sum(len(run.figures) for run in found.runs)
    again = f", {found.trained_again} of them under another run id" if found.trained_again else ""
    return (
        f"different: {verdicts} verdicts, {decided} findings, {figures} figures; {len(found.runs)} of {found.matched} "
        f"runs of both changed{again}; {len(found.only_a)} only in A, {len(found.only_b)} only in B"
    )
