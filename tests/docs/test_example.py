"""The pages in docs/example are what the software writes from the audit beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.fashion import EXAMPLE, example

PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]+")  # its bytes depend on the version of zlib


def pages(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): PICTURE.sub("", path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
    }


@pytest.mark.long
def test_the_example_is_written_by_this_software(tmp_path):
    """Written again by `python -m benchmarks.fashion`."""
    example(tmp_path)
    expected, found = pages(tmp_path), pages(EXAMPLE)
    assert found.keys() == expected.keys() and len(found) == 6
    assert [name for name, text in found.items() if text != expected[name]] == []
    assert all("<script" not in text for text in found.values())
