"""Check that a third-party data set gives all runs, and the audit, the same data.

A data set is a program. It can find out which run asks, for example from the call stack, from the environment or from the number
of its calls, and then change the labels or the augmentation of the control. So the audit computes the digests itself: of the
tensors that the replay used, of the tensors of a second call of `load`, and of one augmented batch that the nonce chooses. A replay
alone proves nothing here, because the data set would change the replay too.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fa_registry.conformance.credit_check import copied
from fa_registry.datasets.base import Splits, tensors_digest
from fa_registry.errors import pluralise
from fa_registry.evidence.replay_record import ranked
from fa_registry.protocol.integrity import with_checks
from fa_registry.records import DATA_CHECK, Check, Measurements, RunRecord, Scalar
from fa_registry.records.configurations import undecidable
from fa_registry.training.code_fingerprint import has_third_party_data
from fa_registry.training.data_digests import DIGESTED, data_digests
from fa_registry.training.run_setup import RunSetup, load_splits

BATCH = "data_batch"  # name of a convention until the runs are compared: digest of the augmented batch
LABELS = {name: field.replace("_", " ") for name, field in DIGESTED.items()} | {BATCH: "augmented batch"}
SAMPLES = 128  # of the augmented batch
CALLS = 8  # calls of the augmentation in a replay that the audit repeats
SHOWN = 3


class DataWatch:
    """The data of one run in an audit.

    Attributes:
        setup: the setup for the replay. It is the run's setup, but it remembers some calls of the augmentation of a third-party
            data set.
    """

    def __init__(self, setup: RunSetup, nonce: str):
        self._spec, self._splits, self._device, self._nonce = setup.spec, setup.splits, setup.device, nonce
        self._is_third_party = has_third_party_data(setup.spec)
        self._calls = _Calls(setup.splits, self._number("calls"))
        self.setup = setup
        if self._is_third_party:
            watched = dataclasses.replace(setup.splits, augment=self._calls)
            self.setup = dataclasses.replace(setup, splits=watched)

    def measured(self, measurements: Measurements) -> Measurements:
        """Add the digest of one augmented batch to the conventions.

        Measurements of a built-in data set are returned unchanged.
        """
        if not self._is_third_party:
            return measurements
        conventions = {**measurements.conventions, BATCH: self._batch_digest(self._splits)}
        return dataclasses.replace(measurements, conventions=conventions)

    def checks(
        self, recorded: Mapping[str, Scalar], measured: Mapping[str, Scalar], exact: bool, root: Path | None
    ) -> Iterator[Check]:
        """Yield the check of the data of one run; no check for a built-in data set.

        Args:
            recorded: the conventions that the run recorded.
            measured: the conventions of `measured`.
            exact: whether this machine has the run's configuration. On another machine, the data may have other bits.
            root: folder with the files of data sets.
        """
        if self._is_third_party:
            problems = list(self._problems(recorded, measured, exact, root))
            text = "training, audit and a second call of the data set have the same samples and augmentation"
            yield Check(DATA_CHECK, "differs" if problems else "agrees", "; ".join(problems) or text)

    def _problems(
        self, recorded: Mapping[str, Scalar], measured: Mapping[str, Scalar], exact: bool, root: Path | None
    ) -> Iterator[str]:
        yield from self._other_batches()
        again = load_splits(self._spec, self._device, root)
        digests = {**data_digests(self._spec, again), BATCH: self._batch_digest(again)}
        if names := differing_labels(LABELS, digests, measured):
            yield f"a second call of the data set gives other {', '.join(names)}"
        if exact and (names := differing_labels(DIGESTED, recorded, measured)):
            yield f"the run recorded no digests, or other digests, of the {', '.join(names)}"

    def replay_check(self) -> Iterator[Check]:
        """Yield a failed check if the augmentation gave the replay other batches than it gives the audit."""
        if problems := list(self._other_batches()):
            yield Check(DATA_CHECK, "differs", "; ".join(problems))

    def _other_batches(self) -> Iterator[str]:
        if differing := self._calls.differing():
            yield f"the augmentation gave the replay other batches than the same calls give the audit ({differing} of {CALLS})"

    def _batch_digest(self, splits: Splits) -> str:
        """Return the digest of one augmented batch and its labels.

        The nonce chooses the samples and the random numbers.
        """
        choice = torch.Generator().manual_seed(self._number("samples"))
        indices = torch.randperm(len(splits.train_labels), generator=choice)[:SAMPLES].to(self._device)
        draws = torch.Generator(self._device).manual_seed(self._number("augmentation"))
        return tensors_digest(splits.augment(splits.train_images[indices], draws), splits.train_labels[indices])

    def _number(self, name: str) -> int:
        return int(ranked(self._nonce, name)[:15], 16)


class _Calls:
    """An augmentation that remembers CALLS of its calls, all equally likely."""

    def __init__(self, splits: Splits, seed: int):
        self._augment, self._random, self._count = splits.augment, random.Random(seed), 0
        self._kept: list[tuple[Tensor, torch.Generator, str]] = []

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment a batch as the data set does."""
        # reservoir sampling: the number of calls is not known in advance
        self._count += 1
        place = self._count - 1 if self._count <= CALLS else self._random.randrange(self._count)
        if place >= CALLS:
            return self._augment(images, generator)
        before = images.clone(), copied(generator)  # the augmentation may change both
        batch = self._augment(images, generator)
        self._kept[place : place + 1] = [(*before, tensors_digest(batch))]
        return batch

    def differing(self) -> int:
        """Repeat the calls outside of the training; count those with another result."""
        return sum(
            tensors_digest(self._augment(images.clone(), copied(before))) != digest
            for images, before, digest in self._kept
        )


