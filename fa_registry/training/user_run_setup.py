"""The setup of a user-supplied training loop, and the journal of its epochs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fa_registry import jsonio
from fa_registry.datasets.base import DatasetCard, Splits, tensors_digest, unaugmented
from fa_registry.errors import InvalidFields
from fa_registry.metrics import declaration
from fa_registry.records import Measurements, RunSpec, Scalar
from fa_registry.records.manifest_checks import OWN_LOOP
from fa_registry.safe_files import UnreadableFile, read_file
from fa_registry.tasks import Task
from fa_registry.tasks._user_loss import Loss, loss_name, user_task
from fa_registry.training.code_fingerprint import measuring_code
from fa_registry.training.loop import EpochRow
from fa_registry.training.measuring import conventions_of
from fa_registry.training.run_setup import eval_digest

DISTRIBUTION = "given by the loop that trained it, not drawn here"
OWN = "own"  # name of a data set without a name
DIGITS = 8  # of a digest in a name
LOSS = "loss"  # name of an entry in the conventions and in the entry `own_loop`


@dataclass(frozen=True)
class UserRunSetup:
    """Model and evaluation batch of a user-supplied training loop.

    The class does not have all attributes of RunSetup. It has those that are needed to record and measure a run.

    Attributes:
        spec: the specification, as the author of the loop declared it.
        batch: x (N, …), and classes y (N,), tokens y (N, T), or values in the shape of the outputs, on which every metric is
            measured.
        feedback_state: name → tensor of the matrices or networks that compute the credit.
        story: the entry `own_loop` of provenance.json: the script, its SHA-256, the sites, and the origin of every other field.
        loss: loss that trains the model, as for `adapt`.
        test_set: conventions of the test set that the author stated.
    """

    spec: RunSpec
    network: nn.Module
    batch: tuple[Tensor, Tensor]
    classes: int
    feedback_state: Mapping[str, Tensor] = field(default_factory=dict)
    story: Mapping[str, Any] = field(default_factory=dict)
    loss: Loss = ""
    test_set: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """The model's device, which the loop may change between epochs."""
        tensors = [*self.network.parameters(), *self.network.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")

    @property
    def eval_batch(self) -> tuple[Tensor, Tensor]:
        """The evaluation batch on the model's device."""
        return self.batch[0].to(self.device), self.batch[1].to(self.device)

    @property
    def feedback(self) -> nn.Module:
        """The feedback state as a module without parameters."""
        module = nn.Module()
        for name, tensor in self.feedback_state.items():
            module.register_buffer(name.replace(".", "/"), tensor.detach())
        return module

    has_feedback = True
    drawn = {"distribution": DISTRIBUTION}

    @property
    def splits(self) -> Splits:
        """Splits that contain only the evaluation batch. The other data are unknown."""
        x, y = self.batch
        return Splits(x[:0], y[:0], x, y, unaugmented, tensors_digest(x, y))

    @property
    def card(self) -> DatasetCard:
        """A card of the data set that contains only the known fields."""
        return DatasetCard(
            name=self.spec.dataset,
            line="data of the loop's author; only the evaluation batch is known here",
            source=self.spec.dataset,
            licence="",
            splits="",
            normalisation="",
            augmentation="",
            image_shape=tuple(self.batch[0].shape[1:]),
            classes=self.classes,
            train_samples=0,
            sha256="",
            task=self.task.card.name if self.task.by_position else "",
        )

    @cached_property
    def task(self) -> Task:
        """The task of the model's loss, or the built-in task that fits the labels of the evaluation batch."""
        return user_task(self.batch[1], self.loss)

    @property
    def recorded_fields(self) -> dict[str, Any]:
        """The code fingerprint of the author's script and the installed diagnostics."""
        script = {
            "package": self.story.get("script", "a loop of its author's own"),
            "version": "",
            "digest": self.story.get("sha256", ""),
        }
        return {"code": {f"methods/{self.spec.method}": script, **measuring_code()}, OWN_LOOP: dict(self.story)}

    @property
    def evaluation(self) -> Mapping[str, Tensor]:
        """The batch x and y that recomputation needs if the run has a factory; otherwise empty."""
        x, y = self.batch
        return {"x": x, "y": y} if "factory" in self.story else {}

    def with_conventions(self, measurements: Measurements, reference: str, null_draws: int = 0) -> Measurements:
        """Return the measurements together with their conventions.

        Conventions are the facts that determine the metrics: for example, the number of eval samples and the source of the
        reference gradient.

        Args:
            measurements: measurements of the evaluation batch.
            reference: as ReferenceSource.source.
            null_draws: number of draws for the null distribution of Γ, or 0 if the null was not measured.
        """
        reported: dict[str, Scalar] = {
            "eval_samples": len(self.batch[1]),
            "eval_digest": eval_digest(self),
            **self.task.conventions(self.classes),
            **declaration(self.task.headline),
            LOSS: loss_name(self.loss),
            "reference_gradient": reference or "the model's own backward pass",
            **conventions_of(self),
            **self.test_set,
            **({"gamma_null_draws": null_draws} if null_draws else {}),
        }
        return dataclasses.replace(measurements, conventions=reported)


def structure(network: nn.Module) -> str:
    """Return the first digits of a SHA-256 of the weights' names and shapes, the structure of a model."""
    shapes = [f"{name}{tuple(tensor.shape)}" for name, tensor in network.state_dict().items()]
    return hashlib.sha256("\n".join(shapes).encode()).hexdigest()[:DIGITS]


class EpochJournal:
    """A file with the SHA-256 and the row of each epoch, one line per epoch.

    Reading stops at the first damaged line. A line is damaged, for example, if the process was killed while it wrote the line.
    If `goes_on` is true, the rows of an interrupted loop are reused. Otherwise, these rows are deleted.

    Args:
        batch: digest of the evaluation batch. Rows that were measured on another batch cannot be reused.

    Attributes:
        weights: digest of the trained weights at each epoch 0, 1, …
    """

    def __init__(self, folder: Path, spec: RunSpec, goes_on: bool, batch: str):
        self.path = folder / f"{spec.identity}.rows"
        self._goes_on, self._batch = goes_on, batch
        self.weights: list[str] = []

    def read(self) -> list[EpochRow]:
        """Return the rows of epochs 0, 1, … before the first damaged line, and remove the rest of the file.

        Raises:
            InvalidFields: the rows were measured on another evaluation batch.
        """
        self.weights = []
        lines = self._lines() if self._goes_on else []
        rows: list[tuple[EpochRow, str]] = []
        for line in lines:
            digest, _, body = line.partition(b" ")
            try:
                fields = jsonio.loads(body.decode())
                row = EpochRow(fields["epoch"], jsonio.decode(Measurements, fields["measurements"]))
                batch, weights = fields["batch"], fields["weights"]
            except (ValueError, KeyError, TypeError, InvalidFields):
                break
            if digest.decode(errors="replace") != hashlib.sha256(body).hexdigest() or row.epoch != len(rows):
                break
            if batch != self._batch:
                problem = f"eval: expected the batch of the interrupted loop (SHA-256 {batch}), found {self._batch}"
                raise InvalidFields("track", [problem])
            rows.append((row, weights))
        self.remove()
        for row, weights in rows:
            self.add(row, weights)
        return [row for row, _ in rows]

    def add(self, row: EpochRow, weights: str) -> None:
        """Append the row of an epoch, and the digest of the trained weights at its end."""
        self.weights.append(weights)
        fields = {"epoch": row.epoch, "measurements": row.measurements, "weights": weights, "batch": self._batch}
        body = jsonio.canonical(fields).encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as stream:
            stream.write(hashlib.sha256(body).hexdigest().encode() + b" " + body + b"\n")

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _lines(self) -> list[bytes]:
        try:
            return read_file(self.path).splitlines() if self.path.is_file() else []
        except UnreadableFile:
            return []
