"""Measured numbers, single or as a series. A missing number has a reason."""

from __future__ import annotations

import base64
import binascii
import itertools
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

from fa_registry import jsonio
from fa_registry.field_types import Checked, Limits

if TYPE_CHECKING:
    import numpy as np

WRITTEN = 'a number or {"na": reason}'  # a reading in JSON
NOT_ITS_GRADIENT = "the model's backward pass is not its gradient"
NOT_CHECKED = "the gradient cannot be checked"
NOT_FINITE = "not finite"  # the value was computed and is inf or nan
NOT_DUE = "not due"  # the value is not measured at every epoch, see RunSpec.is_due
# Kinds of reasons. Rules and checks ask for the kind; only a reader uses the text.
WRONG_GRADIENT, UNCHECKED_GRADIENT = (
    "wrong gradient",
    "unchecked gradient",
)  # of all readings that depend on the gradient
KINDS = ("", NOT_FINITE, NOT_DUE, WRONG_GRADIENT, UNCHECKED_GRADIENT)


class Reason(str):
    """Reason why a value is missing, with its kind. Every reading that gets this reason has the same kind."""

    kind: str

    def __new__(cls, text: str, kind: str) -> Reason:
        reason = super().__new__(cls, text)
        reason.kind = kind
        return reason

    def __reduce__(self) -> tuple[Any, ...]:
        return Reason, (str(self), self.kind)


def not_finite(what: str) -> Reason:
    """Return the reason that a value is inf or nan, which JSON cannot represent."""
    return Reason(f"{NOT_FINITE}: {what}", NOT_FINITE)


def wrong_gradient(where: str) -> Reason:
    """Return the reason that the backward pass of the model is not its gradient."""
    return Reason(f"{NOT_ITS_GRADIENT} {where}", WRONG_GRADIENT)


def unchecked_gradient(why: str) -> Reason:
    """Return the reason that the reference gradient cannot be checked."""
    return Reason(f"{NOT_CHECKED}{why}", UNCHECKED_GRADIENT)


@lru_cache(maxsize=64)  # the million rows of a series may have one long reason, of which each would else keep a copy
def _reason(text: str, kind: str) -> Reason:
    return Reason(text, kind)


