"""python -m tests.language.sample SEED  prints 100 random docstrings and 60 random messages of the library, text alone.

docs/decisions/24 measures with such a sample how many texts a newcomer has to read twice.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def text_of(node: ast.AST) -> str:
    """A text as it is written, with {expression} for what is filled in; empty if it is none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or f"{{{ast.unparse(getattr(part, 'value', part))}}}" for part in node.values)
    return ""


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """(kind, text) of every docstring, and of every message of at least 40 characters and 7 words."""
    tree, seen = ast.parse(path.read_text(encoding="utf-8")), set()
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS) and (text := ast.get_docstring(node)):
            seen.add(node.body[0].value)
            yield "docstring", f"`{getattr(node, 'name', '(module)')}` in {path.relative_to(ROOT)}\n{text}"
    for node in ast.walk(tree):
        if node not in seen and len(text := text_of(node)) >= 40 and text.count(" ") >= 6 and text[0] != "<":
            seen.update(ast.walk(node))
            yield "message", f"{path.relative_to(ROOT)}:{node.lineno}\n{text}"


def main(seed: int) -> None:
    """Print the sample of a seed."""
    paths = [path for folder in ("fa_registry", "packages") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [entry for path in paths for entry in texts(path)]
    for kind, count in (("docstring", 100), ("message", 60)):
        chosen = random.Random(seed).sample([text for name, text in found if name == kind], count)
        print(*(f"### {kind} {number}: {text}\n" for number, text in enumerate(chosen, start=1)), sep="\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
