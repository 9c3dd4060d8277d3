"""Search for Python files and notebooks, and parsing of their source code.

A file that cannot be read causes a finding and no exception. The code cells of a notebook are joined into one text. IPython
magics are replaced by Python code with the same number of lines, so line numbers in each cell stay correct.
"""

from __future__ import annotations

import io
import json
import os
import re
import reprlib
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_lint.base import LintFinding, RuleCard, SourceLocation
from fa_lint.errors import LONGEST_PROBLEM, LintError, join_names, shortened
from fa_lint.regular_files import UnreadableFile, read_file
from fa_lint.syntax import Syntax, parse

SUFFIXES = (".py", ".ipynb")
SKIPPED = ("__pycache__", "node_modules")
LARGEST = 2**21  # most bytes of Python in one file; the syntax tree of so much code can take 1 GB
PATIENCE = 2**24  # most characters that are parsed for one notebook; each magic causes one more parse of its cell


UNREADABLE = RuleCard(
    code="FA900",
    pitfall=0,
    name="unreadable",
    title="a file or notebook cell cannot be parsed",
    why="the rules did not check this file or cell",
    fix="correct the syntax for the Python version that runs the linter, or exclude the file from the paths",
)


def unreadable(path: str, problem: str, line: int = 1, cell: int = 0) -> LintFinding:
    """Return the finding FA900 for a file or a notebook cell that cannot be read or checked.

    Args:
        path: Path of the file.
        problem: Reason why the file or the cell cannot be read or checked.
        line: Line that causes the problem, or 1 if no single line is the cause.
        cell: Number of the notebook cell, or 0 for a Python file.
    """
    location = SourceLocation(path, line, 1, line, 1, cell)
    return LintFinding(UNREADABLE.code, 0, location, problem, UNREADABLE.why, UNREADABLE.fix)


@dataclass(frozen=True)
class Source:
    """Parsed source code of one file.

    Args:
        path: Path as the user wrote it.
        syntax: Syntax tree, or None if the file cannot be read or parsed.
        unreadable: Findings for the file or the cells that cannot be read.
    """

    path: str
    syntax: Syntax | None
    unreadable: tuple[LintFinding, ...] = ()


def python_files(paths: Sequence[str]) -> list[Path]:
    """Return each .py and .ipynb file under the paths once, in a fixed order.

    Inside a folder, hidden folders, virtual environments, __pycache__ and node_modules are skipped. To include such a folder, name
    the folder as one of the paths.

    Args:
        paths: Files and folders.

    Raises:
        LintError: If a path does not exist, if a folder cannot be listed, or if there is no .py or .ipynb file.
    """
    missing = [path for path in paths if not os.path.exists(path)]  # Path.exists raises for a name that is too long
    if missing:
        raise LintError(f"no such file or folder: {join_names(missing)}")
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        for file in _under(path) if path.is_dir() else [path]:
            if file.suffix in SUFFIXES:
                files.setdefault(os.path.realpath(file), file)
    if not files:
        raise LintError(f"no .py or .ipynb file in {join_names(paths)}")
    return list(files.values())


def read(path: Path) -> Source:
    """Read and parse a Python file or a notebook.

    Returns:
        The source with its syntax tree. If the file cannot be read or parsed, the tree is None and a finding gives the reason. A
        notebook cell that cannot be read is left out of the tree, and a finding gives the reason.
    """
    name = path.as_posix()
    try:
        content = read_file(path)
        if path.suffix == ".ipynb":
            return _notebook(name, content)
        _check_length(content)
        return Source(name, Syntax(_decoded(content)))
    except (SyntaxError, ValueError, UnreadableFile, RecursionError, MemoryError) as error:
        return Source(name, None, (unreadable(name, _reason(error), _line(error)),))


def _notebook(name: str, content: bytes) -> Source:
    parts: list[str] = []
    cells, unreadable_cells = [], []
    lines, budget = 0, ParseBudget()
    for number, source in code_cells(content):
        try:
            part = as_python(cell_text(source), budget).rstrip("\n") + "\n"
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unreadable_cells.append(unreadable(name, _reason(error), _line(error), number))
            continue
        cells.append((number, lines))
        parts.append(part)
        lines += part.count("\n")
    text = "".join(parts)
    _check_length(text)
    return Source(name, Syntax(text, cells), tuple(unreadable_cells))


class ParseBudget:
    """Number of characters of one notebook that may still be parsed."""

    def __init__(self, characters: int = PATIENCE):
        self.left = characters

    def spend(self, characters: int) -> None:
        """Subtract a number of characters from the budget.

        Raises:
            ValueError: If the budget contains fewer characters.
        """
        self.left -= characters
        if self.left < 0:
            raise ValueError(
                f"the notebook contains too many magics: the linter parses at most {PATIENCE:,} characters per notebook"
            )


def _check_length(content: str | bytes) -> None:
    if len(content) > LARGEST:
        raise ValueError(f"contains {len(content):,} bytes of Python, but the linter checks at most {LARGEST:,} bytes")


