"""Score of every sample for one metric, from which the error of the sample set follows."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from fa_registry.field_types import Checked, Limits

if TYPE_CHECKING:
    import numpy as np

SAME = 1e-3  # relative for a loss, absolute for a cosine
BITS = {"right": 1, "loss": 32, "cosine": 32}  # bits of a score, by kind
ScoreKind = Literal["right", "loss", "cosine"]


@dataclass(frozen=True)
class SampleScores(Checked):
    """Score of every sample, in the order of the samples. The mean of the scores is the metric."""

    kind: ScoreKind
    """right: whether each answer is right, one bit a sample; loss: the sample's share of the mean loss, one float32 a sample;
    cosine: mean over sites of the sample's cosine, one float32 a sample"""
    samples: Annotated[int, Limits(ge=1)]
    """number of samples"""
    data: str
    """the scores in base64; bits are packed with the first sample in the highest bit of the first byte"""

    @classmethod
    def of(cls, kind: ScoreKind, scores: Sequence[float] | np.ndarray) -> SampleScores:
        """Pack the scores (N,) of all samples."""
        import numpy as np

        packed = np.packbits(np.asarray(scores, dtype=bool)) if kind == "right" else np.asarray(scores, dtype="<f4")
        return cls(kind, len(scores), base64.b64encode(packed.tobytes()).decode())

    def field_problems(self) -> Iterator[tuple[str, str]]:
        """Check that the data are as long as the samples need."""
        try:
            found = len(binascii.a2b_base64(self.data, strict_mode=True))
        except ValueError as error:
            yield "data", f"expected base64, found an error: {error}"
            return
        expected = -(-self.samples * BITS[self.kind] // 8)
        if found != expected:
            yield "data", f"expected {expected} bytes for {self.samples} samples, found {found}"

    def agreement(self, other: SampleScores) -> float:
        """Return the share of samples whose scores agree.

        Losses agree to 1e-3 of their size, and cosines to 1e-3. The share is 0 if the kinds or the numbers of samples differ.
        """
        import numpy as np

        if (self.kind, self.samples) != (other.kind, other.samples):
            return 0.0
        limits = {"rtol": 0, "atol": SAME} if self.kind == "cosine" else {"rtol": SAME, "atol": 0}
        return float(np.isclose(self.scores(), other.scores(), **limits, equal_nan=True).mean())

    def scores(self) -> np.ndarray:
        """Return the scores (N,) as float64. A score of the kind "loss" may be inf or nan."""
        import numpy as np

        content = binascii.a2b_base64(self.data)
        if self.kind == "right":
            return np.unpackbits(np.frombuffer(content, dtype=np.uint8), count=self.samples).astype(float)
        return np.frombuffer(content, dtype="<f4").astype(float)
