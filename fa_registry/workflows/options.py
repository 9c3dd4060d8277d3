"""Options of the commands and Python functions: each option is declared once, in a group.

To add an option, add a field to the group. The options of a cluster are declared in `studies.executors.base`. The options of
stored data are declared in `tracking.base`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_registry import process_ownership
from fa_registry.errors import InvalidFields, UsageError
from fa_registry.option_table import MISSING, nested, option
from fa_registry.studies.executors import CATALOG
from fa_registry.studies.executors.base import SILENCE, ClusterOptions
from fa_registry.studies.study_files import RULE, SCALING
from fa_registry.tracking.base import RetentionOptions

if TYPE_CHECKING:
    from fa_registry.studies.study import Study, StudyFile

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


def thresholds(pairs: Iterable[str]) -> dict[str, float]:
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
# for commands that always recompute runs, and for commands that recompute runs only on request
measuring_jobs = partial(
    option,
    0,
    "Number of processes that recompute runs in parallel [one per core, if this saves time].",
    metavar="N",
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
        "Control to train: none, frozen, shallow, or ladder_K (only the last K blocks are trained).",
        completes=("none", "frozen", "shallow", "ladder_"),
    )
    settings: Mapping[str, Any] = option(
        None,
        "New values of recipe fields (learning_rate=…) and of options (architecture.d_hidden=…, method.…).",
        "--set",
        python='New values of recipe fields and of options by name, for example {"learning_rate": 0.1, '
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
        "New values of recipe fields (learning_rate=…), penalty and options (architecture.d_hidden=…, method.…). Several values "
        "(learning_rate=1e-3,3e-3) are several settings. An option applies to the methods and networks that have it.",
        "--set",
        python="New values of recipe fields, penalty and options by name. A list gives several settings, for example "
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
    def file(self) -> StudyFile:
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
class JudgingOptions:
    """Options that decide how runs are judged: editions, thresholds and waivers."""

    edition: str = edition_option()
    editions: tuple[str, ...] = option(
        (),
        "Several editions that judge the runs. If the study's edition is given, the study's edition is the leading edition.",
        is_list=True,
        metavar="E,E,…",
        completes="editions",
    )
    thresholds: Mapping[str, float] = option(
        None,
        "Change the threshold of a rule of the leading edition, which is then marked as modified. Repeatable.",
        "--threshold",
        python="Mapping from a rule to a number that replaces its threshold in the leading edition, which is then marked as "
        "modified.",
        pairs=thresholds,
        metavar="RULE=NUMBER",
    )
    waivers: str = option(
        "",
        "TOML file of waivers: findings that are not counted, with reasons [the file that the study names].",
        metavar="FILE",
    )
    strict: bool = option(
        False, "Judge as the published code does: FAIL if any rule fires. Short for --edition 2026-05:strict."
    )


@dataclass(frozen=True)
class RemeasureOptions:
    """Options that decide whether and how the metrics of runs are recomputed.

    Attributes:
        device: GPU that recomputes runs that were trained on a GPU, e.g. `cuda:1`.
        executor: executor that recomputes the runs. If empty, the runs are recomputed on this machine.
        whole: ids of the runs to replay completely, or None if these runs were not chosen yet.
    """

    trust_logged: bool = option(False, "Judge the logged metrics without recomputing them.")
    jobs: str | int = measuring_jobs()
    replay: str | int = option(
        AUTO,
        "Training steps to replay. auto: all steps of one run per group and of every frozen control, 8 steps of each "
        "remaining run; all: all steps of every run; N: the first N steps of every run; off: none.",
        metavar="N|auto|all|off",
    )
    nonce: str = option(
        "",
        "Nonce (random number) of an earlier audit, to replay the same runs completely [a new nonce].",
        metavar="HEX",
    )
    factories: tuple[str, ...] = option(
        (),
        "Trusted function that builds the model of a user-supplied training loop, to recompute the runs of this loop; repeatable.",
        "--factory",
        python="Trusted functions that build the models of user-supplied loops, to recompute the metrics of their runs.",
        is_list=True,
        repeats=True,
        metavar="PACKAGE.MODULE:FUNCTION",
    )
    executor: str = executor_option()
    cluster: ClusterOptions = nested(ClusterOptions)
    device: str = device_option()
    whole: frozenset[str] | None = None


LOGGED = RemeasureOptions(trust_logged=True)


@dataclass(frozen=True)
class RecomputeOptions:
    """Options of commands that use logged metrics and recompute these metrics only on request."""

    recompute: bool = option(
        False,
        "Recompute the metrics of every run first, or use the logged metrics [--trust-logged].",
        "--recompute/--trust-logged",
        python="If True, recompute the metrics of every run first. By default, the logged metrics are used.",
    )
    jobs: int | str = measuring_jobs()
    device: str = device_option()

    @property
    def measuring(self) -> RemeasureOptions:
        return RemeasureOptions(not self.recompute, self.jobs, device=self.device)


@dataclass(frozen=True)
class ComparisonOptions(RecomputeOptions):
    """Options of the command `compare`."""

    setting: str = option("", "Compare only settings whose name contains this text.", metavar="TEXT")


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


@dataclass(frozen=True)
class ReportOutput:
    """Folder in which pages are written, and the user's templates."""

    out: str = option("reports", "Folder to which the pages are written.")
    templates: str = option(
        "",
        "Folder of your templates. A template replaces the built-in template with the same file name. Templates run in a sandbox.",
        metavar="DIR",
    )

    @property
    def own_templates(self) -> Path | None:
        return Path(self.templates) if self.templates else None


