"""The command line: one function a verb, no logic. Heavy imports wait until a verb runs, so that --help is instant."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from fa_registry.cli import analyse, audit, compare, inspect, models, train
from fa_registry.cli.tables import print_err
from fa_registry.errors import RegistryError
from fa_registry.output_streams import outlive_readers
from fa_registry.text_safety import escape_message

# Python's 700 makes it look for cycles through modules and records that stay, again and again
NEW_OBJECTS_BETWEEN_COLLECTIONS = 20_000


class _OnStandardError(logging.Handler):
    """Prints each message bare."""

    def emit(self, record: logging.LogRecord) -> None:
        print_err(record.getMessage())


@contextmanager
def _reported() -> Iterator[None]:
    """Inside, what this package logs is printed on standard error, and nowhere else."""
    log, handler = logging.getLogger("fa_registry"), _OnStandardError()
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False  # MLflow gives the root logger a handler of its own while it makes a database
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before


@contextmanager
def _launched(context: click.Context) -> Iterator[None]:
    """Inside `mlflow run`: the run that it began, and that the verb did not take over, is put away however the verb ends."""
    try:
        yield
    finally:
        if "MLFLOW_RUN_ID" in os.environ:
            from fa_registry.workflows.stores import trash_launcher_run  # MLflow: seconds

            try:
                trash_launcher_run(context.invoked_subcommand or "")
            except RegistryError as error:  # what the verb did and how it ended is not changed by that
                logging.getLogger("fa_registry").warning("the run that MLflow began stays as it is: %s", error)


GROUPS = {
    "Train": ("train", "study", "work", "run", "adopt", "new", "data"),
    "Judge": ("audit", "verify", "analyse", "compare", "diff", "lint"),
    "Look": ("list", "watch", "show", "card", "doctor", "forget", "optimize"),
    "Share": ("report", "bundle", "import", "promote"),
}
LINE = 66  # characters that a verb's line of help may have beside its name


class RegistryGroup(click.Group):
    """Prints this package's errors, and a disk's, as one message with an exit code; anything else is a bug: its traceback."""

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Run the command. A reader of its output that leaves changes neither what it does nor its exit code."""
        outlive_readers()
        return super().main(*arguments, **named)

    def invoke(self, context: click.Context) -> Any:
        """The verb; exits with the error's code."""
        try:
            with _reported(), _launched(context):
                return super().invoke(context)
        except RegistryError as error:
            print_err(f"fa-registry: {error}")
            sys.exit(error.exit_code)
        except click.UsageError as error:  # click repeats what was typed
            error.message = escape_message(error.message)
            raise
        except OSError as error:
            from fa_registry.tracking.store_errors import StoreRefusal

            refusal = StoreRefusal("the disk", error)
            if not refusal.kind:  # a fault of ours
                raise
            print_err(f"fa-registry: {refusal}")
            sys.exit(refusal.exit_code)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """By what somebody is about to do, each in the order in which one comes to it."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(LINE)) for name in names])


@click.group(cls=RegistryGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fa_registry")
def main() -> None:
    """Feedback-alignment experiments: train, track in MLflow, audit by protocol, report.

    `fa-registry VERB --help` has options and examples. TAB completes verbs and names: docs/shell-completion.md.
    """
    gc.set_threshold(NEW_OBJECTS_BETWEEN_COLLECTIONS)


for commands in (train, models, audit, compare, analyse, inspect):
    for command in commands.COMMANDS:
        main.add_command(command)
