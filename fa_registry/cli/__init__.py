"""The command line: one function a verb, no logic. Heavy imports wait until a verb runs, so that --help is instant."""

from __future__ import annotations

import gc
import sys
from typing import Any

import click

from fa_registry.cli import analysing, auditing, comparing, looking, models, training
from fa_registry.errors import RegistryError

# Python's 700 makes it look for cycles through modules and records that stay, again and again
NEW_OBJECTS_BETWEEN_COLLECTIONS = 20_000


class Verbs(click.Group):
    """Prints this package's errors as one message with their exit code; anything else is a bug and shows its traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except RegistryError as error:
            click.echo(f"fa-registry: {error}", err=True)
            sys.exit(error.exit_code)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fa_registry")
def main() -> None:
    """Feedback-alignment experiments: train, track in MLflow, audit by protocol, report."""
    gc.set_threshold(NEW_OBJECTS_BETWEEN_COLLECTIONS)


for verbs in (training, models, auditing, comparing, analysing, looking):
    for verb in verbs.VERBS:
        main.add_command(verb)
