"""What the plates of a page share: their bytes, and how a picture travels inside the page."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from fa_registry.reporting.parts import Plate

GROUP_BYTES, LINE_BYTES, NUMBER_BYTES, PLATE_BYTES = 110, 45, 24, 700  # about, as the template writes them


def size_of(plate: Plate) -> int:
    """Bytes of the page that the plate and its table take, about."""
    lines = [line for group in plate.groups for line in group.lines]
    ids = sum(len("".join(group.run_ids)) + len(group.name) for group in plate.groups)
    numbers = LINE_BYTES * len(lines) + NUMBER_BYTES * sum(len(line.numbers) for line in lines)
    words = len(plate.alt.encode()) + len(plate.caption.encode())
    return PLATE_BYTES + len(plate.uri) + words + GROUP_BYTES * len(plate.groups) + ids + numbers


def data_uri(image: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def distinct(run_ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run_ids))
