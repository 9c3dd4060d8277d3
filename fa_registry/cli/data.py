"""The verb for data sets and their files."""

from __future__ import annotations

import functools
import sys

import click

from fa_registry.cli.options import DATA_ROOT, JSON, examples
from fa_registry.cli.parsing import folder
from fa_registry.output.data import checked, overviewed, placed

ACTIONS = ("list", "where", "fetch", "check")


@click.command()
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("name", default="")
@DATA_ROOT
@JSON
@examples(
    "data list",
    "data where cifar10 --data-root ~/data",
    "data fetch cifar10 --data-root ~/data",
    "data check --data-root ~/data --json",
)
def data(action: str, name: str, data_root: str, as_json: bool) -> None:
    """Data sets and the files they need. Exit 3: a file is missing or not as published.

    \b
    ACTION is one of
      list   every data set, and whether what it needs is here
      where  the exact path and MD5 of every file
      fetch  download the files of NAME by torchvision, and decode them
      check  digests of files and decoded images, and their counts
    The folder is --data-root, else FA_REGISTRY_DATA, else ./data.
    """
    from fa_registry.commands import data as verb

    root, report = folder(data_root), functools.partial(click.echo, err=True)
    if action == "list":
        overviewed(verb.overview(name, root), as_json)
    elif action == "where":
        placed(verb.places(name, root), as_json)
    else:
        rows = verb.fetch(name, root, report) if action == "fetch" else verb.check(name, root, report)
        sys.exit(checked(rows, as_json))


VERBS = (data,)
