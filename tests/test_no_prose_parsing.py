"""Facts are fields: the library prints the text of a record and never reads a fact out of it (structure.md, rule 1).

A fact that is read out of a sentence is lost when a word of the sentence changes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fa_registry

PACKAGE = Path(fa_registry.__file__).parent
RECORDS = ("records", "protocol", "statistics")  # packages whose dataclasses are records
TEXTS = {"tuple[str, ...]", "Many[str]"}  # annotations of fields with a list of texts
TEXT = {"str", "str | None", "Text", "Code", "Visible", "Mapping[str, str]", *TEXTS}  # annotations of fields with text
KEYS = {"schema.TAG_VERDICT", "schema.TAG_STOPPED_ON", "'ended_by'"}  # tags and entries of the manifest with text
# Fields of records with text that code compares: they identify something, or have one of a few values.
IDENTIFIERS = {
    *("name", "code", "field", "quantity", "rule", "run", "run_id", "frozen_run_id", "reference_run_id"),
    *("subject", "others", "study", "setting", "author", "reference", "based_on", "nonce"),  # names of things
    *("method", "architecture", "dataset", "control", "where", "site"),  # names in a specification or a reference file
    *("optimizer", "schedule", "credit_norm", "precision", "device_class"),  # settings with a few values
    *("outcome", "state", "status", "kind", "crossed", "average"),  # values of a declared list
    *("fired", "clear", "labels", "left_out"),  # words that an edition declares, and codes of rules
    *("digest", "digests", "weights", "asked", "also"),  # digests, and arguments or files that a user gave
    *("date", "expiry"),  # dates
    "describe",  # a template of str.format
    "unit",  # one of the units of metrics.declarations
    "test",  # name of a statistical test
    "margin",  # name of a margin in a reference file
    "help",  # the text of an option, which the option's declaration extends
}
PATTERN_METHODS = {
    "match",
    "fullmatch",
    "search",
    "findall",
    "finditer",
    "split",
    "sub",
    "subn",
}  # of re and of a pattern
STRING_METHODS = {name for name in dir(str) if not name.startswith("_")}


def text_fields(wanted: set[str] = TEXT) -> dict[str, set[str]]:
    """Return the fields with text of all records: name of the field → names of its classes."""
    fields: dict[str, set[str]] = {}
    for path in (path for package in RECORDS for path in sorted((PACKAGE / package).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            if isinstance(node, ast.ClassDef) and any("dataclass" in decorator for decorator in decorators):
                for entry in node.body:
                    if isinstance(entry, ast.AnnAssign) and ast.unparse(entry.annotation) in wanted:
                        fields.setdefault(entry.target.id, set()).add(node.name)
    return fields


PROSE = text_fields().keys() - IDENTIFIERS
LISTS = text_fields(TEXTS).keys() - IDENTIFIERS  # `text in LIST` compares whole texts


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
        is_entry = isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice)
        entry = node.value if is_entry else node  # an entry of a list of texts
        return _is_attribute(entry) or (isinstance(entry, ast.Name) and entry.id in names) or _is_keyed(node)

    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = node.func
            by_method = called.attr in STRING_METHODS and is_prose(called.value)
            by_pattern = called.attr in PATTERN_METHODS and any(map(is_prose, node.args))
            if by_method or by_pattern:
                yield node.lineno
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            searched = any(isinstance(operator, (ast.In, ast.NotIn)) for operator in node.ops)
            searched = searched and (isinstance(node.left, ast.Constant) or not all(map(_is_list, node.comparators)))
            with_text = any(isinstance(side, ast.Constant) and side.value for side in sides)
            if any(map(is_prose, sides)) and (searched or with_text):
                yield node.lineno


def _names_of_prose(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that are given such texts or lists of such texts, or go through their entries."""
    known: set[str] = set()

    def is_text(node: ast.AST | None) -> bool:
        is_list = isinstance(node, (ast.GeneratorExp, ast.ListComp))  # membership in a set compares whole texts
        entry = node.elt if is_list else node
        return _is_attribute(entry) or _is_keyed(entry) or (isinstance(node, ast.Name) and node.id in known)

    for _ in range(3):  # a list, its entries, and what they are given to
        for node in nodes:
            given = node.iter if isinstance(node, (ast.For, ast.comprehension)) else getattr(node, "value", None)
            is_target = isinstance(node, (ast.Assign, ast.NamedExpr, ast.AnnAssign, ast.For, ast.comprehension))
            if not is_target or not is_text(given):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            known.update(target.id for target in targets if isinstance(target, ast.Name))
    yield from known


def _is_attribute(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in PROSE


def _is_keyed(node: ast.AST | None) -> bool:
    """Whether a value is that of a key in KEYS, or of one of several keys."""
    if isinstance(node, ast.BoolOp):
        return any(map(_is_keyed, node.values))
    is_got = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
    key = node.args[0] if is_got and node.args else node.slice if isinstance(node, ast.Subscript) else None
    return key is not None and ast.unparse(key) in KEYS


def _is_list(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in LISTS


def test_every_field_with_text_is_prose_or_an_identifier():
    """An identifier that no record has any more would permit reading a later field with this name."""
    assert {"reason", "sentence", "detail", "details", "remark", "remarks", "notes", "label", "base", "text"} <= PROSE
    assert text_fields().keys() >= IDENTIFIERS - {"help", "site"}
    assert {"remarks", "details", "notes"} <= LISTS and "reason" not in LISTS


@pytest.mark.long
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
        "remarks = [difference.remark.removeprefix('provisional: ')]",
        "label = re.match(r'[^(:]*:?', worst.label)[0]",
        "def f(report):\n    return [remark for remark in report.remarks if COMPARED.match(remark)]",
        "first = integrity.details[0].partition(':')[0]",
        "found = 'growth' in finding.sentence",
        "def f(row):\n    reasons = (one.reason for one in row)\n    return [r for r in reasons if r.startswith('not')]",
        "def f(one, other):\n    words = one.reason\n    return words in other.reason",
        "excluded = run.tags.get(schema.TAG_VERDICT, '').startswith(NOT_JUDGED)",
        "def f(run):\n    tag = run.tags.get(schema.TAG_VERDICT, '')\n    return tag.startswith('NOT')",
        "rules, _, epoch = (record.provenance.get('ended_by') or stopped_on).partition(' at epoch ')",
        "rules = run.tags[schema.TAG_STOPPED_ON].split('+')",
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
        "failed = finding.outcome == 'fail' and run_id.startswith(waiver.run)",
        "def f(one):\n    words = one.name\n    return words.split()\ndef g(one):\n    words = one.reason\n    return words",
    ],
)
def test_printing_text_is_no_reading(source):
    assert not readers(source)
