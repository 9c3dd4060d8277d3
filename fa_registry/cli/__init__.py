"""The command line: one function per command, without program logic.

Large packages are imported only when a command runs, so `--help` is fast.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from fa_registry.cli import analyse, audit, compare, inspect, maintenance, models, train
from fa_registry.cli.options import AS_JSON
from fa_registry.cli.tables import print_err, print_json
from fa_registry.errors import Interrupted, InvalidFields, RegistryError
from fa_registry.output_streams import outlive_readers, print_warnings
from fa_registry.text_safety import escape_message

# With Python's default of 700, the garbage collector would search long-lived modules and records for cycles too often.
NEW_OBJECTS_BETWEEN_COLLECTIONS = 20_000


class _OnStandardError(logging.Handler):
    """Logging handler that prints each message on standard error without a prefix."""

    def emit(self, record: logging.LogRecord) -> None:
        print_err(record.getMessage())


@contextmanager
def _reported() -> Iterator[None]:
    """Context manager that prints this package's log messages on standard error only."""
    log, handler = logging.getLogger("fa_registry"), _OnStandardError()
    previous = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False  # MLflow adds a handler to the root logger while it creates a database
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = previous


@contextmanager
def _launched(context: click.Context) -> Iterator[None]:
    """Context manager that cleans up the run that `mlflow run` created, if no command has used this run."""
    try:
        yield
    finally:
        if "MLFLOW_RUN_ID" in os.environ:
            from fa_registry.tracking.stores import trash_launcher_run  # importing MLflow takes seconds

            try:
                trash_launcher_run(context.invoked_subcommand or "")
            except RegistryError as error:  # a failed clean-up does not change the command's exit code
                text = "the run that MLflow created could not be cleaned up: %s"
                logging.getLogger("fa_registry").warning(text, error)


GROUPS = {
    "Train": ("train", "study", "worker", "run", "adopt", "new", "data"),
    "Judge": ("audit", "verify", "analyse", "compare", "diff", "lint"),
    "Inspect": ("ui", "list", "watch", "show", "info", "doctor", "forget", "optimize-store"),
    "Share": ("report", "bundle", "import", "promote"),
}
LINE = 66  # largest length of a command's one-line help


class RegistryGroup(click.Group):
    """Group of all commands.

    Errors of this package and of the file system are printed as one message, and set the exit code. Other errors are bugs and are
    printed with a traceback.
    """

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Run the command line.

        A closed output pipe, an encoding without Γ or a warning does not affect the exit code.
        """
        print_warnings()
        outlive_readers()
        return super().main(*arguments, **named)

    def invoke(self, context: click.Context) -> Any:
        """Run the command; if it fails, print the error and exit with the error's exit code."""
        try:
            with _reported(), _launched(context):
                return super().invoke(context)
        except RegistryError as error:
            print_err(f"fa-registry: {error}")
            if isinstance(error, InvalidFields) and context.meta.get(AS_JSON):
                print_json({"problems": [problem.fields for problem in error.problems]})
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            print_err("fa-registry: stopped on request; the same command can be repeated")
            sys.exit(Interrupted.exit_code)
        except click.UsageError as error:  # click's message contains the user's input
            error.message = escape_message(error.message)
            if type(error) is click.UsageError and error.ctx:  # an argument that the command does not take
                parameters = error.ctx.command.params
                takes_argument = any(isinstance(one, click.Argument) for one in parameters)
                if not takes_argument and any("--study" in one.opts for one in parameters):
                    error.message += ". A study is selected with --study NAME"
            raise
        except OSError as error:
            from fa_registry.tracking.store_errors import StoreRefusal

            refusal = StoreRefusal("the disk", error)
            if not refusal.kind:  # a bug in this package
                raise
            print_err(f"fa-registry: {refusal}")
            sys.exit(refusal.exit_code)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, grouped by task, for `--help`."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(LINE)) for name in names])


@click.group(cls=RegistryGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fa_registry")
def main() -> None:
    """Feedback-alignment experiments: train, track in MLflow, audit by protocol, report.

    `fa-registry COMMAND --help` lists options and examples. To complete commands and names with the TAB key, see
    docs/shell-completion.md.
    """
    gc.set_threshold(NEW_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)  # otherwise Python would search all imported modules for cycles before the process ends


for commands in (train, models, audit, compare, analyse, inspect, maintenance):
    for command in commands.COMMANDS:
        main.add_command(command)
