"""The verbs that look (lint, list, card, show, doctor, optimize), and optimize."""

from __future__ import annotations

import sys

import click

from fa_registry.cli.options import JSON, STORE, examples
from fa_registry.output.lint import linted
from fa_registry.output.tools import carded, examined, listed, optimized, shown


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@JSON
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0, as code hosts and editors read it.")
@examples("lint .", "lint train.py analysis.ipynb --json", "lint src --sarif > pitfalls.sarif")
def lint(paths: tuple[str, ...], as_json: bool, as_sarif: bool) -> None:
    """Find protocol pitfalls in any code, without importing it. Exit 1: found some, 0: none, 2: nothing to read."""
    from fa_registry.commands.lint import run_lint

    sys.exit(linted(run_lint(paths, as_json, as_sarif), as_json, as_sarif))


@click.command("list")
@click.argument("family", default="methods")
@JSON
@examples("list methods", "list studies --json")
def list_(family: str, as_json: bool) -> None:
    """List methods, architectures, datasets, diagnostics, analyses, editions, studies or templates."""
    from fa_registry.commands.listing import members

    listed(members(family), as_json)


@click.command()
@click.argument("name")
@click.option("--family", default="", help="Where the name is to be looked up [methods first].")
@JSON
@examples("card dfa", "card gamma --family diagnostics --json")
def card(name: str, family: str, as_json: bool) -> None:
    """Show all that is declared of a method, architecture, data set or diagnostic: equations, deviations, options, source."""
    from fa_registry.commands.cards import card_of

    carded(card_of(name, family), as_json)


@click.command()
@click.argument("run_id")
@STORE
@JSON
@examples("show 4f1c0a2b", "show 4f1c0a2b --json")
def show(run_id: str, store: str, as_json: bool) -> None:
    """Show one run: specification, figures site by site, provenance. The first characters of the id will do."""
    from fa_registry.commands import inventory

    shown(inventory.show(run_id, store), as_json)


@click.command()
@STORE
@JSON
@examples("doctor", "doctor --store sqlite:///other.db --json")
def doctor(store: str, as_json: bool) -> None:
    """Check versions, device, store and data. Exit 1 if something is not in order."""
    from fa_registry.commands.inventory import examine

    sys.exit(examined(examine(store), as_json))


@click.command()
@STORE
@JSON
@examples("optimize", "optimize --store sqlite:///other.db")
def optimize(store: str, as_json: bool) -> None:
    """Make a large sqlite store quick to look through (ANALYZE); nothing in it changes."""
    from fa_registry.commands.optimize import run_optimize

    optimized(run_optimize(store), as_json)


VERBS = (lint, list_, card, show, doctor, optimize)
