"""Save the state of a training, so an interrupted training can be resumed.

The state is saved in the resume file of the run. A training that resumes from this file ends with the same weights as a training
without interruption, because the file contains the optimiser's moments and all generators. The file has three parts: the SHA-256 of
the other two parts, a line of JSON, and the tensors as safetensors. A run never resumes from an altered file, because one wrong bit
in the optimiser's moments would change all later metrics without an error.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from fa_registry import jsonio, process_ownership
from fa_registry.errors import IntegrityError, UsageError
from fa_registry.records import Measurements
from fa_registry.safe_files import UnreadableFile, check_file
from fa_registry.schema_number import KEY, SCHEMA, check_schema
from fa_registry.training.checkpoint import READING_FAILS
from fa_registry.training.loop import EpochRow
from fa_registry.training.trainer import EarlyCheckpoint, SelectedState, Trainer
from fa_registry.training.trainer_state import Tensors, check_fits, full_state, restore, under

LOG = logging.getLogger(__name__)
SECONDS_BETWEEN = 20.0  # a write takes milliseconds; a killed process loses at most the training since the last write
SUFFIX = ".resume"
DIGEST = re.compile("[0-9a-f]{64}")
SET_ASIDE = "%s. The file was renamed to %s, and the run starts again at its first epoch; the store is unchanged"


class ResumeFile:
    """The resume file `<folder>/<identity>.resume` of one specification."""

    def __init__(self, folder: Path, identity: str):
        self.path = folder / f"{identity}{SUFFIX}"
        self._written = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._written > SECONDS_BETWEEN

    def write(self, trainer: Trainer, rows: Sequence[EpochRow]) -> None:
        """Write state and measured rows atomically: if the process is killed, the previous file remains."""
        head = {
            KEY: SCHEMA,
            "of": self.path.stem,
            "epoch": trainer.epoch,
            "early_step": trainer.early.step if trainer.early else None,
            "selected": {"epoch": trainer.selected.epoch, "score": trainer.selected.score}
            if trainer.selected
            else None,
            "epoch_chain": trainer.chain.digests,
            "rows": [{"epoch": row.epoch, "measurements": row.measurements} for row in rows],
        }
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _written(trainer).items()}
        body = jsonio.canonical(head).encode() + b"\n" + save(tensors)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}{process_ownership.owner_suffix()}")
        try:
            with temporary.open("wb") as stream:
                stream.write(hashlib.sha256(body).hexdigest().encode() + b"\n")
                stream.write(body)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)
        self._written = time.monotonic()

    def read_into(self, trainer: Trainer) -> list[EpochRow]:
        """Load the saved state into a new trainer and return the measured rows.

        If the file is damaged or belongs to another run, it is renamed and a warning is logged. Without a usable file, there
        are no rows.
        """
        if not os.path.lexists(self.path):
            return []
        try:
            head, rows, tensors = self._checked_content()
            copies = {"early": head["early_step"], "selected": head["selected"]}
            check_fits(trainer, tensors, [name for name, value in copies.items() if value is not None])
        except IntegrityError as error:
            damaged_path = self.path.with_name(self.path.name + process_ownership.DAMAGED)
            os.replace(self.path, damaged_path)
            LOG.warning(SET_ASIDE, error, damaged_path)
            return []
        restore(trainer, tensors, head["epoch"])
        trainer.chain.digests = head["epoch_chain"]
        if head["early_step"] is not None:
            trainer.early = EarlyCheckpoint(head["early_step"], under(tensors, "early."))
        if head["selected"] is not None:
            trainer.selected = SelectedState(**head["selected"], tensors=under(tensors, "selected."))
        return rows

    def reached(self) -> int:
        """Return the epoch of the saved state, or -1 if there is no readable file."""
        try:
            return self._checked_content()[0]["epoch"] if os.path.lexists(self.path) else -1
        except IntegrityError:
            return -1

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _checked_content(self) -> tuple[Mapping[str, Any], list[EpochRow], Tensors]:
        """Return the JSON line, rows and tensors. An altered file or one of another run raises IntegrityError."""
        try:
            digest, _, body = check_file(self.path).read_bytes().partition(b"\n")
        except UnreadableFile as error:
            raise IntegrityError(f"cannot read the state to resume from: {error}") from error
        if digest != hashlib.sha256(body).hexdigest().encode():
            raise IntegrityError(
                f"the file with the state to resume from, {self.path}, was changed after it was written"
            )
        line, _, tensor_bytes = body.partition(b"\n")
        try:
            head = jsonio.loads(line.decode())
            check_schema(str(self.path), head.get(KEY), "the run starts again")
            identity, last = head["of"], head["epoch"]
            rows = [EpochRow(row["epoch"], jsonio.decode(Measurements, row["measurements"])) for row in head["rows"]]
            if [row.epoch for row in rows] not in ([], list(range(last + 1))):
                raise ValueError(f"expected one row for each of the epochs 0 to {last}, found other rows")
            if not _is_chain(head.get("epoch_chain"), last):
                raise ValueError(f"expected one digest for each of the epochs 0 to {last}, found other digests")
            tensors = load(tensor_bytes)
        except (
            *READING_FAILS,
            TypeError,
            AttributeError,
            UsageError,
        ) as error:  # the digest is right, but no training wrote the file
            raise IntegrityError(
                f"the file with the state to resume from, {self.path}, was not written by a training: {error}"
            ) from error
        if identity != self.path.stem:
            raise IntegrityError(
                f"the file with the state to resume from, {self.path}, belongs to another run, {identity}"
            )
        return head, rows, tensors


def _is_chain(digests: Any, last: int) -> bool:
    """Return whether `digests` has one digest per epoch."""
    return isinstance(digests, list) and len(digests) == last + 1 and all(map(DIGEST.fullmatch, map(str, digests)))


def _written(trainer: Trainer) -> Tensors:
    copies = {"early": trainer.early, "selected": trainer.selected}
    kept = ((name, copy.tensors) for name, copy in copies.items() if copy)
    return full_state(trainer) | {f"{copy}.{name}": tensor for copy, state in kept for name, tensor in state.items()}
