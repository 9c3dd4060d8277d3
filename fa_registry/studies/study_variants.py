"""Study variants: a study with another image set or a scaled number of epochs.

The runs of a variant do not belong to the study itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fa_registry.jsonio import describe_value

RULE = (
    "NAME replaces every image set, and random_targets:NAME replaces random_targets:…; the separate tasks lq and teacher_student "
    "do not change; settings that become equal are merged"
)
SCALING = "each number of epochs × F, rounded half up, at least 1"
OWN_TASK = ("lq", "teacher_student")
OF_A_SET = "random_targets"
LARGEST = 1_000_000
OPTIONS = {"data": "replace-dataset", "scale": "scale"}  # override → option of the command line


@dataclass(frozen=True)
class StudyVariant:
    """Differences of a study variant from the study.

    Attributes:
        data: image set that replaces the image sets of the study; empty means no replacement.
        scale: factor of the number of epochs.
    """

    data: str = ""
    scale: float = 1.0

    @property
    def overrides(self) -> dict[str, Any]:
        """Overrides that create this variant, as input of `load_study`; empty without differences."""
        data_override = {"data": self.data} if self.data else {}
        return data_override | ({"scale": self.scale} if self.scale != 1 else {})

    @property
    def description(self) -> str:
        """Command-line options that create this variant, e.g. `--replace-dataset digits --scale 0.02`."""
        return " ".join(f"--{OPTIONS[name]} {value}" for name, value in self.overrides.items())

    def dataset(self, name: str) -> str:
        """Return the name of the data set that the variant uses instead of `name`."""
        family = name.partition(":")[0]
        if not self.data or family in OWN_TASK:
            return name
        return f"{OF_A_SET}:{self.data}" if family == OF_A_SET else self.data

    def epochs(self, count: int) -> int:
        """Return the scaled number of epochs, rounded (half up) and at least 1 if `count` is positive."""
        return max(1, math.floor(count * self.scale + 0.5)) if count > 0 and self.scale != 1 else count


def parse_variant(overrides: Mapping[str, Any], problems: list[str]) -> StudyVariant:
    """Return the variant of the overrides `data` and `scale`; append messages to `problems`."""
    data = overrides.get("data") or ""
    if data.partition(":")[0] in (*OWN_TASK, OF_A_SET):
        problems.append(f"data: expected the name of an image set, found {data!r}, which is a separate task")
    scale = overrides.get("scale")
    if scale in (None, ""):
        return StudyVariant(data)
    if overrides.get("epochs"):
        problems.append(f"scale: expected --epochs or --scale, found both ({overrides['epochs']}; {scale})")
    try:
        factor = float(scale)
    except (TypeError, ValueError):
        factor = math.nan
    if not 0 < factor <= LARGEST:  # also true for nan
        expected = f"at most {LARGEST:,}" if math.isfinite(factor) and factor > LARGEST else "a number above 0"
        problems.append(f"scale: expected {expected}, found {describe_value(scale)}")
        return StudyVariant(data)
    return StudyVariant(data, factor)
