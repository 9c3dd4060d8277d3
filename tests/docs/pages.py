"""What is on the project's pages for people: code blocks, commands, links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "projects").glob("*/README.md"),
    ]
)
FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"^    (.*)$", re.M)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PROGRAM = re.compile(r"\s*(\.venv/bin/)?(fa-registry|mlflow|make|python3?) ")
LINK = re.compile(r"\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block. mark: the comment on the line before it, `runs` or `file: PATH`."""

    page: str
    language: str
    mark: str
    text: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(name_of(page), one["language"], one["mark"] or "", one["text"]) for one in found]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(page: Path) -> Iterator[list[str]]:
    """Every shell command of the page as words: of indented lines, of blocks without a language, of `code` in sentences."""
    lines = [line for block in blocks(page) if block.language in ("", "sh") for line in block.text.splitlines()]
    text = prose(page)
    for line in [*lines, *INDENTED.findall(text), *INLINE.findall(text)]:
        yield from _split_command(line)


def _split_command(line: str) -> Iterator[list[str]]:
    for part in re.split(r" && | > |;| \| ", line):
        if PROGRAM.match(part):
            yield shlex.split(part, comments=True)


def links(page: Path) -> list[str]:
    """The relative targets of the page's links and pictures."""
    return [target for target in LINK.findall(prose(page)) if not re.match(r"\w+:", target)]


def anchors(page: Path) -> set[str]:
    """The anchors that code hosts give the page's headings."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
