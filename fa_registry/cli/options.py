"""Options that several commands share, and the decorator `examples` for their help."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence

import click

from fa_registry.cli import shell_completion
from fa_registry.errors import InvalidFields
from fa_registry.process_ownership import LEASE
from fa_registry.studies import study_variants
from fa_registry.studies.executors import CATALOG
from fa_registry.studies.executors.base import SILENCE
from fa_registry.tracking.base import MOST_POINTS

MOST_THREADS = 1024
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
STORE = click.option(
    "--store", default="", metavar="URI", help="Tracking store [MLFLOW_TRACKING_URI, else sqlite:///mlflow.db]."
)
ARCHITECTURE = click.option(
    "--architecture", default="resmlp", show_default=True, shell_complete=shell_completion.family("architectures")
)
DATASET = click.option(
    "--dataset", default="digits", show_default=True, shell_complete=shell_completion.family("datasets")
)
METHOD = click.option(
    "--method", default="", help="Credit rule, see `list methods`.", shell_complete=shell_completion.family("methods")
)
SEED = click.option("--seed", default="", help="One integer; required.")
PENALTY = click.option("--penalty", default="0", show_default=True, help="λ of the residual penalty.")
SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="Recipe fields (learning_rate=…) and options (architecture.d_hidden=…, method.…).",
)
EXPERIMENT = click.option("--experiment", default="", help="Experiment for new runs [fa_registry].")
DATA_ROOT = click.option("--data-root", default="", help="Folder of data sets that need files.")
DEVICE = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="auto, cuda, cuda:N or cpu; auto prefers CUDA.",
    shell_complete=shell_completion.choices("auto", "cuda", "cpu"),
)
FORCE = click.option("--force", is_flag=True, help="Retrain runs that are already complete.")
KEEP_TRAINED = click.option(
    "--accept-old-code",
    "keep_trained",
    is_flag=True,
    help="Keep finished runs that other code than the installed one has trained.",
)
CHECKPOINT_EVERY = click.option(
    "--checkpoint-every",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Also keep the weights of every Nth epoch, and the initial ones [0: only the last ones].",
)
KEEP_STATES = click.option(
    "--keep-states",
    type=click.IntRange(min=0),
    default=0,
    metavar="K",
    help="Also keep K states per run, from each of which an audit replays one epoch [the study's keep_states, else 0].",
)
POINTS = click.option(
    "--max-chart-points",
    "points",
    type=click.IntRange(min=0),
    default=MOST_POINTS,
    show_default=True,
    metavar="N",
    help="Points of each metric that MLflow's charts show (0: every epoch); series.parquet has every epoch.",
)
HANG_TIMEOUT = click.option(
    "--hang-timeout",
    "silence",
    default=str(SILENCE),
    show_default=True,
    metavar="SECONDS",
    help="Kill a worker process that finishes no epoch for this many seconds (0: never).",
)
HEARTBEAT_TIMEOUT = click.option(
    "--heartbeat-timeout",
    "lease",
    default=str(LEASE),
    show_default=True,
    metavar="SECONDS",
    help="Seconds without a heartbeat after which another machine's run is considered abandoned and may be retrained.",
)
EPOCHS = click.option("--epochs", default="", help="Epochs instead of the study's.")
SEEDS = click.option("--seeds", default="", metavar="S,S,…", help="Seeds instead of the study's.")
DATA = click.option(
    "--replace-dataset",
    "data",
    default="",
    metavar="NAME",
    help=f"The study on another image set: {study_variants.RULE}.",
    shell_complete=shell_completion.family("datasets"),
)
SCALE = click.option(
    "--scale",
    default="",
    metavar="F",
    help=f"Other epochs than the study's: {study_variants.SCALING}. Not with --epochs.",
)
STUDY = click.option(
    "--study",
    default="",
    metavar="NAME",
    help="All runs of a study, as its study.toml is now.",
    shell_complete=shell_completion.studies(),
)
RUN = click.option("--run", "run_ids", multiple=True, metavar="ID", help="One run; may be repeated.")
FACTORIES = click.option(
    "--factory",
    "factories",
    multiple=True,
    metavar="PACKAGE.MODULE:FUNCTION",
    help="Trusted factory function that builds the model of a tracked loop, so that its runs can be recomputed; repeatable.",
)
MEASURING_JOBS = click.option(
    "--jobs",
    default="0",
    metavar="N",
    help="Processes that recompute runs in parallel [one per core, if it is worth it].",
)
REPLAY = click.option(
    "--replay",
    default="auto",
    show_default=True,
    metavar="N|auto|all|off",
    help="Training to replay. auto: one whole run of every group and every frozen control, 8 steps of the others; all: every "
    "run; N: the first N steps of every run.",
)
NONCE = click.option(
    "--nonce",
    default="",
    metavar="HEX",
    help="Repeat the choice of whole replays of an earlier audit [a new random nonce].",
)
JOBS = click.option(
    "--jobs",
    default="0",
    metavar="N",
    help="Runs in parallel: processes of one thread [one per core]; on a GPU interleaved in one process [8].",
)
EXECUTOR = click.option(
    "--executor",
    default="",
    metavar="NAME",
    help=f"Executor: {', '.join(CATALOG.builtin_names())}, or one of a plug-in [chosen for this machine].",
    shell_complete=shell_completion.family("executors", "studies.executors"),
)
ADDRESS = click.option(
    "--address",
    default="",
    metavar="HOST:PORT",
    help="The cluster. ray: HOST:PORT, auto or local [RAY_ADDRESS, else auto]; submitit: slurm or local [slurm].",
)
CPUS = click.option(
    "--cpus-per-run", default="1", show_default=True, metavar="N", help="CPUs of the cluster to reserve per run."
)
GPUS = click.option(
    "--gpus-per-run", default="", metavar="F", help="Share of one GPU to reserve per run [0.125 with GPUs, else 0]."
)
MEMORY = click.option(
    "--memory", default="", metavar="SIZE", help="Memory to reserve per run, e.g. 4GiB [no reservation]."
)
OUT = click.option("--out", default="reports", show_default=True, help="Folder for the pages.")
TEMPLATES = click.option(
    "--templates",
    default="",
    metavar="DIR",
    help="Folder of your own templates, which replace shipped ones of the same name; sandboxed.",
)
EDITION = click.option(
    "--edition",
    default="",
    help="Rules to judge by: a name, or the path of a .toml [the study's].",
    shell_complete=shell_completion.editions(),
)
EDITIONS = click.option(
    "--editions",
    default="",
    metavar="E,E,…",
    help="Several editions side by side; the study's leads if it is one of them.",
    shell_complete=shell_completion.several(shell_completion.editions()),
)
THRESHOLD = click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="RULE=NUMBER",
    help="Another threshold for a rule of the leading edition, which is then marked as modified; repeatable.",
)
WAIVERS = click.option(
    "--waivers", default="", metavar="FILE", help="Findings to waive [the file that the study names]."
)
STRICT = click.option(
    "--strict",
    is_flag=True,
    help="Judge as the published code does, FAIL if any rule fires: short for --edition 2026-05:strict.",
)
STOP_ON = click.option(
    "--stop-on",
    default="",
    metavar="RULE,…",
    help="End a run at the epoch in which one of these rules fires; its status is then stopped_early, never complete.",
)
TRUST_LOGGED = click.option("--trust-logged", is_flag=True, help="Judge logged metrics without recomputing them.")


RECOMPUTE = click.option(
    "--recompute/--trust-logged",
    default=False,
    help="Recompute every run first, or use its logged metrics [--trust-logged].",
)
EXPERIMENT_RUNS = click.option("--experiment", default="", help="All runs of an experiment.")


def together(*options: Callable) -> Callable:
    """Return one decorator that adds several options, in the order of the help text."""

    def add(function: Callable) -> Callable:
        for option in reversed(options):  # decorators apply inside out
            function = option(function)
        return function

    return add


CLUSTER_OPTIONS = together(EXECUTOR, ADDRESS, CPUS, GPUS, MEMORY)
STUDY_OVERRIDES = together(EPOCHS, SEEDS, DATA, SCALE, DEVICE)
TRAINING = together(
    EDITION,
    STOP_ON,
    EXPERIMENT,
    CHECKPOINT_EVERY,
    KEEP_STATES,
    POINTS,
    HANG_TIMEOUT,
    HEARTBEAT_TIMEOUT,
    DATA_ROOT,
    STORE,
    FORCE,
    KEEP_TRAINED,
)


def of_many_runs(*own: Callable) -> Callable:
    """Return a decorator that adds the options of a command that selects and judges runs.

    Args:
        own: additional options of the command.
    """
    judging = (STUDY, RUN, EXPERIMENT_RUNS, EDITION, THRESHOLD, RECOMPUTE, MEASURING_JOBS)
    return together(*judging, STUDY_OVERRIDES, *own, DATA_ROOT, STORE, JSON)


def examples(*lines: str) -> Callable:
    """Return a decorator that appends a block of examples to a command's help.

    Args:
        lines: example commands without the leading `fa-registry`.
    """

    def add(function: Callable) -> Callable:
        function.__doc__ = (
            inspect.cleandoc(function.__doc__ or "")
            + "\n\n\b\nExamples:\n"
            + "\n".join(f"  fa-registry {line}" for line in lines)
        )
        return function

    return add


# Parsing of typed values.


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """Return the values of the `--set name=value,…` options by name.

    Raises:
        InvalidFields: an option is not of the form NAME=VALUE.
    """
    split = [pair.partition("=") for several in pairs for pair in several.split(",") if pair]
    problems = [f"--set {name}: expected NAME=VALUE" for name, separator, _ in split if not separator]
    if problems:
        raise InvalidFields("settings", problems)
    return {name: value for name, _, value in split}


def thresholds(pairs: Sequence[str]) -> dict[str, float]:
    """Return the thresholds of the `--threshold RULE=NUMBER` options by rule code.

    Raises:
        InvalidFields: an option is not of the form RULE=NUMBER, or a rule occurs twice.
    """
    limits: dict[str, float] = {}
    problems = []
    for pair in pairs:
        rule, _, number = pair.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not rule.strip() or not math.isfinite(value):
            problems.append(f"--threshold {pair}: expected RULE=NUMBER, D1=100")
        elif rule.strip() in limits:
            problems.append(f"--threshold {pair}: {rule.strip()} is given twice")
        limits[rule.strip()] = value
    if problems:
        raise InvalidFields("thresholds", problems)
    return limits
