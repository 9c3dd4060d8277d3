"""Options of the commands and Python functions: each option is declared once, in a group.

To add an option, add a field to the group. The options of a cluster are declared in `studies.executors.base`. The options of
stored data are declared in `tracking.base`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_registry import process_ownership
from fa_registry.errors import InvalidFields
from fa_registry.option_table import nested, option
from fa_registry.studies.executors import CATALOG
from fa_registry.studies.executors.base import SILENCE, ClusterOptions
from fa_registry.studies.study_files import RULE, SCALING
from fa_registry.tracking.base import RetentionOptions

if TYPE_CHECKING:
    from fa_registry.jsonio import TomlFile
    from fa_registry.studies.study import Study

AUTO = "auto"
MOST_THREADS = 1024


def settings(pairs: Iterable[str]) -> dict[str, str | list[str]]:
    """Return the values of the `--set name=value,…` options by name.

    For an option such as `name=1,2`, the result contains the list of the values. A second `name=…` replaces the first `name=…`.

    Raises:
        InvalidFields: an option does not begin with NAME=VALUE, or a value is empty.
    """
    values: dict[str, list[str]] = {}
    problems = []
    for text in pairs:
        name = ""
        for part in filter(None, text.split(",")):
            before, is_new, value = part.partition("=")
            name = before if is_new else name
            if not name or (is_new and not value):
                problems.append(f"--set {part}: expected NAME=VALUE")
            values[name] = [value] if is_new else [*values.get(name, ()), part]
    if problems:
        raise InvalidFields("settings", problems)
    return {name: listed if len(listed) > 1 else listed[0] for name, listed in values.items()}


device_option = partial(
    option,
    AUTO,
    "Device: auto, cuda, cuda:N or cpu; auto uses CUDA if CUDA is available.",
    completes=("auto", "cuda", "cpu"),
)
threads_option = partial(option, 1, bounds=(1, MOST_THREADS))
edition_option = partial(
    option,
    "",
    "Edition (rules) that judges the runs: a name, or the path of a .toml file [the study's edition].",
    completes="editions",
)
executor_option = partial(
    option,
    "",
    f"Executor: {', '.join(CATALOG.builtin_names())}, or the name of a plug-in [chosen for this machine].",
    metavar="NAME",
    completes="executors",
)


@dataclass(frozen=True)
class SpecOptions:
    """Specification of one run, as the user typed it."""

    method: str = option("", "Method (credit rule), see `list methods`.", completes="methods")
    architecture: str = option("resmlp", "Network, see `list architectures`.", completes="architectures")
    dataset: str = option("digits", "Data set, see `list datasets`.", completes="datasets")
    seed: int | str = option("", "Seed of the run, an integer; required.")
    epochs: int | str = option(100, "Number of epochs.")
    penalty: float | str = option(0, "Strength λ of the residual penalty; 0: no penalty.")
    control: str = option(
        "none",
        "Control to train: none, frozen, frozen_long (of twice the epochs), shallow, "
        "ladder_K (trains only the last K blocks), or deep_supervision (bp with local heads).",
        completes=("none", "frozen", "frozen_long", "shallow", "ladder_", "deep_supervision"),
    )
    settings: Mapping[str, Any] = option(
        None,
        "New values of recipe fields (learning_rate=…), penalty_embedding and options (architecture.d_hidden=…, method.…).",
        "--set",
        python='New values of recipe fields, penalty_embedding and options by name, for example {"learning_rate": 0.1, '
        '"architecture.d_hidden": 128}.',
        pairs=settings,
        metavar="NAME=VALUE,…",
    )
    study: str = option("", "Tag the run as part of a study.", completes="studies")
    threads: int = threads_option("Number of CPU threads. The last bits of results depend on this number.")
    device: str = device_option()

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of a run specification, with options grouped by method and architecture."""
        names = ("method", "architecture", "dataset", "seed", "epochs", "penalty", "control", "device")
        raw: dict[str, Any] = {name: getattr(self, name) for name in names}
        raw |= {"method_options": {}, "architecture_options": {}}
        several = [name for name, value in self.settings.items() if isinstance(value, list)]
        if several:
            hint = "expected one value, found several; `fa-registry study NAME --set …` trains one run per value"
            raise InvalidFields("settings", [f"{name}: {hint}" for name in several])
        for name, value in self.settings.items():
            owner, dot, option_name = name.partition(".")
            if dot and f"{owner}_options" in raw:
                raw[f"{owner}_options"][option_name] = value
            else:
                raw[name] = value
        return raw


@dataclass(frozen=True)
class CheckpointOptions(SpecOptions):
    """Specification and origin of a checkpoint that another program trained."""

    method: str = option("", "Method that trained the checkpoint, see `list methods`.", completes="methods")
    epochs: int | str = option("", "Number of epochs of the training; required.")
    threads: int = threads_option("Number of CPU threads for the measurements.")
    feedback: str = option(
        "", "File with the feedback B_1..B_L of the training. Without this file, Γ is N/A.", metavar="FILE"
    )
    frozen_accuracy: str = option(
        "",
        "Test accuracy (0..1) of the frozen control, if the store has no control of this setting. The value is not verified, "
        "so the verdict is WARN at best.",
        metavar="FRACTION",
    )
    name: str = option("", "Name of the new run in the store.")
    force: bool = option(False, "Adopt the checkpoint again even if the store already has a run of this checkpoint.")
    strict: bool = option(
        False,
        "Print the command of an audit that judges as the published code does (FAIL if any rule fires). Nothing is judged now.",
    )


