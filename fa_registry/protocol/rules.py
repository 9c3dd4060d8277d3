"""Rules and editions as data, read from TOML (YAML 1.1 would read `1e-8` as a string) and checked field by field."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fa_registry import resources
from fa_registry.errors import InvalidFields, UnknownName, unknown_name_text
from fa_registry.jsonio import file_digest
from fa_registry.protocol.operators import OPERATORS
from fa_registry.records import EditionReference, Scalar

QUANTIFIERS = ("max_over_sites", "last_site", "scalar")


@dataclass(frozen=True)
class Rule:
    """One judgement: which quantity, taken how, compared how, against what, and who says so.

    trajectory: the per-epoch headline on which the epoch of first fire is looked up; empty where there is none.
    reference: the quantity of the frozen control it is compared with; empty where there is none.
    """

    code: str
    title: str
    quantity: str
    take: str
    fires: str
    threshold: float
    unit: str
    source: str
    rationale: str
    trajectory: str = ""
    reference: str = ""


@dataclass(frozen=True)
class Edition:
    """A versioned set of rules. fail_if, warn_if: a run fails (is warned) when every rule of any one list fires."""

    name: str
    title: str
    source: str
    fail_if: tuple[tuple[str, ...], ...]
    rules: tuple[Rule, ...]
    digest: str
    strict: bool = False
    overrides: Mapping[str, Scalar] | None = None

    @property
    def reference(self) -> EditionReference:
        return EditionReference(self.name, self.title, self.source, self.digest, dict(self.overrides or {}))


def load_edition(name: str) -> Edition:
    """An edition by the name of a shipped file, or by the path of a user's .toml."""
    path = Path(name)
    if path.suffix != ".toml":
        path = resources.editions() / f"{name}.toml"
        if not path.is_file():
            raise UnknownName("edition", name, [known.stem for known in resources.editions().glob("*.toml")])
    if not path.is_file():
        raise InvalidFields(f"edition {name}", [f"file: {path} does not exist"])
    try:
        return parse_edition(tomllib.loads(path.read_text(encoding="utf-8")), file_digest(path), str(name))
    except tomllib.TOMLDecodeError as error:
        raise InvalidFields(f"edition {name}", [f"file: not TOML: {error}"]) from error


def parse_edition(raw: Mapping[str, Any], digest: str, subject: str) -> Edition:
    """Check every field of an edition; InvalidFields names all that are wrong."""
    known = {"name": str, "title": str, "source": str, "fail_if": list, "strict": bool, "rule": list}
    problems = _wrong_fields(raw, known, required=("name", "title", "source", "fail_if", "rule"), where="")
    rule_types = {field.name: float if field.name == "threshold" else str for field in fields(Rule)}
    required = tuple(name for name in rule_types if name not in ("trajectory", "reference"))
    tables = raw.get("rule") if isinstance(raw.get("rule"), list) else []
    for index, table in enumerate(tables):
        where = f"rule[{index}]."
        problems += _wrong_fields(table, rule_types, required, where)
        if table.get("fires") not in OPERATORS:
            problems.append(f"{where}fires: {unknown_name_text('operator', table.get('fires', ''), OPERATORS)}")
        if table.get("take") not in QUANTIFIERS:
            problems.append(f"{where}take: {unknown_name_text('quantifier', table.get('take', ''), QUANTIFIERS)}")
    codes = [table.get("code") for table in tables]
    for code in {code for group in raw.get("fail_if", []) for code in group} - set(codes):
        problems.append(f"fail_if: {unknown_name_text('rule', code, [str(known) for known in codes])}")
    if problems:
        raise InvalidFields(f"edition {subject}", problems)
    rules = tuple(Rule(**{**table, "threshold": float(table["threshold"])}) for table in tables)
    fail_if = tuple(tuple(group) for group in raw["fail_if"])
    return Edition(raw["name"], raw["title"], raw["source"], fail_if, rules, digest, raw.get("strict", False))


def _wrong_fields(
    table: Mapping[str, Any], known: Mapping[str, type], required: tuple[str, ...], where: str
) -> list[str]:
    problems = [f"{where}{name}: {unknown_name_text('field', name, known)}" for name in table if name not in known]
    problems += [f"{where}{name}: missing" for name in required if table.get(name) in (None, "", [])]
    for name, kind in known.items():
        value = table.get(name)
        number = kind is float and isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not isinstance(value, kind) and not number:
            problems.append(f"{where}{name}: expected {kind.__name__}, found {value!r}")
    return problems
