"""teacher_student: Gaussian inputs with labels from a fixed random network, the teacher.

The activation of the teacher is φ_α(z) = (1−α)z + α·tanh z, as in the student (architecture student_net). At α = 0 the task is a
linear classification, and at α = 1 the teacher is a tanh network. All sizes were chosen for this package, because the sizes of
the published task are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fa_registry.datasets.base import Dataset, DatasetCard, DatasetFamily, Splits, tensors_digest, unaugmented
from fa_registry.errors import UnknownName

ALPHAS = (0.0, 0.25, 0.5, 1.0)
TRAIN, TEST = 25_600, 2_560  # 100 steps of 256 an epoch, as lq
SHAPE = (1, 8, 16)  # 128 features, the student's D; the shape means nothing
FEATURES, CLASSES = 128, 10
HIDDEN_LAYERS = 2
GAIN = 2.0  # of every layer: units of the first have values around ±2, where tanh is not linear
SEED = 0  # of teacher and inputs: one task for all runs, so that seeds differ in the student only


@dataclass(frozen=True)
class TeacherStudent(DatasetFamily):
    alpha: float = 1.0
    same_for_every_seed = True

    @property
    def card(self) -> DatasetCard:
        """Card of the data set for this α."""
        return DatasetCard(
            name="teacher_student" if self.alpha == 1 else f"teacher_student:{self.alpha:g}",
            line=f"synthetic: {FEATURES} Gaussian features, classes by a random network of activation φ_α, α = {self.alpha:g} "
            f"(`teacher_student:ALPHA`, {', '.join(f'{alpha:g}' for alpha in ALPHAS)})",
            source="drawn here from a fixed seed; arXiv 2606.21126 names the task, α and the 10 classes, sizes are chosen here: "
            f"{HIDDEN_LAYERS} hidden layers of {FEATURES}, weights N(0, {GAIN:g}²/{FEATURES})",
            licence="none needed: synthetic",
            splits=f"{TRAIN:,} train, {TEST:,} test, independent draws",
            normalisation="none: standard normal already",
            augmentation="none",
            image_shape=SHAPE,
            classes=CLASSES,
            train_samples=TRAIN,
            sha256="",
        )

    def of(self, argument: str) -> Dataset:
        """Return the data set for a value of α.

        Args:
            argument: One of the numbers 0, 0.25, 0.5 and 1 as text, or an empty string for 1.

        Raises:
            UnknownName: If the argument is another value.
        """
        named = {f"{alpha:g}": alpha for alpha in ALPHAS}
        try:
            text = f"{float(argument or 1):g}"
        except ValueError:
            text = argument
        if text not in named:
            raise UnknownName("α of teacher_student", argument, named)
        return TeacherStudent(named[text])

    def load(self, device: torch.device, root: Path | None = None, seed: int = 0) -> Splits:
        draw = torch.Generator().manual_seed(SEED)
        inputs = torch.randn(TRAIN + TEST, FEATURES, generator=draw)
        labels = teach(inputs, self.alpha, draw)
        images = inputs.view(-1, *SHAPE)
        parts = (images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])
        return Splits(*(part.to(device) for part in parts), augment=unaugmented, digest=tensors_digest(*parts))


def teach(inputs: Tensor, alpha: float, draw: torch.Generator) -> Tensor:
    """Return the class that the teacher assigns to each input.

    The computation uses float64, because a label must not depend on the order in which a machine adds.

    Args:
        inputs: Inputs (samples, features).
        alpha: Weight α of tanh in the activation.
        draw: Random number generator of the teacher's weights. The weights are equal for every α.
    """
    state = inputs.double()
    for _ in range(HIDDEN_LAYERS):
        state = activation(state @ _weight(FEATURES, draw), alpha)  # (samples, features)
    return (state @ _weight(CLASSES, draw)).argmax(dim=1)


def activation(z: Tensor, alpha: float) -> Tensor:
    """Return φ_α(z) = (1−α)z + α·tanh z."""
    return (1 - alpha) * z + alpha * z.tanh()


def _weight(units: int, draw: torch.Generator) -> Tensor:
    """Return random weights (features, units); unit inputs give outputs of standard deviation GAIN."""
    return torch.randn(FEATURES, units, generator=draw).double() * (GAIN / FEATURES**0.5)


PLUGIN = TeacherStudent()
