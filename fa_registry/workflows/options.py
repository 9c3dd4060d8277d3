"""The options that commands share: which runs, by which rules, how recomputed, where, and which pages."""

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
    """Which runs: all of a study, all of an experiment, or single ones.

    The study's file is read once, when it is first needed.

    Attributes:
        study: the name of a built-in study, a study.toml or its folder.
        overrides: of the study, see studies.study.load_study.
    """

    study: str = ""
    experiment: str = ""
    run_ids: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ways(self) -> list[str]:
        """Return the options of the command line by which runs are chosen."""
        given = {"--study": self.study, "--experiment": self.experiment, "--run": self.run_ids}
        return [name for name, value in given.items() if value]

    @property
    def device(self) -> str:
        """Return the device of the study, as it was typed."""
        return str(self.overrides.get("device", ""))

    @cached_property
    def file(self) -> StudyFile:
        """Return the study's file. Raises UnknownName, or InvalidFields if it is not TOML."""
        from fa_registry.studies.study import read_study  # imports torch, which a report from a file does not need

        return read_study(self.study)

    @cached_property
    def as_asked(self) -> Study:
        """Return the study with the overrides.

        Raises:
            UnknownName: there is no such study.
            InvalidFields: names everything that is wrong.
        """
        return self.variant({})

    def variant(self, more: Mapping[str, Any]) -> Study:
        """Return the same study with additional overrides."""
        from fa_registry.studies.study import expanded

        return expanded(self.file, {**self.overrides, **more})


@dataclass(frozen=True)
class JudgingOptions:
    """The rules and waivers that runs are judged by.

    Attributes:
        edition, editions: see editions.chosen_editions.
        thresholds: of the leading edition.
        waivers: a file; empty: the one that the study names, if any.
        strict: judge as the published code does, instead of by an edition.
    """

    edition: str = ""
    editions: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    waivers: str = ""
    strict: bool = False


@dataclass(frozen=True)
class Cluster:
    """Resources to request from a cluster's executor, as typed.

    Attributes:
        address: address of the cluster.
        cpus: cores of one run.
        gpus: share of one card for one run; empty: an eighth if runs train on a card.
        memory: of one run, `4GiB`; empty: no reservation.
    """

    address: str = ""
    cpus: str | float = 1
    gpus: str | float = ""
    memory: str | int = ""


@dataclass(frozen=True)
class RemeasureOptions:
    """How metrics are obtained: recomputed, or trusted as they were logged.

    Attributes:
        trust_logged: use the logged metrics, whose files are checked by their digests.
        jobs: number of measuring processes; 0: one per core if that saves time.
        replay: what is trained again: `auto`, `all`, `off` or a number of steps of every run.
        device: which of several cards recomputes the runs that were trained on one, e.g. `cuda:1`.
        executor: where runs are recomputed; empty: this machine.
        factories: trusted functions that build the models of user-supplied loops, see workflows.user_loops.
        nonce: by which `auto` chooses the runs that it trains again to the end; empty: a new one.
        whole: ids of the chosen runs, if they were chosen already.
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
    """Where runs and data are.

    Attributes:
        store: tracking URI.
        experiment: of new runs.
        data_root: folder of data sets that need files.
    """

    store: str = ""
    experiment: str = ""
    data_root: str = ""

    @property
    def root(self) -> Path | None:
        return Path(self.data_root) if self.data_root else None


@dataclass(frozen=True)
class ReportOutput:
    """Where pages are written. out: folder; templates: folder of the user's templates, by file name."""

    out: str = "reports"
    templates: str = ""

    @property
    def own_templates(self) -> Path | None:
        return Path(self.templates) if self.templates else None


def checked_pages(pages: ReportOutput, problems: list[str]) -> None:
    """Add to `problems` what would otherwise fail only after the work is done."""
    from fa_registry.reporting.render import output_conflicts, template_problems  # jinja2, not needed for `--help`

    if pages.own_templates:
        problems += template_problems(pages.own_templates)
    try:
        _try_writing(Path(pages.out))
        problems += (f"out: {reason}" for reason in output_conflicts(Path(pages.out)))
    except UsageError as error:
        problems.append(f"out: {error}")


def _try_writing(out: Path) -> None:
    """Raise UsageError if a trial shows that nothing can be written below `out`.

    The trial leaves no files. Access rights are not enough: root has all of them, but cannot write to a read-only disk.
    """
    there = next((folder for folder in (out, *out.parents) if os.path.lexists(folder)), Path())
    try:
        with process_ownership.temp_dir(".fa_registry-", there) as trial:
            (trial / out.relative_to(there)).mkdir(parents=True, exist_ok=True)
    except NotADirectoryError as error:
        raise UsageError(f"{there} is a file; a folder is needed") from error
    except OSError as error:
        raise UsageError(f"{out} cannot be written to: {error.strerror}; name another folder") from error


def as_list(names: Any) -> tuple[Any, ...]:
    """Return several names or numbers as a tuple, from `a,b`, a single one, or any iterable of them."""
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(names) if isinstance(names, Iterable) else (names,)


def overrides(epochs: Any = "", seeds: Any = (), device: str = "", data: str = "", scale: Any = "") -> dict[str, Any]:
    """Return the values that replace those of a study."""
    return {"epochs": epochs, "seeds": list(as_list(seeds)), "device": device, "data": data, "scale": scale}


def spec_fields(fields: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run specification.

    Args:
        settings: more fields by name, and options, `architecture.d_hidden`, `method.…`.
    """
    raw: dict[str, Any] = {**fields, "method_options": {}, "architecture_options": {}}
    for name, value in settings.items():
        owner, dot, option = name.partition(".")
        if dot and f"{owner}_options" in raw:
            raw[f"{owner}_options"][option] = value
        else:
            raw[name] = value
    return raw
