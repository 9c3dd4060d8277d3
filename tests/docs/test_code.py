"""Python on a page compiles; what is marked as running runs; what is said to be a file is that file."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, ROOT, blocks

BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
RUNNABLE = [block for block in PYTHON if block.mark == "runs"]
FILES = [block for block in BLOCKS if block.mark.startswith("file: ")]


def labelled(block) -> str:
    return f"{block.page}:{block.text.splitlines()[0]}"


@pytest.mark.parametrize("block", PYTHON, ids=labelled)
def test_it_compiles(block):
    assert compile(block.text, block.page, "exec")


@pytest.mark.parametrize("block", RUNNABLE, ids=labelled)
def test_it_runs(block, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.mark)
def test_it_is_the_file_that_it_is_said_to_be(block):
    assert block.text == (ROOT / block.mark.removeprefix("file: ")).read_text(encoding="utf-8")


def test_marks_are_known_and_used():
    assert {block.mark.partition(":")[0] for block in BLOCKS} == {"", "runs", "file"}
    assert len(RUNNABLE) >= 3 and len(FILES) >= 2
