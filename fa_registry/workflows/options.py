"""Dataclasses of options that several commands share, for example RunSelector and JudgingOptions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_registry import process_ownership
from fa_registry.errors import UsageError

if TYPE_CHECKING:
    from fa_registry.studies.study import Study, StudyFile

AUTO = "auto"


@dataclass(frozen=True)
class RunSelector:
    """Selection of runs: all runs of a study, all runs of an experiment, or single runs.

    The file of the study is read only once, at the first access.

    Attributes:
        study: the name of a built-in study, or the path of a study.toml or of its folder.
        experiment: name of an MLflow experiment.
        run_ids: ids of single runs, or the first characters of ids.
        overrides: values that replace those in the study's file, see studies.study.load_study.
    """

    study: str = ""
    experiment: str = ""
    run_ids: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ways(self) -> list[str]:
        """Command-line options that the user has set to select runs, e.g. `["--study"]`."""
        options = {"--study": self.study, "--experiment": self.experiment, "--run": self.run_ids}
        return [name for name, value in options.items() if value]

    @property
    def device(self) -> str:
        """Device that replaces the study's device, as the user typed it, or an empty string."""
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
class JudgingOptions:
    """Options that decide how runs are judged: editions, thresholds and waivers.

    Attributes:
        edition: the only edition to judge by. If `edition` and `editions` are empty, the study's edition is used.
        editions: several editions to judge by, instead of `edition`; see editions.chosen_editions.
        thresholds: rule code → threshold that replaces the threshold of the leading edition.
        waivers: path of a waiver file. If empty, the file that the study names is used, if the study names one.
        strict: whether to judge by the edition of the published code, rules.STRICT. Then no other edition may be given.
    """

    edition: str = ""
    editions: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    waivers: str = ""
    strict: bool = False


@dataclass(frozen=True)
class Cluster:
    """Resources that an executor requests from a cluster, as the user typed them.

    Attributes:
        address: address of the cluster.
        cpus: number of CPU cores for one run.
        gpus: fraction of one GPU for one run. If empty, 1/8 is requested for runs that train on a GPU.
        memory: memory for one run, e.g. `4GiB`. If empty, no memory is reserved.
    """

    address: str = ""
    cpus: str | float = 1
    gpus: str | float = ""
    memory: str | int = ""


@dataclass(frozen=True)
class RemeasureOptions:
    """Options that decide whether and how the metrics of runs are recomputed.

    Attributes:
        trust_logged: whether to use the logged metrics without recomputing them. File digests are still checked.
        jobs: number of processes that recompute runs. 0 means one process per core, if this saves time.
        replay: which training steps are replayed: `auto`, `all`, `off`, or a number of steps of every run.
        device: GPU that recomputes runs that were trained on a GPU, e.g. `cuda:1`.
        executor: executor that recomputes the runs. If empty, the runs are recomputed on this machine.
        cluster: resources to request from the executor's cluster.
        factories: trusted functions that build the models of user-supplied loops, see workflows.user_loops.
        nonce: hexadecimal digits that determine which runs `auto` replays completely. If empty, a random nonce is used.
        whole: ids of the runs to replay completely, or None if these runs were not chosen yet.
    """

    trust_logged: bool = False
    jobs: str | int = 0
    replay: str | int = AUTO
    device: str = AUTO
    executor: str = ""
    cluster: Cluster = Cluster()
    factories: tuple[str, ...] = ()
    nonce: str = ""
    whole: frozenset[str] | None = None


LOGGED = RemeasureOptions(trust_logged=True)


@dataclass(frozen=True)
class StoreLocation:
    """Location of runs and of data sets.

    Attributes:
        store: MLflow tracking URI.
        experiment: name of the experiment for new runs.
        data_root: folder with the files of data sets.
    """

    store: str = ""
    experiment: str = ""
    data_root: str = ""

    @property
    def root(self) -> Path | None:
        return Path(self.data_root) if self.data_root else None


@dataclass(frozen=True)
class ReportOutput:
    """Folder in which pages are written, and the user's templates.

    Attributes:
        out: output folder.
        templates: folder of the user's templates. A template replaces the built-in template with the same file name.
    """

    out: str = "reports"
    templates: str = ""

    @property
    def own_templates(self) -> Path | None:
        return Path(self.templates) if self.templates else None


def checked_pages(pages: ReportOutput, problems: list[str]) -> None:
    """Append errors in the output folder and in the user's templates to `problems`.

    The check is made before the runs are judged, because an error at the end would waste the work.
    """
    from fa_registry.reporting.render import output_conflicts, template_problems  # jinja2, not needed for `--help`

    if pages.own_templates:
        problems += template_problems(pages.own_templates)
    try:
        _try_writing(Path(pages.out))
        problems += (f"out: {reason}" for reason in output_conflicts(Path(pages.out)))
    except UsageError as error:
        problems.append(f"out: {error}")


def _try_writing(out: Path) -> None:
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
        raise UsageError(f"{out} cannot be written to: {error.strerror}; name another folder") from error


def as_list(names: Any) -> tuple[Any, ...]:
    """Return a tuple of names or numbers.

    Args:
        names: a comma-separated string, a single value, or an iterable of values.
    """
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(names) if isinstance(names, Iterable) else (names,)


def overrides(epochs: Any = "", seeds: Any = (), device: str = "", data: str = "", scale: Any = "") -> dict[str, Any]:
    """Return the values that replace those in a study's file, by field name."""
    return {"epochs": epochs, "seeds": list(as_list(seeds)), "device": device, "data": data, "scale": scale}


def spec_fields(fields: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run specification, with options grouped by method and architecture.

    Args:
        fields: fields of the specification by name.
        settings: additional fields, or options such as `architecture.d_hidden` or `method.NAME`, by name.
    """
    raw: dict[str, Any] = {**fields, "method_options": {}, "architecture_options": {}}
    for name, value in settings.items():
        owner, dot, option = name.partition(".")
        if dot and f"{owner}_options" in raw:
            raw[f"{owner}_options"][option] = value
        else:
            raw[name] = value
    return raw
