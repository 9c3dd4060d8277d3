"""The verb that puts methods or runs side by side: compare."""

from __future__ import annotations

import sys
from typing import Any

import click

from fa_registry.cli import parsing
from fa_registry.cli.options import OUT, TEMPLATES, examples, of_many_runs
from fa_registry.output.compare import compared


@click.command()
@click.argument("operands", nargs=-1, metavar="RUN|METHOD…")
@of_many_runs(
    click.option("--setting", default="", metavar="WORDS", help="Only settings in whose name these words stand."),
    OUT,
    TEMPLATES,
)
@examples(
    "compare dfa bp --study digits",
    "compare 4f1c0a2b 90ab12cd",
    "compare dfa 'dfa+pen λ=0.01' bp --experiment fa_registry --setting digits",
    "compare dfa bp --study digits --recompute --json",
)
def compare(
    epochs: str,
    seeds: str,
    device: str,
    data: str,
    scale: str,
    thresholds: tuple[str, ...],
    as_json: bool,
    **arguments: Any,
) -> None:
    """Put methods (all their seeds) or single runs side by side: verdicts, figures, what differs, paired differences.

    Operands are methods as an audit names them, or the first characters of run ids; they are looked up in the study,
    experiment or runs that are given, else in the whole store. Differences are the first operand minus each of the
    others, over the seeds both have. Writes compare.html. Exit 3: a run is not intact.
    """
    from fa_registry.commands.compare import CompareRequest, run_compare

    request = CompareRequest(
        overrides=parsing.overrides(epochs, seeds, device, data, scale),
        thresholds=parsing.thresholds(thresholds),
        **arguments,
    )
    result = run_compare(request)
    compared(result, as_json)
    sys.exit(result.exit_code)


VERBS = (compare,)