@dataclass(frozen=True, slots=True)
class Reading:
    """A measured number, or None with the reason.

    In JSON, a reading is the number, {"na": reason} or {"na": reason, "kind": kind}. If the reason is a Reason, it determines the
    kind.
    """

    value: float | None = None
    reason: str = ""
    kind: str = ""

    def __post_init__(self):
        if self.value is not None and not self.reason and not self.kind and math.isfinite(self.value):
            return  # nearly all readings
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(
                f"expected a finite number, found {self.value}; use Reading.of for numbers that may be inf or nan"
            )
        if (self.value is None) != bool(self.reason):
            raise ValueError("a Reading needs either a value or a reason")
        if isinstance(self.reason, Reason):
            object.__setattr__(self, "kind", self.reason.kind)
        elif self.kind:  # so a copy of the reason keeps the kind
            object.__setattr__(self, "reason", _reason(self.reason, self.kind))
        if self.kind and (self.value is not None or self.kind not in KINDS):
            raise ValueError(
                f"expected no value and a kind of reason ({', '.join(KINDS[1:])}), found the kind {self.kind!r}"
            )

    @classmethod
    def of(cls, value: float) -> Reading:
        """Return the reading of a number; inf and nan become N/A with a reason."""
        number = float(value)
        return cls(number) if math.isfinite(number) else cls(None, f"{NOT_FINITE} ({number})", NOT_FINITE)

    @property
    def not_finite(self) -> bool:
        """Whether the value was computed and is inf or nan."""
        return self.kind == NOT_FINITE

    # the dataclass's default takes four times as long
    def __reduce__(self) -> tuple[type[Reading], tuple[float | None, str, str]]:
        return Reading, (self.value, self.reason, self.kind)

    def __json__(self) -> Any:
        if self.value is not None:
            return self.value
        return {"na": self.reason, "kind": self.kind} if self.kind else {"na": self.reason}

    @classmethod
    def __from_json__(cls, value: Any) -> Reading:
        if jsonio.is_finite(value):
            return cls(float(value))
        if isinstance(value, Mapping) and value.keys() <= {"na", "kind"}:
            reason, kind = value.get("na"), value.get("kind", "")
            if isinstance(reason, str) and reason and kind in KINDS:
                return cls(None, reason, kind)
        raise ValueError(f"expected {WRITTEN}, found {jsonio.describe_value(value)}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return jsonio.read_by(cls.__from_json__, cls.__name__)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        reason = {"type": "string", "minLength": 1, "description": "The reason."}
        kind = {
            "type": "string",
            "enum": list(KINDS[1:]),
            "description": "The kind of the reason, if rules depend on it.",
        }
        missing = {
            "type": "object",
            "properties": {"na": reason, "kind": kind},
            "required": ["na"],
            "additionalProperties": False,
        }
        return {
            "description": "A measured number, or the reason why the number is missing.",
            "oneOf": [{"type": "number"}, missing],
        }


ALL_USUAL: dict[int, Reading] = {}  # gaps of a series without other gaps; shared by nearly all series, never modified


class Series(Sequence[Reading]):
    """Sequence of readings, one per epoch (0 = initialisation) or per site.

    The values are stored in an array of floats, because 10,000 runs have about twelve million readings. A missing value is nan
    there, and its reading is the first missing one of the series, unless `_gaps` has another one: nine of ten fidelities are
    missing for one reason. A series is equal to a tuple of the same readings.
    """

    __slots__ = ("_gaps", "_usual", "_values")

    def __init__(self, readings: Iterable[Reading] = ()):
        self._values = array("d")
        self._gaps = ALL_USUAL
        self._usual: Reading | None = None
        for reading in readings:
            self._append(reading)

    def _append(self, reading: Reading) -> None:
        if reading.value is None:
            self._usual = self._usual or reading
            if reading != self._usual:
                self._gaps = self._gaps or {}
                self._gaps[len(self._values)] = reading
        self._values.append(math.nan if reading.value is None else reading.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _series, (self._values, self._gaps, self._usual)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> Reading: ...
    @overload
    def __getitem__(self, index: slice) -> Series: ...
    def __getitem__(self, index: int | slice) -> Reading | Series:
        if isinstance(index, slice):
            return Series(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        return self._reading(place, self._values[place])

    def _reading(self, index: int, value: float) -> Reading:
        return Reading(value) if value == value else self._gaps.get(index, self._usual)  # nan differs from itself

    def __iter__(self) -> Iterator[Reading]:
        return itertools.starmap(self._reading, enumerate(self._values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Series, tuple)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Series({list(self)!r})"

    def __json__(self) -> Any:
        if self._usual is None:
            return self._values.tolist()
        return [reading.__json__() for reading in self]

    @classmethod
    def __from_json__(cls, values: Any) -> Series:
        if not isinstance(values, list):
            raise ValueError(f"expected a list, found {jsonio.describe_value(values)}")
        series = cls()
        if {float}.issuperset(map(type, values)) and math.isfinite(sum(values)):
            series._values = array("d", values)  # the usual case, without a Reading object per number
            return series
        for index, value in enumerate(values):
            series._append(_entry(value, index))
        return series

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return jsonio.read_by(cls.__from_json__, cls.__name__, handler.generate_schema(list[Reading]))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        text = "Readings in order: one per epoch (the first is the initialisation) or one per site."
        return {"description": text, **handler(schema)}


def _series(values: array[float], gaps: dict[int, Reading], usual: Reading | None) -> Series:
    series = Series()
    series._values, series._gaps, series._usual = values, gaps or ALL_USUAL, usual
    return series


def _entry(value: Any, index: int) -> Reading:
    try:
        return Reading.__from_json__(value)
    except ValueError as error:
        raise ValueError(f"{error} at [{index}]") from None


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
