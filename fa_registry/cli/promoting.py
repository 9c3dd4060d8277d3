"""The verb that hands a judged run on as a registered model: promote."""

from __future__ import annotations

from typing import Any

import click

from fa_registry.cli.options import DATA_ROOT, JSON, STORE, examples
from fa_registry.output.promote import promoted


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--name", default="", help="The registered model [from the labels of method and setting].")
@click.option(
    "--alias",
    "aliases",
    multiple=True,
    metavar="ALIAS",
    help="Beside pass, warn, …, the verdict's own; may be repeated.",
)
@click.option("--edition", default="", help="Whose verdict decides [the leading one of the newest audit].")
@click.option("--despite", default=None, metavar="REASON", help="Promote a FAIL or INCOMPLETE; kept with the model.")
@click.option("--author", default="", metavar="NAME", help="Who decides so, with --despite [your login name].")
@DATA_ROOT
@STORE
@JSON
@examples(
    "promote 4f1c…",
    "promote 4f1c… --alias champion",
    "promote 4f1c… --name dfa-digits --edition 2026-05",
    'promote 4f1c… --despite "the negative control of our tutorial"',
)
def promote(as_json: bool, **arguments: Any) -> None:
    """Register the final weights of an audited run as a model version, its verdict travelling with it.

    RUN: an id or its beginning. Its figures are measured again first, as by `verify`. A version holds safetensors, the
    specification and a card, no pickle and no MLflow flavour: load it with fa_registry.load_model("models:/NAME@alias").
    A run that FAILs, or lacks evidence, is refused without --despite.
    """
    from fa_registry.commands.promote import PromoteRequest, run_promote

    promoted(run_promote(PromoteRequest(**arguments)), as_json)


VERBS = (promote,)