@dataclass(frozen=True)
class AnalysisOutput(ReportOutput):
    """Folder in which the results of analyses are written."""

    out: str = option("reports/analyses", "Folder for the JSON, CSV and PNG files.")


@dataclass(frozen=True)
class AuditSource:
    """Selection of an audit in a store, for rendering the pages of this audit again."""

    study: str = option("", "Use the newest audit of this study in the store.", metavar="NAME", completes="studies")
    epochs: int | str = option("", "Use the newest audit of the study whose runs have this number of epochs.")
    seeds: tuple[Any, ...] = option(
        (), "Use the newest audit of the study whose runs have exactly these seeds.", is_list=True, metavar="S,S,…"
    )


@dataclass(frozen=True)
class BundleOptions:
    """Content of a bundle."""

    study: str = option(
        MISSING, "Study whose newest audit is written into the bundle.", metavar="NAME", completes="studies"
    )
    out: str = option(
        "", "Path of the bundle. An existing file is replaced only if it is a bundle [NAME.fa.zip].", metavar="FILE"
    )
    light: bool = option(False, "Omit weights and feedback. Metrics cannot be recomputed from such a bundle.")
    sign: str = option("", "Sign the bundle with the private Ed25519 key in this PEM file.", metavar="KEY")
    licence: str = option("", "Licence of the content, e.g. CC-BY-4.0 [no licence].", metavar="SPDX")


@dataclass(frozen=True)
class SignerOptions:
    """The expected signer of a bundle."""

    key: str = option("", "Public key (PEM file) that must have signed the bundle.", metavar="PUBLIC")


def checked_pages(pages: ReportOutput, problems: list[str]) -> None:
    """Append errors in the output folder and in the user's templates to `problems`.

    The check is made before the runs are judged, because an error at the end would waste the work.
    """
    from fa_registry.reporting.render import output_conflicts, template_problems  # jinja2, not needed for `--help`

    if pages.own_templates:
        problems += template_problems(pages.own_templates)
    try:
        try_writing(Path(pages.out))
        problems += (f"out: {reason}" for reason in output_conflicts(Path(pages.out)))
    except UsageError as error:
        problems.append(f"out: {error}")


def try_writing(out: Path) -> None:
    """Create and delete a temporary folder to test `out`; raise UsageError if `out` is not writable.

    Access rights are not checked, because root has all rights but cannot write to a read-only disk.
    """
    existing_folder = next((folder for folder in (out, *out.parents) if os.path.lexists(folder)), Path())
    try:
        with process_ownership.temp_dir(".fa_registry-", existing_folder) as trial:
            (trial / out.relative_to(existing_folder)).mkdir(parents=True, exist_ok=True)
    except NotADirectoryError as error:
        raise UsageError(f"expected a folder, found the file {existing_folder}; name another folder") from error
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}; name another folder") from error
