"""Upload of resume states, from which another machine can continue a run.

With an sqlite store nothing is uploaded, because every process that can write to the store can also read the local resume file.
Uploads alternate between two paths, and a tag names the path of the newest state. If the process is killed during an upload, the
previous state is therefore intact.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from fa_registry import process_ownership
from fa_registry.errors import RegistryError
from fa_registry.safe_files import TENSORS, UnreadableFile, check_file
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.run_state import RunState
from fa_registry.tracking.store import sqlite_path
from fa_registry.tracking.store_errors import WAITED_FOR, StoreRefusal

LOG = logging.getLogger(__name__)
SECONDS_BETWEEN = 60.0  # greatest training time that is lost if a machine fails, in addition to the current epoch
SHARE = 100  # wait this many times the last upload's duration: uploads take at most a hundredth of the training time
PLACE = re.compile(r"(\d{1,7}) ([01]) ([\w-]{1,200})")  # the tag's value: epoch, which of the two paths, file name


class KeptState:
    """Resume state of one run in its store. `attempts` are earlier runs of the same specification."""

    def __init__(
        self,
        tracker: Tracker,
        run_id: str,
        attempts: Iterable[StoredRun] = (),
        clock: Callable[[], float] = time.monotonic,
    ):
        self._tracker, self._run_id, self._clock = tracker, run_id, clock
        self._left = [run for run in attempts if schema.TAG_STATE in run.tags and run.run_id != run_id]
        self._needed = not sqlite_path(tracker.uri)
        self._next, self._count = clock() + SECONDS_BETWEEN, 0

    def fetch(self, path: Path, beyond: int) -> None:
        """Download the newest resume state of the earlier attempts to `path` if its epoch is beyond `beyond`."""
        matches = [(run, PLACE.fullmatch(run.tags[schema.TAG_STATE])) for run in self._left]
        states = [
            (int(state_match[1]), run, state_match)
            for run, state_match in matches
            if state_match and state_match[3] == path.stem
        ]
        if not self._needed or not (later_states := [entry for entry in states if entry[0] > beyond]):
            return
        epoch, run, match = max(later_states, key=lambda entry: entry[0])
        try:
            state_file = self._tracker.artifact(run.run_id, schema.resume_state(match[2], match[3]))
            state_file = check_file(state_file, TENSORS) if state_file else None
        except UnreadableFile as error:
            LOG.warning("cannot resume from the state that run %s uploaded: %s", run.run_id, error)
            return
        if state_file is None:
            LOG.warning(
                "the resume state of epoch %d that run %s uploaded to %s is missing",
                epoch,
                run.run_id,
                self._tracker.uri,
            )
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(state_file, path)
        host = RunState(run).host or "another machine"
        LOG.info("resuming from epoch %d, at which run %s on %s ended", epoch, run.run_id, host)

    def offer(self, path: Path, epoch: int, now: bool = False) -> None:
        """Upload the resume file if enough time has passed since the last upload, or if `now` is true.

        `epoch` is the epoch after which the file was written. An error is logged and does not stop the training.
        """
        start = self._clock()
        if not self._needed or (start < self._next and not now):
            return
        try:
            self._upload(path, epoch)
        except (RegistryError, OSError) as error:
            # an unreachable server was logged already; a later state will be uploaded
            if not isinstance(error, StoreRefusal) or error.kind not in WAITED_FOR:
                LOG.warning("the resume state could not be uploaded and is on this machine only: %s", error)
        self._next = self._clock() + max(SECONDS_BETWEEN, SHARE * (self._clock() - start))

    def _upload(self, path: Path, epoch: int) -> None:
        slot, tracker = str(self._count % 2), self._tracker.without_retry()
        with process_ownership.temp_dir("fa_registry-state-") as folder:
            copy = folder / schema.resume_state(slot, path.stem)
            copy.parent.mkdir(parents=True)
            shutil.copyfile(path, copy)
            tracker.upload(self._run_id, folder)
        tracker.log(self._run_id, tags={schema.TAG_STATE: f"{epoch} {slot} {path.stem}"})
        self._count += 1

    def remove(self) -> None:
        """Remove the resume states of this run, which has ended, and of earlier attempts from the store."""
        for run_id in [run.run_id for run in self._left] + [self._run_id] * bool(self._count):
            with suppress(RegistryError):  # without the permission to delete, some megabytes are left in the store
                self._tracker.remove(run_id, schema.STATE)
                self._tracker.remove_tags(run_id, [schema.TAG_STATE])
