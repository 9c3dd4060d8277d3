"""Facts travel, sentences do not: the library prints the text of a record and never reads it (house.md, law 3).

A fact that is looked up in a sentence is lost when a word of the sentence changes: an edition's copy lost what must be
walked back, and a checklist what came after the first five lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fa_registry

PACKAGE = Path(fa_registry.__file__).parent
PROSE = {"sentence", "reason", "details", "detail", "required"}
STRING_METHODS = {name for name in dir(str) if not name.startswith("_")}


def readers(source: str) -> list[int]:
    """The lines at which a fact is taken out of words: by a method of strings, `in`, a comparison with a text, or re."""
    tree = ast.parse(source)
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))]
    return sorted({line for scope in scopes for line in _read_in(scope)})


def _read_in(scope: ast.AST) -> Iterator[int]:
    nodes = list(ast.walk(scope))
    # a module's names are not those of its functions, which are separate scopes
    names = set() if isinstance(scope, ast.Module) else set(_names_of_prose(nodes))

    def is_prose(node: ast.AST) -> bool:
        return _is_attribute(node) or (isinstance(node, ast.Name) and node.id in names)

    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = node.func
            by_method = called.attr in STRING_METHODS and is_prose(called.value)
            by_pattern = (
                isinstance(called.value, ast.Name) and called.value.id == "re" and any(map(is_prose, node.args))
            )
            if by_method or by_pattern:
                yield node.lineno
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            searched = any(isinstance(operator, (ast.In, ast.NotIn)) for operator in node.ops)
            with_text = any(isinstance(side, ast.Constant) and side.value for side in sides)
            if any(map(is_prose, sides)) and (searched or with_text):
                yield node.lineno


def _names_of_prose(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that are given such words, or go through the lines of them."""
    for node in nodes:
        if isinstance(node, ast.Assign) and _is_attribute(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        if isinstance(node, (ast.NamedExpr, ast.AnnAssign)) and _is_attribute(node.value):
            yield from [node.target.id] if isinstance(node.target, ast.Name) else []
        if isinstance(node, (ast.For, ast.comprehension)) and _is_attribute(node.iter):
            yield from [node.target.id] if isinstance(node.target, ast.Name) else []


def _is_attribute(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in PROSE


def test_no_fact_is_read_back_out_of_text():
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in readers(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "never = [one for one in readings if one.reason.startswith(NEVER)]",
        "words = one.sentence.partition(COLLAPSE)[2]",
        "limit = self.required.partition(' (')[0]",
        "kind = re.split(r':', one.reason, maxsplit=1)[0]",
        "broken = 'not finite' in reading.reason",
        "broken = finding.observed.reason in KNOWN",
        "late = check.detail == 'not measured'",
        "def f(run):\n    return [line for line in run.integrity.details if line.startswith('gamma')]",
        "def f(run):\n    for line in run.details:\n        print(line.split()[0])",
        "def f(one):\n    words = one.sentence\n    return 'NOISY' in words",
        "def f(one):\n    return (words := one.detail) and words.find('x')",
    ],
)
def test_what_reads_text_is_found(source):
    """The first four were in the library."""
    assert readers(source)


@pytest.mark.parametrize(
    "source",
    [
        "text = f'{one.sentence}: {one.reason}'",
        "text = '; '.join(integrity.details)",
        "missing = reading.reason or 'not measured'",
        "alike = (one.sentence, one.observed) == (other.sentence, other.observed)",
        "never = one.never and 'growth' in finding.quantities",
        "def f(one):\n    words = one.name\n    return words.split()\ndef g(one):\n    words = one.reason\n    return words",
    ],
)
def test_printing_text_is_no_reading(source):
    assert not readers(source)
