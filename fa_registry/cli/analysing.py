"""The verb that asks questions of many runs: analyse."""

from __future__ import annotations

import sys
from typing import Any

import click

from fa_registry.cli import parsing
from fa_registry.cli.options import examples, of_many_runs
from fa_registry.output.analyse import analysed


@click.command()
@click.argument("name", metavar="NAME")
@of_many_runs(
    click.option("--out", default="reports/analyses", show_default=True, help="Folder for JSON, CSV and PNG.")
)
@examples(
    "analyse all --study digits",
    "analyse sensitivity --study digits --edition 2026-11",
    "analyse ablation --study digits --seeds 42 --json",
    "analyse penalty --experiment fa_registry --out penalties",
)
def analyse(
    epochs: str,
    seeds: str,
    device: str,
    data: str,
    scale: str,
    thresholds: tuple[str, ...],
    as_json: bool,
    **arguments: Any,
) -> None:
    """Ask one question of many judged runs: table here, JSON, CSV and figure in a folder. Exit 3: a run is not intact.

    \b
    NAME is one of
      sensitivity  how far each threshold may move before any verdict changes
      ablation     which subset of accuracy, Γ and the rules rejects which runs
      first-fire   at which epoch each rule first fires
      aggregation  how far the way of averaging moves Γ
      penalty      what each strength of the residual penalty does
      per-layer    the gradient and Γ of every site
      ladder       accuracy by the number of trained blocks, and by depth
      cross-architecture  what one method does on every network
      ranges       between which values healthy and failing runs lie
      all          every one of them
    """
    from fa_registry.commands.analyse import AnalyseRequest, run_analyse

    request = AnalyseRequest(
        overrides=parsing.overrides(epochs, seeds, device, data, scale),
        thresholds=parsing.thresholds(thresholds),
        **arguments,
    )
    result = run_analyse(request)
    analysed(result, as_json, several=request.name == "all")
    sys.exit(result.exit_code)


VERBS = (analyse,)
