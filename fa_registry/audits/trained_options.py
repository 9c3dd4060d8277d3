"""Epochs, seeds and data set of a study's finished runs in a store, as options that select these runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fa_registry.errors import InvalidFields
from fa_registry.records import FROZEN_LONG
from fa_registry.studies.options import RunSelector
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker, newest_first
from fa_registry.tracking.reader import runs_by_spec
from fa_registry.tracking.run_state import RunState

LISTED = 3  # option sets that a message lists


@dataclass(frozen=True)
class TrainedOptions:
    """Options of `study` with which runs were trained.

    Attributes:
        epochs: number of epochs of the runs.
        seeds: seeds of the runs, in ascending order.
        data: data set that replaces the study's data set; empty if the runs use the study's data set.
    """

    epochs: int
    seeds: tuple[int, ...]
    data: str = ""

    @property
    def overrides(self) -> dict[str, Any]:
        """Overrides that select these runs, as input of `RunSelector.variant`."""
        return {"epochs": self.epochs, "seeds": list(self.seeds), "scale": ""} | (
            {"data": self.data} if self.data else {}
        )

    @property
    def text(self) -> str:
        """Values by name, for example `epochs=2, seeds=1`."""
        return ", ".join(f"{name}={value}" for name, value in self._values.items())

    @property
    def flags(self) -> str:
        """Command-line options, for example `--epochs 2 --seeds 1`."""
        return " ".join(f"--{name} {shlex.quote(value)}" for name, value in self._values.items())

    @property
    def advice(self) -> str:
        return f"with {self.text}: add {self.flags}"

    @property
    def _values(self) -> dict[str, str]:
        data = {"replace-dataset": self.data} if self.data else {}
        return {**data, "epochs": str(self.epochs), "seeds": ",".join(map(str, self.seeds))}


def advice_text(study: str, subject: str, options: Iterable[TrainedOptions]) -> str:
    """Return a text that names what the store has of a study, or an empty text without `options`.

    Example: `the store has digits runs with epochs=2, seeds=1: add --epochs 2 --seeds 1`.
    """
    listed = [each.advice for each in options][:LISTED]
    return f"the store has {study} {subject} {'; '.join(listed)}" if listed else ""


def trained_options(tracker: Tracker, selector: RunSelector) -> list[TrainedOptions]:
    """Return options that select the finished runs of the selector's study, newest first.

    Options that select no finished run are left out. For example, such runs have another learning rate.
    """
    study = selector.as_asked
    runs = tracker.search({schema.TAG_STUDY: study.name, schema.TAG_KIND: "run"})
    finished = [run for run in newest_first(runs) if RunState(run).is_finished]
    identities = {run.tags[schema.TAG_SPEC] for run in finished}
    options = _options(finished, {spec.dataset for spec in study.specs})
    return [each for each in options if _selects(selector, each, identities)]


def has_finished_runs(tracker: Tracker, selector: RunSelector) -> bool:
    """Return whether the store has a finished run of the study with the overrides of the selector."""
    attempts = runs_by_spec(tracker, [spec.identity for spec in selector.as_asked.specs])
    return any(RunState(run).is_finished for runs in attempts.values() for run in runs)


def _options(runs: Iterable[StoredRun], study_data: set[str]) -> list[TrainedOptions]:
    seeds: dict[tuple[int, str], set[int]] = {}
    for run in runs:
        seed, epochs = schema.seed_of(run.params), run.params.get(f"{schema.PARAM}epochs", "")
        data = run.params.get(f"{schema.PARAM}dataset", "")
        is_longer = run.params.get(f"{schema.PARAM}control") == FROZEN_LONG  # its epochs are not those of the study
        if seed is not None and epochs.isdecimal() and not is_longer:
            seeds.setdefault((int(epochs), "" if data in study_data else data), set()).add(seed)
    return [TrainedOptions(epochs, tuple(sorted(found)), data) for (epochs, data), found in seeds.items()]


def _selects(selector: RunSelector, options: TrainedOptions, identities: set[str]) -> bool:
    with suppress(InvalidFields):
        return any(spec.identity in identities for spec in selector.variant(options.overrides).specs)
    return False
