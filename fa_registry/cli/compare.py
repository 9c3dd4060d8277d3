"""The command `compare`: show methods or runs side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from fa_registry import api
from fa_registry.cli.options import JSON, completer, examples, takes
from fa_registry.cli.tables import TerminalCell, print_json, print_out, print_page, table

if TYPE_CHECKING:
    from fa_registry.audits.compare_command import CompareResult
    from fa_registry.reporting.pages.comparison import ComparedRule, PairedRow, SettingComparison
    from fa_registry.reporting.view_models import Estimate, FindingRow, Row


EXACT = "(exact)"


@click.command(short_help="Show methods or runs side by side, paired by seed.")
@click.argument("operands", nargs=-1, metavar="RUN|METHOD…", shell_complete=completer("methods"))
@takes(api.compare)
@JSON
@examples(
    "compare dfa bp --study digits",
    "compare 4f1c0a2b 90ab12cd",
    "compare dfa 'dfa+pen λ=0.01' bp --experiment fa_registry --setting digits",
    "compare dfa bp --study digits --recompute --json",
)
def compare(operands: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """Show methods or single runs side by side, with paired differences.

    An operand is a method name as in an audit (all its seeds are compared), or the first characters of a run id. Operands are
    searched in the given study, experiment or runs. Without these options, the whole store is searched. A difference is the
    first operand minus another operand, for the seeds that both have. The command writes compare.html.

    Exit 0: all runs are intact, 3: a file or metric of a run differs from what was recorded.
    """
    result = api.compare(*operands, **arguments)
    compared(result, as_json)
    sys.exit(result.exit_code)


# Output: one table per setting, then the paired differences.


def compared(result: CompareResult, as_json: bool) -> None:
    """Print the tables of a comparison and the path of its page, or print JSON without the figures."""
    from fa_registry.protocol.builtin_editions import describe_edition

    context = result.context
    if as_json:
        names = ("title", "selection", "edition", "overrides", "integrity", "excluded", "remarks", "commands")
        fields = {name: getattr(context, name) for name in names}
        parts = [part for part, _ in context.parts]  # without the figures, which are on the page
        page_fields = {"page": str(result.page), "in_mlflow": result.in_mlflow}
        print_json({"exit_code": result.exit_code, **page_fields, "parts": parts, **fields})
        return
    for part, _ in context.parts:
        _part(part, describe_edition(context.edition), context.means)
    states = ", ".join(f"{count.count} {count.outcome}" for count in context.integrity)
    print_out(f"metrics: {states}" + ("; --recompute recomputes them" if "trusted" in states else ""))
    for excluded in context.excluded.shown:
        print_out(f"not compared: {excluded.name}: {excluded.reason}")
    for remark in context.remarks:
        print_out(f"note: {remark}")
    print_page(result.in_mlflow, result.store)
    print_out(
        f"page: {result.page.absolute().as_uri()}", *(line for part, _ in context.parts for line in _answers(part))
    )


def _answers(part: SettingComparison) -> Iterator[str]:
    """Yield the verdicts, and one line per pair of columns with the difference of the main metric."""
    yield f"{part.setting}: " + ", ".join(f"{column.method} {column.verdict.full_label}" for column in part.columns)
    if part.why_not:
        yield part.why_not
    pairs: set[tuple[str, str]] = set()
    for row in part.paired:  # the main metric is the first row of each pair
        if (row.first, row.second) not in pairs:
            pairs.add((row.first, row.second))
            difference, metric, mean, interval, seeds, answer = _paired(row)
            yield f"{difference}, {metric}: {answer}, mean {mean}, 95 % interval {interval}, seeds {seeds}"


def _part(part: SettingComparison, edition: str, means_text: str) -> None:
    from fa_registry.metrics import metric_named, symbol_of
    from fa_registry.reporting.labels import means_in_text

    labels = [column.method for column in part.columns]
    several_settings = len({column.setting for column in part.columns}) > 1
    names = ((column.method, column.setting) if several_settings else column.method for column in part.columns)
    header = ["", *names]
    table(header, list(_rows(part)), f"{part.setting}, by edition {edition}; {means_text}")
    rows = [
        [f"{metric.symbol} site {row.name}", *_marked(row, part.exact_sites(metric.name))]
        for metric in part.sites
        for row in metric.rows
    ]
    if rows:
        exact = f"; {EXACT}: {symbol_of('gamma')} = 1 by construction" if any(part.exact) else ""
        by_site = means_in_text(metric_named(metric.name) for metric in part.sites)
        table(header, rows, f"Site by site, {by_site}{exact}")
    if part.fields:
        rows = [[name, *values] for name, values in part.fields.items()]
        table(["what differs", *labels], rows, "Specifications")
    if part.paired:
        rows = [_paired(row) for row in part.paired]
        table(["difference", "of", "mean", "95 % interval", "seeds", "answer"], rows, "Paired by seed")


def _marked(row: Row[Estimate], exact: Sequence[Sequence[int]]) -> Iterator[str]:
    from fa_registry.reporting.text.filters import counted

    for estimate, exact_sites in zip(row.cells, exact, strict=True):
        yield f"{counted(estimate)} {EXACT}" if int(row.name) in exact_sites else counted(estimate)


def _rows(part: SettingComparison) -> Iterator[list[TerminalCell]]:
    yield ["verdict", *(column.verdict.full_label for column in part.columns)]
    yield ["seeds", *(", ".join(str(row.seed) for row in column.seeds) for column in part.columns)]
    for rule in part.rules:
        yield from _rule(rule)
    for metric in (*part.metrics, *part.aggregates):
        yield [metric.label, *(estimate_text(column.estimates[metric.name]) for column in part.columns)]
    yield ["runs", *(", ".join(row.run_id[:8] for row in column.seeds) for column in part.columns)]


def _rule(rule: ComparedRule) -> Iterator[list[TerminalCell]]:
    head = (f"{rule.rule} {rule.title}", *(f"required {limit}" for limit in rule.required))
    yield [head, *(tuple(map(finding_text, cell)) or "—" for cell in rule.columns)]
    if set(rule.first_fires) != {"never"}:
        yield [f"{rule.rule} first fires", *rule.first_fires]


def _paired(row: PairedRow) -> Sequence[str]:
    from fa_registry.reporting.text.filters import between, number

    bounds = (row.low.value, row.high.value)
    interval = f"N/A: {row.low.reason}" if None in bounds else between(bounds, row.difference.kind)
    answer = f"{row.answer}; {row.remark}" if row.remark else row.answer
    return (
        f"{row.first} − {row.second}",
        f"{row.words} [{row.unit}]",
        number(row.difference),
        interval,
        ", ".join(map(str, row.seeds)) or "—",
        answer,
    )


def finding_text(row: FindingRow) -> str:
    """Return a finding as text, e.g. `EXPLODED, fail: 3.2×10⁸, 2.9×10⁸`, without repeated numbers."""
    from fa_registry.reporting.text.filters import number

    observed = ", ".join(dict.fromkeys(number(measured.observed) for measured in row.said))
    state = f"{row.state}, " if row.state else ""
    outcome = row.outcome.replace("_", " ")
    return f"{state}{outcome}: {observed}"


def estimate_text(estimate: Estimate) -> str:
    """Return an estimate as text: `mean ± deviation (n) [interval]`, or N/A with the reason."""
    from fa_registry.reporting.text.filters import between, counted, number, spread

    if estimate.mean.reading.value is None:
        return f"{number(estimate.mean)}: {estimate.mean.reading.reason}"
    text = counted(estimate) if estimate.n < estimate.of else f"{spread(estimate)} ({estimate.n})"
    if estimate.low.value is None:
        return f"{text}, {estimate.low.reason}"
    return f"{text} [{between((estimate.low.value, estimate.high.value), estimate.kind)}]"


COMMANDS = (compare,)
