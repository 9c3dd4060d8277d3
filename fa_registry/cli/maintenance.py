"""The commands that serve, check or clean up a store, and their output."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fa_registry.cli.options import JSON, examples, takes
from fa_registry.cli.tables import SHORT_ID, print_err, print_json, print_out, table
from fa_registry.errors import UsageError
from fa_registry.studies.options import StoreLocation

if TYPE_CHECKING:
    from fa_registry.inspection.forget import ForgettableRun


STORE = takes(StoreLocation, only="store")


@click.command(short_help="Check versions, store and data; clean up after killed runs.")
@click.option("--repair", is_flag=True, help="Remove stale files of killed processes; files in use are kept.")
@click.option(
    "--gone",
    multiple=True,
    metavar="MACHINE",
    help="With --repair: end the runs of a machine or container that no longer exists, if they have no heartbeat; repeatable.",
)
@click.option("--out", "pages", default="reports", metavar="FOLDER", help="Folder of pages to check [reports].")
@STORE
@JSON
@examples(
    "doctor", "doctor --repair", "doctor --repair --gone 3f2a90ab11cd", "doctor --store sqlite:///other.db --json"
)
def doctor(repair: bool, gone: tuple[str, ...], pages: str, store: str, as_json: bool) -> None:
    """Check versions, device, store and data, and find stale files of killed processes.

    Exit 0: all checks pass, 1: a check fails.
    """
    from fa_registry.inspection.doctor import examine

    rows = examine(store, repair, pages, gone)
    if as_json:
        print_json(rows)
    else:
        cells = [[row["check"], state_text(row), str(row["found"])] for row in rows]
        table(["check", "", "found"], cells, "")
    sys.exit(0 if all(row["ok"] for row in rows) else 1)


def state_text(row: Mapping[str, Any]) -> str:
    return row.get("state", "ok" if row["ok"] else "NOT OK")


@click.command(short_help="Show the runs of a store in MLflow's pages.")
@click.option(
    "--study", default="", metavar="NAME", help="Study whose runs are compared [the study of the newest run]."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the pages on this machine [5000, or a free port].")
@STORE
@JSON
@examples("ui", "ui --study digits", "ui --store sqlite:///other.db --port 5001")
def ui(study: str, port: int | None, store: str, as_json: bool) -> None:
    """Start MLflow's pages for a store and print the address that compares the runs.

    The pages can be opened on this machine only. Press Ctrl-C to end the command.
    """
    from fa_registry.inspection.ui import served_pages, wait_for_end

    with served_pages(store, study, port or 0) as (address, server):
        print_json({"address": address}) if as_json else print_out(f"MLflow's pages: {address}")
        print_err(
            "To enlarge the charts, close the panel MLflow Assistant with its ×. MLflow remembers that the panel is closed."
        )
        if server:
            print_err("To end, press Ctrl-C.")
            wait_for_end(server)


@click.command(short_help="Move failed or mistaken runs to MLflow's bin.")
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN…")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the runs without moving them.")
@STORE
@JSON
@examples("forget 4f1c0a2b", "forget 4f1c0a2b --dry-run", "forget 4f1c0a2b 90ab77de --yes --json")
def forget(run_ids: tuple[str, ...], yes: bool, dry_run: bool, store: str, as_json: bool) -> None:
    """Move runs to MLflow's bin after confirmation, and print the command that restores each run.

    RUN is a run id, or the first characters of a run id. A later audit of the same method and setting lists a run in the bin as
    deleted. `mlflow gc` deletes the runs in the bin permanently.

    The command does not move a run in four cases: the training has not ended, the run is an audit, the run is a study with
    training runs, or the weights are registered as a model.
    """
    from fa_registry.inspection.forget import forgettable, run_forget

    if dry_run:
        runs = forgettable(run_ids, store)
        (print_json if as_json else _print_forgettable)(runs)
        return
    if not yes:
        runs = forgettable(run_ids, store)
        if as_json or not _can_answer():
            raise UsageError("forget asks for confirmation, which is not possible here; add --yes to confirm")
        _print_forgettable(runs)
        click.confirm("Move these runs to MLflow's bin?", abort=True)
    forgotten = run_forget(run_ids, store)
    if as_json:
        print_json(forgotten)
        return
    print_out(*(f"{run.run_id}: moved to MLflow's bin; to restore the run: {run.restore}" for run in forgotten))
    print_out("audits list the runs in the bin as deleted; `mlflow gc` deletes the runs in the bin permanently")


def _can_answer() -> bool:
    return sys.stdin.isatty()


def _print_forgettable(runs: Sequence[ForgettableRun]) -> None:
    columns = ["run", "what", "method", "setting", "seed", "status", "verdict", "proof", "size"]
    sizes = ["unknown" if run.size is None else f"{run.size / 2**20:.1f} MiB" for run in runs]
    rows = [
        [run.run_id[:SHORT_ID], run.kind, run.method, run.setting, run.seed, run.status.replace("_", " ")]
        for run in runs
    ]
    judged = ([run.verdict, run.proof, size] for run, size in zip(runs, sizes, strict=True))
    table(columns, [[*row, *cells] for row, cells in zip(rows, judged, strict=True)], "")


@click.command("optimize-store", short_help="Speed up queries of a large sqlite store.")
@STORE
@JSON
@examples("optimize-store", "optimize-store --store sqlite:///other.db")
def optimize_store(store: str, as_json: bool) -> None:
    """Speed up queries of a large sqlite store with ANALYZE. The content of the store does not change."""
    from fa_registry.inspection.inspect_runs import run_optimize

    result = run_optimize(store)
    if as_json:
        print_json(result)
    else:
        rows = [[name, f"{count:,}"] for name, count in result["rows"].items()]
        table(["table", "rows"], rows, f"analysed {result['store']}")


COMMANDS = (ui, doctor, forget, optimize_store)
