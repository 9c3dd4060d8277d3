"""From paths to texts: which files are Python, and what they say. A file that cannot be read is a result, not a crash."""

from __future__ import annotations

import io
import os
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fa_registry.errors import UsageError
from fa_registry.lint import notebook
from fa_registry.lint.syntax import Syntax

SUFFIXES = (".py", ".ipynb")
SKIPPED = ("__pycache__", "node_modules")


@dataclass(frozen=True)
class Unreadable:
    """Why a file, or one cell of it, could not be read; line 1 where no line is to blame."""

    line: int
    problem: str
    cell: int = 0


@dataclass(frozen=True)
class Source:
    """path: as the user named it. syntax: None if nothing of the file can be read. cells: (cell, line of the text before it)."""

    path: str
    syntax: Syntax | None
    unreadable: tuple[Unreadable, ...] = ()
    cells: tuple[tuple[int, int], ...] = ()

    def locate(self, line: int) -> tuple[int, int]:
        """(cell, line in it) of a line of the text; cell 0 in a plain file."""
        cell, before = max(
            (start for start in self.cells if start[1] < line), key=lambda start: start[1], default=(0, 0)
        )
        return cell, line - before


def python_files(paths: Sequence[str]) -> list[Path]:
    """The .py and .ipynb files under the paths, once each, in order.

    Below a folder, hidden folders, virtual environments, __pycache__ and node_modules are left out; a path that is
    named itself never is. Raises UsageError for paths that do not exist, or when no Python file is found.
    """
    missing = [path for path in paths if not Path(path).exists()]
    if missing:
        raise UsageError(f"no such file or folder: {', '.join(missing)}")
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        for file in [path] if path.is_file() else _under(path):
            if file.suffix in SUFFIXES:
                files.setdefault(file.resolve(), file)
    if not files:
        raise UsageError(f"no .py or .ipynb file in {', '.join(paths)}")
    return list(files.values())


def read(path: Path) -> Source:
    """The text of a file with its syntax tree, or the reason why there is none."""
    name = path.as_posix()
    try:
        content = path.read_bytes()
        if path.suffix == ".ipynb":
            return _notebook(name, content)
        return Source(name, Syntax(_decoded(content)))
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
        return Source(name, None, (Unreadable(getattr(error, "lineno", 0) or 1, _reason(error)),))


def _notebook(name: str, content: bytes) -> Source:
    text = ""
    cells, unreadable = [], []
    for cell in notebook.code_cells(content):
        try:
            python = notebook.as_python(cell.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unreadable.append(Unreadable(getattr(error, "lineno", 0) or 1, _reason(error), cell.number))
            continue
        cells.append((cell.number, text.count("\n")))
        text += python.rstrip("\n") + "\n"
    return Source(name, Syntax(text), tuple(unreadable), tuple(cells))


def _under(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder, onerror=_cannot_list):
        folders[:] = sorted(folder for folder in folders if not _skipped(Path(place, folder)))
        yield from (Path(place, file) for file in sorted(files) if Path(place, file).is_file())


def _skipped(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in SKIPPED or (folder / "pyvenv.cfg").exists()


def _cannot_list(error: OSError) -> None:
    raise UsageError(f"{error.filename}: the folder cannot be listed ({error.strerror})")


def _decoded(content: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def _reason(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"does not parse as Python {sys.version_info.major}.{sys.version_info.minor}: {error.msg}"
    if isinstance(error, (RecursionError, MemoryError)):
        return "nested too deeply to parse"
    return f"cannot be read: {error}"