def _under(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder, onerror=_cannot_list):
        folders[:] = sorted(folder for folder in folders if not _skipped(Path(root, folder)))
        yield from (Path(root, file) for file in sorted(files) if os.path.exists(Path(root, file)))


def _skipped(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in SKIPPED or (folder / "pyvenv.cfg").exists()


def _cannot_list(error: OSError) -> None:
    raise LintError(f"{error.filename}: the files in this folder cannot be listed ({error.strerror})")


def _decoded(content: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def _line(error: BaseException) -> int:
    return getattr(error, "lineno", 0) or 1


def _reason(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"is not valid Python {sys.version_info.major}.{sys.version_info.minor}: {error.msg}"
    if isinstance(error, (RecursionError, MemoryError)):
        return "cannot be parsed, because its code is nested too deeply"
    return f"cannot be read: {shortened(error, LONGEST_PROBLEM)}"


# Cell magics whose body is Python; the body of any other cell magic (%%bash, %%html, %%writefile …) is not Python.
PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%python", "%%python3", "%%memit", "%%mprun")
LINE_MAGIC = re.compile(r"\s*([%!?]|.*\?\s*$)")  # %magic, !command, ?help, help?
ASSIGNED_MAGIC = re.compile(r"(\s*[^=#'\"]+=\s*)[%!]")  # files = !ls, rows = %sql SELECT …


def code_cells(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the source of each code cell of a Python notebook.

    Cells of every type are counted, from 1. A notebook in another language than Python yields no cell.

    Args:
        content: Bytes of the .ipynb file.

    Raises:
        ValueError: If the content is not a notebook.
    """
    notebook = json.loads(content)
    cells = _cells(notebook)
    if _language(notebook) != "python":
        return
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, Mapping) or cell.get("cell_type") != "code":
            continue
        yield number, cell.get("source", cell.get("input", ""))  # `input` until nbformat 3


def cell_text(source: Any) -> str:
    """Return the source of a notebook cell as one string.

    Args:
        source: A string, or a list with one string per line.

    Raises:
        ValueError: If the source is neither a string nor a list of strings.
    """
    lines = [source] if isinstance(source, str) else source
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ValueError(
            f"expected the source of a cell as text or as a list of lines, found {shortened(reprlib.repr(source))}"
        )
    return "".join(lines)


def as_python(text: str, budget: ParseBudget | None = None) -> str:
    """Replace the IPython magics of a cell by Python code with the same number of lines.

    Only lines that Python cannot parse are treated as magics, because `% total` may also continue an expression. If the cell
    begins with a cell magic of another language, such as `%%bash`, the result has only empty lines.

    Args:
        text: Source of the cell.
        budget: Budget of the notebook. With None, a new budget is used.

    Raises:
        SyntaxError: If the cell is not valid Python after the replacement.
        ValueError: If the budget is used up.
    """
    budget = budget or ParseBudget()
    lines = text.replace("\r\n", "\n").split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        if lines[first].split()[0] not in PYTHON_MAGICS:
            return "\n" * (len(lines) - 1)
        lines[first] = ""
    while True:
        budget.spend(len(text) + 1)
        try:
            parse("\n".join(lines))
            return "\n".join(lines)
        except SyntaxError as error:
            if not _disarmed(lines, (error.lineno or 1) - 1):
                raise


def _disarmed(lines: list[str], index: int) -> bool:
    """Replace the IPython magic in one line by Python code; return False if the line has no magic."""
    if index >= len(lines):
        return False
    line = lines[index]
    assigned = ASSIGNED_MAGIC.match(line)
    if not assigned and not LINE_MAGIC.match(line):
        return False
    indent = line[: len(line) - len(line.lstrip())]
    lines[index] = f"{assigned.group(1)}None" if assigned else f"{indent}pass"
    while line.rstrip().endswith("\\") and index + 1 < len(lines):
        index += 1
        line, lines[index] = lines[index], ""
    return True


def _cells(notebook: Any) -> list[Any]:
    if not isinstance(notebook, Mapping):
        raise ValueError("not a notebook: expected a JSON object")
    if "worksheets" in notebook:  # until nbformat 3
        sheets = notebook["worksheets"]
        is_valid = isinstance(sheets, list) and all(isinstance(sheet, Mapping) for sheet in sheets)
        lists = [sheet.get("cells", []) for sheet in sheets] if is_valid else [None]
    else:
        lists = [notebook.get("cells")]
    if not all(isinstance(cells, list) for cells in lists):
        raise ValueError("not a notebook: expected a list of cells")
    return [cell for cells in lists for cell in cells]


def _language(notebook: Mapping[str, Any]) -> str:
    """Return the language that the notebook declares, or "python" if the notebook declares no language."""
    metadata = notebook.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    for part, key in (("kernelspec", "language"), ("language_info", "name")):
        declared = metadata.get(part)
        if isinstance(declared, Mapping) and declared.get(key):
            return "python" if "python" in str(declared[key]).lower() else str(declared[key]).lower()
    return "python"
