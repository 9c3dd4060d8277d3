"""What a verb is asked, in the parts that verbs share: which runs, by which rules, measured how, where, and which pages."""

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
    """Which runs: all of a study, all of an experiment, or these. study: a shipped one's name, or a study.toml or its folder.

    overrides: of the study, see studies.study.load_study. Its file is read when it is first needed, and then never again.
    """

    study: str = ""
    experiment: str = ""
    run_ids: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ways(self) -> list[str]:
        """In which ways runs are chosen, as options of the command line."""
        given = {"--study": self.study, "--experiment": self.experiment, "--run": self.run_ids}
        return [name for name, value in given.items() if value]

    @property
    def device(self) -> str:
        """Where the study trains, as it was typed."""
        return str(self.overrides.get("device", ""))

    @cached_property
    def file(self) -> StudyFile:
        """The study's file. Raises UnknownName, InvalidFields where it is no TOML."""
        from fa_registry.studies.study import read_study  # torch, which a report of a file needs not

        return read_study(self.study)

    @cached_property
    def as_asked(self) -> Study:
        """The study with the overrides. Raises UnknownName, InvalidFields that names all that is wrong."""
        return self.variant({})

    def variant(self, more: Mapping[str, Any]) -> Study:
        """The same study with more overrides than were asked for."""
        from fa_registry.studies.study import expanded

        return expanded(self.file, {**self.overrides, **more})


@dataclass(frozen=True)
class JudgingOptions:
    """What runs are judged by. edition, or several editions: see editions.chosen_editions; thresholds: of the leading one.

    waivers: a file; empty: the one that the study names, if it names one. strict: by the published code's reading, instead of
    an edition.
    """

    edition: str = ""
    editions: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    waivers: str = ""
    strict: bool = False


@dataclass(frozen=True)
class Cluster:
    """What an executor of a cluster is asked for, as typed. address: where it is; the others: of one run.

    gpus: a share of one card; empty: an eighth where runs train on a card. memory: `4GiB`; empty: whatever it takes.
    """

    address: str = ""
    cpus: str | float = 1
    gpus: str | float = ""
    memory: str | int = ""


@dataclass(frozen=True)
class RemeasureOptions:
    """How figures come about. trust_logged: as they were logged, whose files are checked by their digests; else measured again.

    jobs: processes that measure, 0: one a core where it pays. replay: what is trained again, `auto`, `all`, `off` or so many steps
    of every run. nonce: by which `auto` chooses the runs that are trained again to their end; empty: a new one. whole: the ids of
    the chosen runs, where they were chosen already.
    device: which of several cards measures what was trained on one, `cuda:1`. executor: who measures; empty: this machine.
    factories: of models of others' own loops, which may be imported: see workflows.user_loops.
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
    """Where runs and data are. store: tracking URI; experiment: of new runs; data_root: folder of data sets that need files."""

    store: str = ""
    experiment: str = ""
    data_root: str = ""

    @property
    def root(self) -> Path | None:
        return Path(self.data_root) if self.data_root else None


@dataclass(frozen=True)
class ReportOutput:
    """What is written to look at. out: folder; templates: folder of the user's own, by file name."""

    out: str = "reports"
    templates: str = ""

    @property
    def own_templates(self) -> Path | None:
        return Path(self.templates) if self.templates else None


def checked_pages(pages: ReportOutput, problems: list[str]) -> None:
    """What would show only when the work is done is added to `problems`."""
    from fa_registry.reporting.render import output_conflicts, template_problems  # jinja2, which `--help` needs not

    if pages.own_templates:
        problems += template_problems(pages.own_templates)
    try:
        _try_writing(Path(pages.out))
        problems += (f"out: {reason}" for reason in output_conflicts(Path(pages.out)))
    except UsageError as error:
        problems.append(f"out: {error}")


def _try_writing(out: Path) -> None:
    """UsageError where nothing can be written below `out`, as a trial shows that leaves nothing behind.

    Rights alone do not tell: root has all of them, and is refused all the same by a read-only disk.
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
    """Several names or numbers as they may be given: `a,b`, one alone, or any iterable of them."""
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(names) if isinstance(names, Iterable) else (names,)


def overrides(epochs: Any = "", seeds: Any = (), device: str = "", data: str = "", scale: Any = "") -> dict[str, Any]:
    """What is replaced in a study."""
    return {"epochs": epochs, "seeds": list(as_list(seeds)), "device": device, "data": data, "scale": scale}


def spec_fields(fields: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run specification; settings: more of them by name, and options, `architecture.d_hidden`, `method.…`."""
    raw: dict[str, Any] = {**fields, "method_options": {}, "architecture_options": {}}
    for name, value in settings.items():
        owner, dot, option = name.partition(".")
        if dot and f"{owner}_options" in raw:
            raw[f"{owner}_options"][option] = value
        else:
            raw[name] = value
    return raw