@dataclass(frozen=True)
class StudyOverrides:
    """Values that replace values of a study's file, for training and for selecting runs."""

    epochs: int | str = option("", "Number of epochs, instead of the number in the study.")
    seeds: tuple[Any, ...] = option((), "Seeds, instead of the seeds in the study.", is_list=True, metavar="S,S,…")
    data: str = option(
        "",
        f"Replace the study's image data set: {RULE}.",
        "--replace-dataset",
        metavar="NAME",
        completes="datasets",
    )
    scale: float | str = option(
        "",
        f"Scale the study's number of epochs: {SCALING}. Cannot be combined with --epochs.",
        metavar="F",
    )
    settings: Mapping[str, Any] = option(
        None,
        "New values of recipe fields (learning_rate=…), penalties and options (architecture.d_hidden=…, method.…). Several values "
        "(learning_rate=1e-3,3e-3) are several settings. An option applies to the methods and networks that have it.",
        "--set",
        python="New values of recipe fields, penalties and options by name. A list gives several settings, for example "
        '{"learning_rate": [1e-3, 3e-3], "architecture.d_hidden": 128}.',
        pairs=settings,
        metavar="NAME=VALUE,…",
    )
    device: str = device_option()

    @property
    def by_name(self) -> dict[str, Any]:
        """The values by field name, as arguments of `load_study`."""
        several = {name: list(value) for name, value in self.settings.items() if isinstance(value, (list, tuple))}
        return {**vars(self), "seeds": list(self.seeds), "settings": {**self.settings, **several}}


@dataclass(frozen=True)
class RunSelector:
    """Selection of runs: all runs of a study, all runs of an experiment, or single runs.

    The file of the study is read only once, at the first access. The `overrides` replace values of this file, see
    studies.study.load_study.
    """

    study: str = option(
        "",
        "Select all runs of a study, according to its current study.toml.",
        python="Select all runs of a study: the name of a built-in study, or the path of a study.toml or of its folder.",
        metavar="NAME",
        completes="study files",
    )
    experiment: str = option("", "Select all runs of an experiment.")
    run_ids: tuple[str, ...] = option(
        (),
        "Select one run; repeatable.",
        "--run",
        python="Select single runs by their ids, or the first characters of ids.",
        is_list=True,
        repeats=True,
        metavar="ID",
    )
    overrides: Mapping[str, Any] = nested(StudyOverrides, lambda overrides: overrides.by_name)

    @property
    def ways(self) -> list[str]:
        """Command-line options that the user has set to select runs, e.g. `["--study"]`."""
        options = {"--study": self.study, "--experiment": self.experiment, "--run": self.run_ids}
        return [name for name, value in options.items() if value]

    @property
    def device(self) -> str:
        """Device that the user typed to replace the study's device; empty if the user typed none."""
        return str(self.overrides.get("device", ""))

    @cached_property
    def file(self) -> TomlFile:
        """Content of the study's file, without the overrides.

        Raises:
            UnknownName: the study does not exist.
            InvalidFields: the file is not valid TOML.
        """
        from fa_registry.studies.study import read_study  # imports torch, which a report from a file does not need

        return read_study(self.study)

    @cached_property
    def as_asked(self) -> Study:
        """Study with the overrides applied.

        Raises:
            UnknownName: the study does not exist.
            InvalidFields: lists all invalid fields.
        """
        return self.variant({})

    def variant(self, more: Mapping[str, Any]) -> Study:
        """Return the study with the selector's overrides and the additional overrides `more`."""
        from fa_registry.studies.study import expanded

        return expanded(self.file, {**self.overrides, **more})


@dataclass(frozen=True)
class TrainingOptions:
    """Options of training: stop rules, stored data, time limits, and runs that the store already has."""

    edition: str = edition_option()
    stop_on: tuple[str, ...] = option(
        (),
        "End a run at the first epoch at which one of these rules fires. The run then has the status stopped_early.",
        is_list=True,
        metavar="RULE,…",
    )
    keep: RetentionOptions = nested(RetentionOptions)
    silence: int | str = option(
        SILENCE,
        "Kill a worker process that finishes no epoch for this many seconds (0: never).",
        "--hang-timeout",
        metavar="SECONDS",
    )
    lease: int | str = option(
        process_ownership.LEASE,
        "Seconds without a heartbeat after which a run on another machine counts as abandoned and may be retrained.",
        "--heartbeat-timeout",
        metavar="SECONDS",
    )
    force: bool = option(False, "Retrain runs that are already complete.")
    keep_trained: bool = option(
        False,
        "Keep finished runs although they were trained with other code than the installed code.",
        "--accept-old-code",
    )


@dataclass(frozen=True)
class ExecutorOptions:
    """Executor of many jobs, and the resources that the executor requests from a cluster."""

    jobs: int | str = option(
        0,
        "Number of simultaneous runs [one per CPU core, or 8 on a GPU]. On a GPU, one process trains all runs.",
        metavar="N",
    )
    executor: str = executor_option()
    cluster: ClusterOptions = nested(ClusterOptions)


@dataclass(frozen=True)
class PlanOptions:
    """Options for a study that is only planned."""

    dry_run: bool = option(False, "Print which runs would be trained; train and write nothing.")


@dataclass(frozen=True)
class StoreLocation:
    """Location of runs and of data sets."""

    store: str = option(
        "",
        "MLflow tracking URI of the store [MLFLOW_TRACKING_URI, else sqlite:///mlflow.db].",
        metavar="URI",
    )
    experiment: str = option("", "MLflow experiment in which new runs are created [fa_registry].")
    data_root: str = option("", "Folder that contains the files of the data sets.")

    @property
    def root(self) -> Path | None:
        return Path(self.data_root) if self.data_root else None
