"""Generator of the JSON Schemas (2020-12) of audit.json and diffs, and of docs/audit-json.md.

pydantic generates the schemas from the records. The descriptions are the docstrings of the records and of their fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from fa_registry import jsonio
from fa_registry.metrics import Metric
from fa_registry.records import OUTCOMES, AuditReport
from fa_registry.reference import filled, table
from fa_registry.reporting.diff import AuditDiff
from fa_registry.reporting.files import junit, report_files
from fa_registry.reporting.files.csv import REASONS, columns_of
from fa_registry.reporting.table import TEXT
from fa_registry.schema_number import SCHEMA

REFERENCE = "#/$defs/"


class OfRecords(GenerateJsonSchema):
    """Generator of JSON Schemas without titles, with default values encoded by jsonio."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, default: Any) -> Any:
        return jsonio.encode(default)

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Return whether a field is required. The field `schema` is required although it has a default."""
        return super().field_is_required(field, total) or field.get("name") == "schema"

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a record without further fields.

        The docstring is added here, because some pydantic releases omit it for a nested record.
        """
        base_schema = super().dataclass_schema(schema)
        base_schema.pop("title", None)
        fields = {
            name: field | _text(field.get("description", "")) for name, field in base_schema["properties"].items()
        }
        return base_schema | _text(schema["cls"].__doc__) | {"properties": fields, "additionalProperties": False}


def _text(text: str) -> dict[str, str]:
    return {"description": _sentence(text)}


def schema_of(root: type, title: str) -> dict[str, Any]:
    """Return the JSON Schema of a record; nested records are under `$defs`.

    A field with a default may be absent. Fields that the record does not declare are not allowed.
    """
    base_schema = jsonio.adapter(tuple[root], use_attribute_docstrings=True).json_schema(schema_generator=OfRecords)
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": f"{title}, schema {SCHEMA}",
        **base_schema["prefixItems"][0],
        "$defs": base_schema["$defs"],
    }


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".;")


OTHER = Metric(
    "QUANTITY",
    words="a metric of a third-party diagnostic with one number per run; the card of the diagnostic states its text and unit",
)


def audit_files_reference() -> str:
    """Return docs/audit-json.md with the current list of files, records, columns and outcomes."""
    audit = audit_schema()
    return filled(
        "docs/audit-json.md",
        "\n".join(f"- `{file.name}`: {file.description}" for file in report_files()),
        _records(audit, ()),
        table(("column", "type", "what"), _columns()),
        table(("outcome of the rule", "in JUnit"), _outcomes()),
        _records(diff_schema(), audit["$defs"]),
    )


def _records(schema: Mapping[str, Any], documented_names: Collection[str]) -> str:
    """Return one section of the page per record that is not in `documented_names`."""
    sections: list[str] = []
    definitions = schema["$defs"]
    waiting, done_names = _inside(schema["$ref"]), set(documented_names)
    while waiting:
        name = waiting.pop(0)
        if name in done_names:
            continue
        done_names.add(name)
        record = definitions[name]
        waiting += _inside(record)
        sections.append(f"### {name}\n\n{_sentence(record['description'])}.")
        if properties := record.get("properties"):
            rows = [(f"`{field}`", _type(kind), _sentence(kind["description"])) for field, kind in properties.items()]
            sections.append(table(("field", "type", "what"), rows))
    return "\n\n".join(sections)


def _inside(schema: Any) -> list[str]:
    """Return, in order, the names of the records that a schema references."""
    if isinstance(schema, str):
        return [schema.removeprefix(REFERENCE)] if schema.startswith(REFERENCE) else []
    parts = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    return [name for part in parts for name in _inside(part)]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].removeprefix(REFERENCE)
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "prefixItems" in schema:
        return f"[{', '.join(map(_type, schema['prefixItems']))}]"
    kind = schema.get("type", "anything")
    inner = schema.get("items") or schema.get("additionalProperties")
    if inner is None:
        return kind
    return f"{'list' if kind == 'array' else 'object'} of {'anything' if inner is True else _type(inner)}"


def _columns() -> Iterator[tuple[str, ...]]:
    for column in columns_of(("EDITION",), ("RULE",), ("gamma_…",), (OTHER,)):
        if column.heading:
            yield f"`{column.heading}`", column.type, column.words
    text = "JSON: name of an empty column → reason why it is empty; `excluded` → reason why the run was not judged"
    yield f"`{REASONS}`", TEXT, text


def _outcomes() -> Iterator[tuple[str, str]]:
    passed = "passed; `<system-out>` contains the sentence of the finding"
    for outcome in OUTCOMES:
        yield f"`{outcome}`", f"`<{junit.ELEMENTS[outcome]}>`" if outcome in junit.ELEMENTS else passed
    yield "`fail` of a rule that does not count for the verdict", passed


def audit_schema() -> dict[str, Any]:
    """Return the JSON Schema of audit.json."""
    return schema_of(AuditReport, "audit.json of fa_registry")


def diff_schema() -> dict[str, Any]:
    """Return the JSON Schema of the output of `fa-registry diff --json`."""
    return schema_of(AuditDiff, "fa-registry diff --json")
