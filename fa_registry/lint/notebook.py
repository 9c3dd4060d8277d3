"""Jupyter notebooks: their code cells as plain Python, line for line, IPython's own syntax made harmless."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fa_registry.lint.syntax import parse

# Cell magics whose body is Python; the body of any other (%%bash, %%html, %%writefile …) is not.
PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%python", "%%python3", "%%memit", "%%mprun")
LINE_MAGIC = re.compile(r"\s*([%!?]|.*\?\s*$)")  # %magic, !command, ?help, help?
ASSIGNED_MAGIC = re.compile(r"(\s*[^=#'\"]+=\s*)[%!]")  # files = !ls, rows = %sql SELECT …


@dataclass(frozen=True)
class Cell:
    """number: 1 is the notebook's first cell, of whatever kind."""

    number: int
    text: str


def code_cells(content: bytes) -> Iterator[Cell]:
    """The code cells of a Python notebook, none for another language; ValueError if this is not a notebook."""
    notebook = json.loads(content)
    cells = _cells(notebook)
    if _language(notebook) != "python":
        return
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, Mapping) or cell.get("cell_type") != "code":
            continue
        written = cell.get("source", cell.get("input", ""))  # `input` until nbformat 3
        yield Cell(number, "".join(written) if isinstance(written, list) else str(written))


def as_python(text: str) -> str:
    """A cell as Python with the same lines; raises SyntaxError if it is none even without its magics.

    Only a line that Python refuses is taken for IPython's: `% total` may as well continue an expression.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        if lines[first].split()[0] not in PYTHON_MAGICS:
            return "\n" * (len(lines) - 1)
        lines[first] = ""
    while True:
        try:
            parse("\n".join(lines))
            return "\n".join(lines)
        except SyntaxError as error:
            if not _disarmed(lines, (error.lineno or 1) - 1):
                raise


def _disarmed(lines: list[str], index: int) -> bool:
    """Replaces an IPython line, with its backslash continuations, by `pass`; False if it is none."""
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
        raise ValueError("not a notebook: no JSON object")
    if "worksheets" in notebook:  # until nbformat 3
        return [cell for sheet in notebook["worksheets"] for cell in sheet.get("cells", [])]
    if not isinstance(notebook.get("cells"), list):
        raise ValueError("not a notebook: no list of cells")
    return notebook["cells"]


def _language(notebook: Mapping[str, Any]) -> str:
    """What the notebook says it is written in; Python if it does not say."""
    metadata = notebook.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    for part, key in (("kernelspec", "language"), ("language_info", "name")):
        declared = metadata.get(part)
        if isinstance(declared, Mapping) and declared.get(key):
            return "python" if "python" in str(declared[key]).lower() else str(declared[key]).lower()
    return "python"
