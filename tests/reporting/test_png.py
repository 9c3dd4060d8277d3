"""Small pictures that keep their colours."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from fa_registry.reporting.figures.style import LARGEST, compressed, shades


def test_white_and_the_colours_drawn_with_stay_exact():
    pixels = np.full((40, 40, 4), 255, dtype=np.uint8)
    pixels[:10, :, :3], pixels[10:20, :, :3] = (0, 114, 178), (213, 94, 0)
    picture = Image.open(io.BytesIO(compressed(pixels, [], ["#0072B2", "#D55E00"])))
    assert picture.info == {} and picture.mode == "P"
    found = np.asarray(picture.convert("RGB"))
    assert [tuple(found[row, 0]) for row in (0, 10, 30)] == [(0, 114, 178), (213, 94, 0), (255, 255, 255)]


def test_a_palette_is_never_larger_than_a_png_allows():
    many = [f"#{index:02x}00{index:02x}" for index in range(0, 250)]
    assert len(shades([], many)) == LARGEST
    assert shades(["#e3e6ea"], [])[:2] == [(255, 255, 255), (227, 230, 234)]
