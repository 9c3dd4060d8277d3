"""One pass over runs, in one or several processes or on a cluster.

A pass recomputes or replays each run.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fa_registry.errors import IntegrityError, Interrupted, RegistryError, pluralise
from fa_registry.evidence.exclusions import INTEGRITY_FAILURE, RemeasuredRun, make_exclusion
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.parallel import usable_cores
from fa_registry.plugin_registry import IMPORTED
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.studies import executors
from fa_registry.studies.coordination import asked_resources, check_reach
from fa_registry.studies.executors.base import JobEvent
from fa_registry.studies.executors.local import in_one_step, run_jobs, stop_on_signal, supervise
from fa_registry.studies.progress import Progress
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import read_spec
from fa_registry.training.code_fingerprint import packages_of
from fa_registry.training.devices import on_device

# Starting a process takes 5 s of one core. Recomputing a run of the digits study takes 1 s, and replaying one epoch 0.1 s.
RUNS_A_PROCESS = 8
EPOCHS_A_RUN = 10
RECOMPUTING, REPLAYING = "recomputing", "replaying"  # what a pass over the runs does

RunAll = Callable[..., None]  # function of an executor: jobs, task, number of processes, signals


@dataclass(frozen=True)
class RunPass:
    """One pass over runs. An error in one run does not affect the other runs.

    Attributes:
        tracker: the store of the runs.
        activity: RECOMPUTING or REPLAYING, for the progress and the number of processes.
        work: function of a tracker and a run that can be sent to another process.
        measuring: options of the recomputation.
        opener: function that opens the tracker in a worker, because a tracker cannot be pickled.
    """

    tracker: Tracker
    activity: str
    work: Callable[[Tracker, StoredRun], RemeasuredRun]
    measuring: RemeasureOptions
    opener: Callable[[], Tracker]

    def over(self, runs: Sequence[StoredRun]) -> list[RemeasuredRun]:
        """Return one result per run.

        All runs that import the same third-party packages are processed together.
        """
        if self.measuring.trust_logged:
            return [run_job(self.work, self.measuring.device, lambda: self.tracker, run) for run in runs]
        groups: dict[frozenset[str], list[int]] = {frozenset(): []}
        for index, run in enumerate(runs):
            groups.setdefault(_packages(self.tracker, run, bool(self.measuring.factories)), []).append(index)
        results: dict[int, RemeasuredRun] = {}
        for packages, indices in groups.items():  # the first group imports no third-party package
            outcomes = self._part([runs[position] for position in indices], bool(packages)) if indices else []
            results |= dict(zip(indices, outcomes, strict=True))
        return [results[position] for position in range(len(runs))]

    def _part(self, runs: Sequence[StoredRun], third_party: bool) -> list[RemeasuredRun]:
        """Process runs that all import the same third-party packages, or no third-party package."""
        there = partial(run_job, self.work, self.measuring.device, self.opener)
        if self.measuring.executor:
            return self._on_a_cluster(runs, there)
        count = min(int(self.measuring.jobs) or default_processes(runs, self.activity), len(runs))
        # Third-party code may end its process or change functions, so it runs in other processes. If this process has
        # imported such code, built-in metrics are also computed in other processes.
        run_all = supervise if third_party or IMPORTED else run_jobs
        if count > 1 or run_all is supervise:
            with stop_on_signal() as stop:  # this process handles Ctrl-C, which workers ignore
                return self._run(runs, there, count, stop, run_all)
        here = partial(run_job, self.work, self.measuring.device, lambda: self.tracker)
        return self._run(runs, here, 1, lambda: False, run_all)

    def _on_a_cluster(self, runs: Sequence[StoredRun], job: Callable[..., RemeasuredRun]) -> list[RemeasuredRun]:
        """Process the runs with the executor that the user chose."""
        measuring = self.measuring
        executor = executors.CATALOG.get(measuring.executor)
        resources = asked_resources(measuring.executor, measuring.cluster, measuring.device, [])
        with executor.opened(resources) as capacity, stop_on_signal() as stop:
            check_reach(self.tracker.uri, capacity)
            limit = capacity.at_once or default_processes(runs, self.activity)

            def run_all(jobs: Sequence[Any], task: Callable[..., RemeasuredRun], processes: int, *signals: Any) -> None:
                executor.run(
                    jobs, partial(in_one_step, task), dataclasses.replace(resources, at_once=processes), *signals
                )

            return self._run(runs, job, min(int(measuring.jobs) or limit, limit, len(runs)), stop, run_all)

    def _run(
        self,
        runs: Sequence[StoredRun],
        job: Callable[..., RemeasuredRun],
        processes: int,
        stop: Callable[[], bool],
        run_all: RunAll,
    ) -> list[RemeasuredRun]:
        """Process the runs in `processes` workers, which the function `run_all` starts."""
        results: dict[int, RemeasuredRun] = {}
        title = f"{self.activity} {pluralise(len(runs), 'run')}" + (f", {processes} at a time" if processes > 1 else "")
        with Progress(title, [run.name for run in runs], lambda outcome: outcome.text) as progress:

            def receive(event: JobEvent) -> None:
                """Keep a worker's result, with the original run instead of the worker's copy."""
                progress.show(event)
                if event.kind == "done":
                    results[event.index] = dataclasses.replace(event.value, run=runs[event.index])
                elif event.kind == "failed":  # the worker ended without a result
                    error = event.value.strip().splitlines()[-1]
                    results[event.index] = _broken(self.tracker, runs[event.index], error, event.value)

            run_all(runs, job, processes, stop, receive)
        if len(results) < len(runs):
            raise Interrupted("stopped while runs were recomputed or replayed; no run was judged")
        return [results[index] for index in range(len(runs))]


def run_job(
    work: Callable[[Tracker, StoredRun], RemeasuredRun],
    device: str,
    opener: Callable[[], Tracker],
    run: StoredRun,
    *signals: Any,
) -> RemeasuredRun:
    """Recompute or replay one run; if an error occurs, return it as the `exclusion` of the result."""
    tracker = opener()
    try:
        with on_device(device):
            return work(tracker, run)
    except IntegrityError as error:
        exclusion = make_exclusion(tracker, run, f"{INTEGRITY_FAILURE}: {error}", kind="integrity")
        return RemeasuredRun(run, exclusion=exclusion)
    except Exception as error:
        return _broken(tracker, run, f"{type(error).__name__}: {error}", traceback.format_exc())


def _broken(tracker: Tracker, run: StoredRun, error: str, failure: str) -> RemeasuredRun:
    return RemeasuredRun(run, exclusion=make_exclusion(tracker, run, f"cannot be recomputed: {error}", failure))


def _packages(tracker: Tracker, run: StoredRun, factories: bool) -> frozenset[str]:
    """Return the third-party packages that must be imported to recompute a run."""
    # spec.json is read, because the owner of the store can edit the parameters in the tables
    try:
        path = tracker.artifact(run.run_id, schema.SPEC)
        return packages_of(read_spec(path)) if path is not None else frozenset()
    except RegistryError:  # spec.json is unreadable or names code that is not installed: only --factory imports code
        return frozenset({OWN_LOOP}) if factories else frozenset()


def default_processes(runs: Sequence[StoredRun], activity: str = RECOMPUTING) -> int:
    """Return the fastest number of processes for these runs; 1 if a run needs a GPU."""
    if any(run.params.get(f"{schema.PARAM}device_class") == "cuda" for run in runs):
        return 1
    epoch_params = [run.params.get(f"{schema.PARAM}epochs", "") for run in runs if activity == REPLAYING]
    replayed = sum(int(epochs) for epochs in epoch_params if epochs.isdecimal() and len(epochs) < 9)
    work = replayed // EPOCHS_A_RUN if activity == REPLAYING else len(runs)
    return max(1, min(usable_cores(), work // RUNS_A_PROCESS))
