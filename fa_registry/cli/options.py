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
    "--store",
    default="",
    metavar="URI",
    help="MLflow tracking URI of the store [MLFLOW_TRACKING_URI, else sqlite:///mlflow.db].",
)
ARCHITECTURE = click.option(
    "--architecture", default="resmlp", show_default=True, shell_complete=shell_completion.family("architectures")
)
DATASET = click.option(
    "--dataset", default="digits", show_default=True, shell_complete=shell_completion.family("datasets")
)
METHOD = click.option(
    "--method",
    default="",
    help="Method (credit rule), see `list methods`.",
    shell_complete=shell_completion.family("methods"),
)
SEED = click.option("--seed", default="", help="Seed of the run, an integer; required.")
PENALTY = click.option(
    "--penalty", default="0", show_default=True, help="Strength λ of the residual penalty; 0: no penalty."
)
SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="New values of recipe fields (learning_rate=…) and of options (architecture.d_hidden=…, method.…).",
)
EXPERIMENT = click.option(
    "--experiment", default="", help="MLflow experiment in which new runs are created [fa_registry]."
)
DATA_ROOT = click.option("--data-root", default="", help="Folder that contains the files of the data sets.")
DEVICE = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Device: auto, cuda, cuda:N or cpu; auto uses CUDA if CUDA is available.",
    shell_complete=shell_completion.choices("auto", "cuda", "cpu"),
)
FORCE = click.option("--force", is_flag=True, help="Retrain runs that are already complete.")
KEEP_TRAINED = click.option(
    "--accept-old-code",
    "keep_trained",
    is_flag=True,
    help="Keep finished runs although they were trained with other code than the installed code.",
)
CHECKPOINT_EVERY = click.option(
    "--checkpoint-every",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Also store the initial weights and the weights of every Nth epoch [0: only the final weights].",
)
KEEP_STATES = click.option(
    "--keep-states",
    type=click.IntRange(min=0),
    default=0,
    metavar="K",
    help="Also store K training states per run, so an audit can replay K epochs [the study's keep_states, else 0].",
)
POINTS = click.option(
    "--max-chart-points",
    "points",
    type=click.IntRange(min=0),
    default=MOST_POINTS,
    show_default=True,
    metavar="N",
    help="Number of points per metric in MLflow's charts (0: one per epoch). The file series.parquet has every epoch.",
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
    help="Seconds without a heartbeat after which a run on another machine counts as abandoned and may be retrained.",
)
EPOCHS = click.option("--epochs", default="", help="Number of epochs, instead of the number in the study.")
SEEDS = click.option("--seeds", default="", metavar="S,S,…", help="Seeds, instead of the seeds in the study.")
DATA = click.option(
    "--replace-dataset",
    "data",
    default="",
    metavar="NAME",
    help=f"Replace the study's image data set: {study_variants.RULE}.",
    shell_complete=shell_completion.family("datasets"),
)
SCALE = click.option(
    "--scale",
    default="",
    metavar="F",
    help=f"Scale the study's number of epochs: {study_variants.SCALING}. Not with --epochs.",
)
STUDY = click.option(
    "--study",
    default="",
    metavar="NAME",
    help="Select all runs of a study, according to its current study.toml.",
    shell_complete=shell_completion.studies(),
)
RUN = click.option("--run", "run_ids", multiple=True, metavar="ID", help="Select one run; repeatable.")
FACTORIES = click.option(
    "--factory",
    "factories",
    multiple=True,
    metavar="PACKAGE.MODULE:FUNCTION",
    help="Trusted function that builds the model of a user-supplied training loop, to recompute the runs of this loop; repeatable.",
)
MEASURING_JOBS = click.option(
    "--jobs",
    default="0",
    metavar="N",
    help="Number of processes that recompute runs in parallel [one per core, if this saves time].",
)
REPLAY = click.option(
    "--replay",
    default="auto",
    show_default=True,
    metavar="N|auto|all|off",
    help="Training steps to replay. auto: all steps of one run per group and of every frozen control, 8 steps of each "
    "remaining run; all: all steps of every run; N: the first N steps of every run; off: none.",
)
NONCE = click.option(
    "--nonce",
    default="",
    metavar="HEX",
    help="Nonce of an earlier audit, to replay the same runs completely [a new random nonce].",
)
JOBS = click.option(
    "--jobs",
    default="0",
    metavar="N",
    help="Number of simultaneous runs: on a CPU one process per run [one per core], on a GPU all in one process [8].",
)
EXECUTOR = click.option(
    "--executor",
    default="",
    metavar="NAME",
    help=f"Executor: {', '.join(CATALOG.builtin_names())}, or the name of a plug-in [chosen for this machine].",
    shell_complete=shell_completion.family("executors", "studies.executors"),
)
ADDRESS = click.option(
    "--address",
    default="",
    metavar="HOST:PORT",
    help="Address of the cluster. ray: HOST:PORT, auto or local [RAY_ADDRESS, else auto]; submitit: slurm or local [slurm].",
)
CPUS = click.option(
    "--cpus-per-run",
    default="1",
    show_default=True,
    metavar="N",
    help="Number of CPUs to reserve per run on the cluster.",
)
GPUS = click.option(
    "--gpus-per-run",
    default="",
    metavar="F",
    help="Fraction of one GPU to reserve per run [0.125 if runs train on a GPU, else 0].",
)
MEMORY = click.option(
    "--memory", default="", metavar="SIZE", help="Memory to reserve per run on the cluster, e.g. 4GiB [no reservation]."
)
OUT = click.option("--out", default="reports", show_default=True, help="Folder to which the pages are written.")
TEMPLATES = click.option(
    "--templates",
    default="",
    metavar="DIR",
    help="Folder of your templates. Each replaces the built-in template with the same file name. Templates run in a sandbox.",
)
EDITION = click.option(
    "--edition",
    default="",
    help="Edition (rules) to judge by: a name, or the path of a .toml file [the study's edition].",
    shell_complete=shell_completion.editions(),
)
EDITIONS = click.option(
    "--editions",
    default="",
    metavar="E,E,…",
    help="Several editions to judge by. If the study's edition is one of them, it is the leading edition.",
    shell_complete=shell_completion.several(shell_completion.editions()),
)
THRESHOLD = click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="RULE=NUMBER",
    help="Change the threshold of a rule of the leading edition, which is then marked as modified. Repeatable.",
)
WAIVERS = click.option(
    "--waivers",
    default="",
    metavar="FILE",
    help="TOML file of waivers: findings that are not counted, with reasons [the file that the study names].",
)
STRICT = click.option(
    "--strict",
    is_flag=True,
    help="Judge like the published code: FAIL if any rule fires. Short for --edition 2026-05:strict.",
)
STOP_ON = click.option(
    "--stop-on",
    default="",
    metavar="RULE,…",
    help="End a run at the first epoch at which one of these rules fires. The run then has the status stopped_early.",
)
TRUST_LOGGED = click.option("--trust-logged", is_flag=True, help="Judge the logged metrics without recomputing them.")


RECOMPUTE = click.option(
    "--recompute/--trust-logged",
    default=False,
    help="Recompute the metrics of every run first, or use the logged metrics [--trust-logged].",
)
EXPERIMENT_RUNS = click.option("--experiment", default="", help="Select all runs of an experiment.")


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


def of_many_runs(*additional: Callable) -> Callable:
    """Return a decorator that adds the options of a command that selects and judges runs.

    Args:
        additional: additional options of the command.
    """
    judging = (STUDY, RUN, EXPERIMENT_RUNS, EDITION, THRESHOLD, RECOMPUTE, MEASURING_JOBS)
    return together(*judging, STUDY_OVERRIDES, *additional, DATA_ROOT, STORE, JSON)


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
    split = [pair.partition("=") for text in pairs for pair in text.split(",") if pair]
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
            problems.append(f"--threshold {pair}: expected RULE=NUMBER, e.g. D1=100")
        elif rule.strip() in limits:
            problems.append(f"--threshold {pair}: {rule.strip()} is given twice")
        limits[rule.strip()] = value
    if problems:
        raise InvalidFields("thresholds", problems)
    return limits
