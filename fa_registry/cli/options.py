"""Options that several verbs of the command line share, and the Examples block of their help."""

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
FORCE = click.option("--force", is_flag=True, help="Train again what is already complete.")
KEEP_TRAINED = click.option(
    "--keep-trained", is_flag=True, help="Keep finished runs that were trained by other code than is installed."
)
CHECKPOINT_EVERY = click.option(
    "--checkpoint-every",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Also keep the weights of every Nth epoch [0: only the last ones; else the initial ones too].",
)
KEEP_STATES = click.option(
    "--keep-states",
    type=click.IntRange(min=0),
    default=0,
    metavar="K",
    help="Also keep K states a run that an audit replays the next epoch from [the study's keep_states, else 0].",
)
POINTS = click.option(
    "--points",
    type=click.IntRange(min=0),
    default=MOST_POINTS,
    show_default=True,
    metavar="N",
    help="Points of each metric in the store's tables, for charts; 0: one an epoch. series.parquet has every epoch.",
)
HANG_TIMEOUT = click.option(
    "--silence",
    default=str(SILENCE),
    show_default=True,
    metavar="SECONDS",
    help="Time without an epoch after which a run in a process of its own counts as hung and is ended; 0: never.",
)
HEARTBEAT_TIMEOUT = click.option(
    "--lease",
    default=str(LEASE),
    show_default=True,
    metavar="SECONDS",
    help="Without a sign of life for so long, a run of another machine counts as left, and is trained by whoever wants it.",
)
EPOCHS = click.option("--epochs", default="", help="Epochs instead of the study's.")
SEEDS = click.option("--seeds", default="", metavar="S,S,…", help="Seeds instead of the study's.")
DATA = click.option(
    "--data",
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
    help="Code that builds the model of somebody's own loop and may be run, to measure its runs again; repeatable.",
)
MEASURING_JOBS = click.option(
    "--jobs", default="0", metavar="N", help="Processes at a time that measure runs again [one a core, if it pays]."
)
REPLAY = click.option(
    "--replay",
    default="auto",
    show_default=True,
    metavar="N|auto|all|off",
    help="Training to replay. auto: one whole run of every group and every frozen control, 8 steps of the others; all: every "
    "run; N: so many steps of every run.",
)
NONCE = click.option(
    "--nonce", default="", metavar="HEX", help="Repeat an audit's choice of whole replays [a new random nonce]."
)
JOBS = click.option(
    "--jobs",
    default="0",
    metavar="N",
    help="Runs at a time: processes of one thread [one a core]; on a GPU side by side [8].",
)
EXECUTOR = click.option(
    "--executor",
    default="",
    metavar="NAME",
    help=f"Who runs them: {', '.join(CATALOG.builtin_names())}, or a package's [what suits this machine].",
    shell_complete=shell_completion.family("executors", "studies.executors"),
)
ADDRESS = click.option(
    "--address",
    default="",
    metavar="HOST:PORT",
    help="The cluster: of ray also auto or local [RAY_ADDRESS, else auto], of submitit slurm or local [slurm].",
)
CPUS = click.option(
    "--cpus-per-run", default="1", show_default=True, metavar="N", help="What a run takes of the cluster's CPUs."
)
GPUS = click.option(
    "--gpus-per-run", default="", metavar="F", help="Share of one card that a run takes [0.125 on cards, else 0]."
)
MEMORY = click.option(
    "--memory", default="", metavar="SIZE", help="Memory that the cluster keeps for a run, 4GiB [not asked for]."
)
OUT = click.option("--out", default="reports", show_default=True, help="Folder for the pages.")
TEMPLATES = click.option("--templates", default="", metavar="DIR", help="Your own templates, by file name, sandboxed.")
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
    help="Another threshold for a rule of the leading edition, then marked modified; may be repeated.",
)
WAIVERS = click.option(
    "--waivers", default="", metavar="FILE", help="Findings that shall not count [the file that the study names]."
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
    help="End a run at the epoch in which one of these rules fires. It is then stopped early, never complete.",
)
TRUST_LOGGED = click.option("--trust-logged", is_flag=True, help="Judge logged figures without recomputing them.")


RECOMPUTE = click.option(
    "--recompute/--trust-logged",
    default=False,
    help="Measure every run again first, or take its logged figures [--trust-logged].",
)
EXPERIMENT_RUNS = click.option("--experiment", default="", help="All runs of an experiment.")


def together(*options: Callable) -> Callable:
    """Several options as one decorator, in this order in the help."""

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
    """The options of a verb that selects and judges runs and logs nothing, with its `own` in their midst."""
    judging = (STUDY, RUN, EXPERIMENT_RUNS, EDITION, THRESHOLD, RECOMPUTE, MEASURING_JOBS)
    return together(*judging, STUDY_OVERRIDES, *own, DATA_ROOT, STORE, JSON)


def examples(*lines: str) -> Callable:
    """Append an Examples block to a verb's help."""

    def add(function: Callable) -> Callable:
        function.__doc__ = (
            inspect.cleandoc(function.__doc__ or "")
            + "\n\n\b\nExamples:\n"
            + "\n".join(f"  fa-registry {line}" for line in lines)
        )
        return function

    return add


# From what was typed to what the commands take.


def settings(pairs: Sequence[str]) -> dict[str, str]:
    """The `--set name=value,…` pairs, name → value; InvalidFields names all that are not of that form."""
    split = [pair.partition("=") for several in pairs for pair in several.split(",") if pair]
    problems = [f"--set {name}: expected NAME=VALUE" for name, separator, _ in split if not separator]
    if problems:
        raise InvalidFields("settings", problems)
    return {name: value for name, _, value in split}


def thresholds(pairs: Sequence[str]) -> dict[str, float]:
    """The `--threshold RULE=NUMBER` pairs, rule → number; InvalidFields names all that are not of that form."""
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
