"""PNG of drawn pixels, small: in shades of the few colours that were drawn with."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

SHADES = 3  # of a colour between itself and white: what smooth edges need
LARGEST = 256  # colours of a palette
LEVEL = 8  # of zlib: 9 takes more than twice as long for 2 % fewer bytes


def compressed(pixels: np.ndarray, flat: Iterable[str], used: Iterable[str]) -> bytes:
    """PNG without metadata, a quarter of its size in true colour. pixels: (height, width, 4), drawn on white.

    used: the colours drawn with, of which lines and letters have soft edges. flat: those without any.
    """
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for shade in shades(flat, used) for part in shade])
    picture = Image.fromarray(pixels).convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=LEVEL)
    return buffer.getvalue()


def shades(flat: Iterable[str], used: Iterable[str]) -> list[tuple[int, ...]]:
    """White, the flat colours, and each of the used ones with its way to white."""
    ways = [
        tuple(round(255 * (1 - (1 - part) * step / SHADES)) for part in to_rgb(colour))
        for colour in dict.fromkeys(used)
        for step in range(1, SHADES + 1)
    ]
    plain = [tuple(round(255 * part) for part in to_rgb(colour)) for colour in flat]
    return list(dict.fromkeys([(255, 255, 255), *plain, *ways]))[:LARGEST]
