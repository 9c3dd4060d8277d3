"""text:PATH: a UTF-8 text file as bytes, in windows of 64 tokens, for token prediction."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from fa_registry.datasets.base import Dataset, DatasetCard, DatasetFamily, Splits, tensors_digest, unaugmented
from fa_registry.errors import UsageError

NAME = "text"
LENGTH, BYTES = 64, 256  # T and V
TRAIN_SHARE = 0.9  # share of the windows for training, from the start of the file; the rest is the test set
BYTES_PER_CHARACTER = 16 * (LENGTH + 1) / LENGTH  # memory in bytes: input and target tokens as int64
EXAMPLE = "expected text:PATH with the path of a UTF-8 text file"


@dataclass(frozen=True)
class Text(DatasetFamily):
    """Data set of one text file.

    Attributes:
        path: Path of the file as the user wrote it; empty in the object that represents all files.
        sha256: SHA-256 of the file; empty if there is no file at this path.
        windows: Number of windows.
    """

    path: str = ""
    sha256: str = ""
    windows: int = 0
    same_for_every_seed = True

    @property
    def card(self) -> DatasetCard:
        """Card of the data set for this file."""
        train = self._train
        return DatasetCard(
            name=f"{NAME}:{self.path}" if self.path else NAME,
            line=f"bytes of the text file {self.path}" if self.path else "bytes of a UTF-8 text file (`text:PATH`)",
            source=self._source,
            licence="licence of the user's file; unknown to this package",
            splits=f"{train:,} training and {max(self.windows - train - 1, 0):,} test samples: windows of "
            f"{LENGTH} bytes that do not overlap. The training samples are the first {TRAIN_SHARE:.0%} of the file",
            normalisation="none: inputs are bytes",
            augmentation="none",
            image_shape=(LENGTH,),
            classes=BYTES,
            train_samples=train,
            sha256=self.sha256,
            task="token_prediction",
        )

    @property
    def _source(self) -> str:
        if not self.path:
            return "a file of the user"
        return f"the file {self.path}, {f'SHA-256 {self.sha256}' if self.sha256 else 'which is not on this machine'}"

    @property
    def _train(self) -> int:
        return int(self.windows * TRAIN_SHARE)

    def of(self, argument: str) -> Dataset:
        """Return the data set of a file.

        If there is no file at this path, the data set has no samples, and `load` raises an error. An audit can still list the runs.

        Args:
            argument: Path of the file, relative to the current folder.

        Raises:
            UsageError: If the file is no readable UTF-8 text with at least two windows, or if it exceeds the memory.
        """
        if argument and not os.path.exists(argument):
            return Text(argument)
        content = _content(argument)
        return Text(argument, hashlib.sha256(content).hexdigest(), (len(content) - 1) // LENGTH)

    def absent(self) -> str:
        is_family = not self.path
        return "" if is_family or self.sha256 else f"data set {NAME}:{self.path}: {EXAMPLE}, found no file"

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        """Return the windows of the file; target t of a window is the byte after input t.

        Raises:
            UsageError: If the file cannot be read, or if it changed after `of`.
        """
        content = _content(self.path)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise UsageError(f"data set {self.card.name}: the file changed while it was used; start again")
        tokens = torch.frombuffer(bytearray(content), dtype=torch.uint8)[: self.windows * LENGTH + 1].long()
        inputs, targets = tokens[:-1].view(-1, LENGTH), tokens[1:].view(-1, LENGTH)
        train = self._train
        # the last target of the training set is the first input byte of the test set, so the test set starts one window later
        parts = (inputs[:train], targets[:train], inputs[train + 1 :], targets[train + 1 :])
        parts = tuple(part.contiguous() for part in parts)
        digest = tensors_digest(*parts)
        return Splits(*(part.to(device) for part in parts), augment=unaugmented, digest=digest)


def _content(path: str) -> bytes:
    """Return the bytes of a text file.

    Raises:
        UsageError: See `Text.of`.
    """
    if not path:
        raise UsageError(f"data set {NAME}: {EXAMPLE}, for example text:README.md")
    subject = f"data set {NAME}:{path}"
    try:
        if not Path(path).is_file():
            raise UsageError(f"{subject}: {EXAMPLE}, found {'a folder' if Path(path).is_dir() else 'no file'}")
        size, memory = Path(path).stat().st_size, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size * BYTES_PER_CHARACTER > memory:
            needed, available = size * BYTES_PER_CHARACTER / 2**30, memory / 2**30
            raise UsageError(
                f"{subject}: the tokens need {needed:,.1f} GiB of memory; this machine has {available:,.1f} GiB; use a shorter file"
            )
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{subject}: the file cannot be read: {error.strerror}") from error
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{subject}: {EXAMPLE}, found a byte at position {error.start:,} that is not UTF-8") from error
    least = 20 * LENGTH + 1  # two windows of test data
    if len(content) < least:
        raise UsageError(
            f"{subject}: expected a file of at least {least:,} bytes, found {len(content):,} bytes; use a longer file"
        )
    return content


PLUGIN = Text()