def with_compared_data(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Compare the data of all runs of one third-party data set and seed.

    Runs whose data differ get a check. Method, control and setting must not matter to the data set, because `load` receives only
    device, root and seed. All digests come from this audit and this machine. The order of the records does not change. The result
    has no digests of augmented batches, which would differ in the next audit.
    """
    groups: dict[tuple[str, int, str], list[RunRecord]] = {}
    for record in records:
        groups.setdefault((record.spec.dataset, record.spec.seed, record.spec.device_class), []).append(record)
    return [
        _without_batch(_compared(record, groups[record.spec.dataset, record.spec.seed, record.spec.device_class]))
        for record in records
    ]


def _without_batch(record: RunRecord) -> RunRecord:
    measured = record.measurements
    if BATCH not in measured.conventions:
        return record
    conventions = {name: value for name, value in measured.conventions.items() if name != BATCH}
    return dataclasses.replace(record, measurements=dataclasses.replace(measured, conventions=conventions))


def _compared(record: RunRecord, group: Sequence[RunRecord]) -> RunRecord:
    """Add a failed check to a record if other runs of its group have other data."""
    others = [other for other in group if _differing(record, other)]
    if not others:
        return record
    names = list(dict.fromkeys(name for other in others for name in _differing(record, other)))
    shown = [f"run {other.run_id} ({other.name})" for other in others[:SHOWN]]
    shown += [pluralise(len(others) - SHOWN, "more run")] if len(others) > SHOWN else []
    text = f"on this machine, the data set gives this run other {', '.join(names)} than {', '.join(shown)}"
    threads = {str(one.measurements.conventions.get("threads")) for one in (record, *others)}
    check = Check(DATA_CHECK, "differs", text, others=tuple(other.run_id for other in others))
    if len(threads) > 1:  # the number of threads decides the order of sums, and so the last bits of computed samples
        difference = f"the runs were trained with {' and '.join(sorted(threads))} threads"
        check = dataclasses.replace(undecidable(DATA_CHECK, difference, text), others=check.others)
    return dataclasses.replace(record, integrity=with_checks(record.integrity, [check]))


def _differing(first: RunRecord, second: RunRecord) -> list[str]:
    """Return the labels of the data that differ between two records.

    The result is empty if a record has no digests of this audit.
    """
    conventions = [record.measurements.conventions for record in (first, second)]
    return differing_labels(LABELS, *conventions) if all(BATCH in one for one in conventions) else []


def differing_labels(names: Collection[str], first: Mapping[str, Scalar], second: Mapping[str, Scalar]) -> list[str]:
    """Return the labels of the digests that differ between two mappings."""
    return [LABELS[name] for name in names if first.get(name) != second.get(name)]
