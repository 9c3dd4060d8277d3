"""A study's twin: the same study on another image set, or with scaled epochs. Its runs are other runs than the study's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fa_registry.jsonio import describe_value

RULE = (
    "every image set becomes NAME, random_targets:… becomes random_targets:NAME, lq and teacher_student are tasks of their "
    "own and stay; settings that become one are one"
)
SCALING = "epochs × F, rounded half up, at least 1"
OWN_TASK = ("lq", "teacher_student")
OF_A_SET = "random_targets"
LARGEST = 1_000_000


@dataclass(frozen=True)
class StudyVariant:
    """data: the image set instead of the study's own, empty for its own. scale: what the epochs are multiplied with."""

    data: str = ""
    scale: float = 1.0

    @property
    def overrides(self) -> dict[str, Any]:
        """What makes it a twin, as load_study takes it; empty for the study itself."""
        given = {"data": self.data} if self.data else {}
        return given | ({"scale": self.scale} if self.scale != 1 else {})

    @property
    def description(self) -> str:
        """As it is typed: `--replace-dataset digits --scale 0.02`; empty for the study itself."""
        return " ".join(f"--{name} {value}" for name, value in self.overrides.items())

    def dataset(self, name: str) -> str:
        """The data set that stands in for `name`."""
        family = name.partition(":")[0]
        if not self.data or family in OWN_TASK:
            return name
        return f"{OF_A_SET}:{self.data}" if family == OF_A_SET else self.data

    def epochs(self, count: int) -> int:
        """Scaled epochs: rounded half up, and at least one where there is one. Python's round() would take 2.5 to 2."""
        return max(1, math.floor(count * self.scale + 0.5)) if count > 0 and self.scale != 1 else count


def parse_variant(overrides: Mapping[str, Any], problems: list[str]) -> StudyVariant:
    """The twin that `data` and `scale` of the overrides ask for; what is wrong with them is added to `problems`."""
    data = overrides.get("data") or ""
    if data.partition(":")[0] in (*OWN_TASK, OF_A_SET):
        problems.append(f"data: expected the name of an image set, found {data!r}, a task of its own")
    scale = overrides.get("scale")
    if scale in (None, ""):
        return StudyVariant(data)
    if overrides.get("epochs"):
        problems.append(f"scale: expected --epochs or --scale, found both ({overrides['epochs']}; {scale})")
    try:
        factor = float(scale)
    except (TypeError, ValueError):
        factor = math.nan
    if not 0 < factor <= LARGEST:  # not a number is neither
        expected = f"at most {LARGEST:,}" if math.isfinite(factor) and factor > LARGEST else "a number above 0"
        problems.append(f"scale: expected {expected}, found {describe_value(scale)}")
        return StudyVariant(data)
    return StudyVariant(data, factor)
