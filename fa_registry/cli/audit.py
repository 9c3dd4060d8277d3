"""The commands `audit`, `verify`, `report` and `diff`, and their output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fa_registry import api
from fa_registry.cli.options import JSON, examples, takes
from fa_registry.cli.tables import NO_BREAK, SHORT_ID, print_json, print_out, print_page, print_result, table
from fa_registry.errors import IntegrityError, join_names, pluralise

if TYPE_CHECKING:
    from fa_registry.audits.audit_command import AuditResult
    from fa_registry.audits.verify import Verification
    from fa_registry.protocol.grouping import Group
    from fa_registry.records import AuditReport, Finding, OtherRun, Reading, Reproduction
    from fa_registry.reporting.diff import AuditDiff, Change, DiffSide, RunChange, RunName

MOST_GROUPS = 200  # rows printed on a terminal; the page shows all rows


@click.command()
@takes(api.audit)
@click.option("--exit-zero", is_flag=True, help="Exit with code 0 regardless of the verdicts.")
@JSON
@examples(
    "audit --study digits",
    "audit --study paper --replace-dataset digits --scale 0.02",
    "audit --study digits --editions 2026-04,2026-05,2026-12",
    "audit --study digits --threshold D1=100 --waivers waivers.toml --json",
    "audit --run 4f1c… --run 90ab… --trust-logged",
)
def audit(exit_zero: bool, as_json: bool, **arguments: Any) -> None:
    """Recompute the metrics of runs, judge the runs, and write a report.

    Exit 0: no run fails (warnings are possible), 1: a run fails, 3: a verdict is INCOMPLETE, a run cannot be judged, a file or
    metric differs from what was recorded, or complete runs of the judged methods and settings are left out. In this last case,
    the runs keep their earlier verdicts.
    """
    result = api.audit(**arguments)
    audited(result, as_json)
    sys.exit(0 if exit_zero else result.exit_code)


@click.command(short_help="Recompute runs, or check an audit report or a bundle.")
@click.argument("report_file", default="", metavar="[REPORT|BUNDLE]")
@takes(api.verify)
@JSON
@examples(
    "verify --study digits",
    "verify reports/audit.json",
    "verify digits.fa.zip --key author.pub",
    "verify digits.fa.zip --quick",
)
def verify(report_file: str, as_json: bool, **arguments: Any) -> None:
    """Recompute the metrics of runs, or check an audit report or a bundle.

    REPORT is an audit.json, which is compared with the store. BUNDLE is a .zip file, which is checked without a store.

    Exit 0: everything is verified (with --quick, everything is unchanged), 3: something is not verified.
    """
    results = api.verify(report_file, **arguments)
    accepted = ("verified", "trusted") if arguments["quick"] else ("verified",)
    if as_json:
        print_json(results)
    else:
        rows = [result.row() for result in results]
        table(list(rows[0]), [[row["run"][:SHORT_ID], *list(row.values())[1:]] for row in rows], "")
        print_out(_answer(results, accepted))
    sys.exit(0 if all(result.integrity.state in accepted for result in results) else IntegrityError.exit_code)


def _answer(results: Sequence[Verification], accepted: Sequence[str]) -> str:
    """Return the outcome of all checks on one line, with the size of the checked files."""
    sizes = [size for result in results for size in result.files.values()]
    files = f"{pluralise(len(sizes), 'file')} checked, {sum(sizes):,} bytes"
    failed = [
        f"{result.name} ({result.integrity.state})" for result in results if result.integrity.state not in accepted
    ]
    if failed:
        return f"NOT verified: {len(failed)} of {len(results)}: {join_names(failed)}; {files}"
    trusted = sum(result.integrity.state == "trusted" for result in results)
    unmeasured = f"; the metrics of {pluralise(trusted, 'run')} were not recomputed" if trusted else ""
    return f"verified: {len(results) - trusted} of {len(results)}{unmeasured}; {files}"


@click.command(short_help="Render the pages of an audit again.")
@click.argument("report_file", default="", metavar="[REPORT]")
@takes(api.report)
@JSON
@examples(
    "report",
    "report --study methods --out reports",
    "report reports/audit.json --out elsewhere",
    "report --columns accuracy,margin_pp,gamma_deep_mean",
    "report --templates my-templates",
)
def report(report_file: str, as_json: bool, **arguments: str) -> None:
    """Render the pages of an audit again.

    REPORT is an audit.json [reports/audit.json]. The same audit always gives the same bytes.
    """
    names = [str(page) for page in api.report(report_file, **arguments)]
    print_result(names, as_json, *names)


@click.command(short_help="Show the differences between two audits.")
@click.argument("audit_a")
@click.argument("audit_b")
@JSON
@examples("diff reports-before reports", "diff before/audit.json after/audit.json --json")
def diff(audit_a: str, audit_b: str, as_json: bool) -> None:
    """Show the differences between two audits.

    AUDIT_A and AUDIT_B are audit.json files, or folders with an audit.json. Runs are matched by id. A retrained run has
    another id and is matched by its specification.

    Exit 0: no difference, 1: differences.
    """
    from fa_registry.audits.reports import run_diff

    difference = run_diff(audit_a, audit_b)
    diffed(difference, (audit_a, audit_b), as_json)
    sys.exit(0 if difference.same else 1)  # as diff(1)


def audited(result: AuditResult, as_json: bool) -> None:
    """Print the result of an audit: one row per method and setting, reproduced values and excluded runs.

    The last lines are the meaning of the result in at most three sentences, and the address of the report.
    """
    from fa_registry.reporting.summary import depth_summary, gamma_summary  # jinja2, which `--help` does not need

    report, left_out = result.report, result.report.left_out
    if as_json:
        pages = list(map(str, result.pages))
        fields = {"exit_code": result.exit_code, "audit_run_id": result.audit_run_id, "pages": pages}
        print_json({**fields, "page": result.page, "report": report})
        return
    if left_out:
        count = pluralise(len(left_out), "complete run")
        print_out(
            f"left out: {count} of the same methods and settings; this audit replaces no verdict and opens no promotion"
        )
    _judged(report)
    if report.reproduction:
        _reproduced(report.reproduction)
    for excluded in report.excluded:
        print_out(f"left out: {excluded.name}: {excluded.reason}")
    for run in report.choice.unaudited if report.choice else ():
        deleted_text = ", deleted in MLflow" if run.deleted else ""
        print_out(f"in the store but not audited: {_seed_text(run)}{deleted_text}")
    for run in report.choice.beside if report.choice else ():
        print_out(f"similar setting (numbers within 1 %): {_seed_text(run)}")
    for remark in report.remarks:
        print_out(f"note: {remark}")
    print_page(result.page, result.store)
    print_out(*depth_summary(report), *filter(None, [gamma_summary(report)]))
    print_out(f"report: {Path(result.pages[0]).absolute().as_uri()}")


def _seed_text(run: OtherRun) -> str:
    return f"seed {run.spec.seed} of {run.spec.label}, {run.setting}: {run.status}"


def _judged(report: AuditReport) -> None:
    """Print one row per method and setting with the verdict of each edition."""
    from fa_registry.metrics import headlines_of, is_scale, metric_named, metrics_of_report
    from fa_registry.metrics import table as metric_table
    from fa_registry.protocol.builtin_editions import describe_edition
    from fa_registry.protocol.grouping import groups
    from fa_registry.protocol.verdict import SEVERITY

    all_groups = groups(report)
    settings = {group.setting for group in all_groups}
    worst_first = sorted(all_groups, key=lambda group: -SEVERITY.index(group.verdict.outcome))
    printed = worst_first[:MOST_GROUPS] if len(all_groups) > MOST_GROUPS else all_groups
    title = f"{report.title} by edition {describe_edition(report.edition)}"
    changed = ", ".join(f"{name} = {value}" for name, value in sorted(report.edition.overrides.items()))
    title += f" (modified: {changed})" if changed else ""
    title_lines = [title, settings.pop()] if len(settings) == 1 else [title]  # a setting of all rows is in the title
    names = metric_table("audit_command", headlines_of(run.record for run in report.runs))
    mean_texts = {name: ", geometric mean" if is_scale(name) else "" for name in names}
    known = metrics_of_report(report)
    numbers = [f"{metric_named(name, known).label}{mean}" for name, mean in mean_texts.items()]
    editions = [describe_edition(opinion.edition) for opinion in report.opinions]
    header = ["method", "setting", *numbers, "seeds", "verdict", *editions, "proof", "control"]
    # a long label may break at a comma
    rows = [[label.replace(",", ", "), *cells] for label, *cells in _rows(report, printed)]
    visible = [index for index, name in enumerate(header) if settings or name != "setting"]
    table([header[index] for index in visible], [[row[index] for index in visible] for row in rows], title_lines)
    if len(printed) < len(all_groups):
        print_out(f"only the {len(printed)} worst of {len(all_groups)} rows are shown; the report has all rows")
    for line in _replay_lines(report, printed):
        print_out(f"replay: {line}")
    for group in printed:
        by_seed = {run.record.spec.seed: run.verdict.label for run in group.runs}
        if set(by_seed.values()) != {group.verdict.label}:
            setting_text = f", {group.setting}" if settings else ""
            text = ", ".join(f"s{seed} {label}" for seed, label in by_seed.items())
            print_out(f"by seed: {group.runs[0].record.spec.label}{setting_text}: {text}")
    _controls(report, printed)


def _controls(report: AuditReport, printed: Iterable[Group]) -> None:
    """Print the frozen controls that are not proven to be frozen, with the reasons."""
    from fa_registry.reporting.report_values import Values, control_rows, control_text

    values, by_reason = Values.of(report), {}
    for group in printed:
        rows = [row for row in control_rows(group.runs, values) if row.doubt and row.state != "absent"]
        if rows:
            by_reason.setdefault(control_text(rows), []).append(group.runs[0].record.spec.label)
    for reason, labels in by_reason.items():
        print_out(f"{', '.join(dict.fromkeys(labels))}: {reason}")


def _replay_lines(report: AuditReport, printed: Iterable[Group]) -> Iterator[str]:
    """Yield the results of the replays with their methods, then lines on chosen runs and nonce."""
    from fa_registry.protocol.replay_summary import nonce_text, replays_text

    labels_by_text: dict[str, dict[str, None]] = {}
    for group in printed:
        text = replays_text([run.record.integrity for run in group.runs])
        labels_by_text.setdefault(text, {})[group.runs[0].record.spec.label] = None
    yield from (f"{description}: {', '.join(labels)}" for description, labels in labels_by_text.items())
    if report.replay and report.replay.runs:
        agreeing = sum(run.outcome == "agrees" for run in report.replay.runs)
        yield (
            f"{agreeing} of {pluralise(len(report.replay.runs), 'chosen run')} trained again completely; --nonce "
            f"{report.replay.nonce} selects the same runs"
        )
    yield from filter(None, [nonce_text(report.replay)])


def _rows(report: AuditReport, printed: Iterable[Group]) -> Iterator[list[str]]:
    from fa_registry.metrics import headlines_of, metric_named, table
    from fa_registry.protocol.verdict import combine_verdicts
    from fa_registry.reporting.report_values import Values, control_rows
    from fa_registry.reporting.text.filters import counted

    values = Values.of(report)
    names = table("audit_command", headlines_of(run.record for run in report.runs))
    columns = [metric_named(name, values.known) for name in names]
    opinions = [{judged.run_id: judged.verdict for judged in opinion.judgements} for opinion in report.opinions]
    for group in printed:
        means = (counted(values.estimate(group.runs, column), deviation=column.with_deviation) for column in columns)
        ids = [run.record.run_id for run in group.runs]
        other_verdicts = (combine_verdicts(map(verdicts.__getitem__, ids)).label for verdicts in opinions)
        yield [
            group.runs[0].record.spec.label,
            group.setting,
            *means,
            str(len(group.runs)),
            *(label.replace(" ", NO_BREAK) for label in (group.verdict.label, *other_verdicts)),
            group.verdict.proof,
            ", ".join(dict.fromkeys(row.state for row in control_rows(group.runs, values))),
        ]


def _reproduced(reproduction: Reproduction) -> None:
    """Print the published values that these runs reproduce or contradict."""
    from fa_registry.reporting.pages.published_values import reproduction_table

    shown = reproduction_table(reproduction)
    rows = [
        [row.outcome, row.method, row.quantity, row.published, row.measured, row.reason]
        for row in (*shown.tested, *shown.untested)
        if row.outcome != "not measured"
    ]
    text = ", ".join(f"{count} {outcome}" for outcome, count in shown.counts)
    if rows:
        table(["outcome", "method", "figure", "published", "measured", "why"], rows, "Reproduction")
    print_out(f"reproduction: {text}; the report contains every published value with its source")


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
    changed = [run for run in difference.runs if run.verdict_a != run.verdict_b]
    _section(
        "Verdicts",
        [*RUN, "A", "B"],
        [[*_who(run), run.verdict_a.full_label, run.verdict_b.full_label] for run in changed],
    )
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
    state = f" {finding.state_text}" if finding.state else ""
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
    count = difference.trained_again
    retrained = f", {count} of the common runs have another run id" if count else ""
    return (
        f"different: {verdicts} verdicts, {decided} findings, {figures} metrics; {len(difference.runs)} of {difference.matched} "
        f"common runs changed{retrained}; {len(difference.only_a)} only in A, {len(difference.only_b)} only in B"
    )


COMMANDS = (audit, verify, report, diff)
