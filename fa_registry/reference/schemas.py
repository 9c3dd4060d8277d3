"""Generator of the JSON Schemas (2020-12) of audit.json and diffs, and of docs/audit-json.md.

pydantic generates the schemas from the records. The descriptions are the docstrings of the records and of their fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from fa_registry import jsonio
from fa_registry.metrics import Metric
from fa_registry.records import OUTCOMES, AuditReport
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


START = """\
# Files of an audit for machines

Generated from the code by `python -m fa_registry.reference --write`; do not edit.

`fa-registry audit` and `fa-registry report` write these files for machines next to the pages:

{files}

The same audit gives the same bytes. Names of runs, tags and cards are user-supplied text: escape them where you show them.

## audit.json

UTF-8, no NaN, no infinity. [`audit.schema.json`](audit.schema.json) is its schema (JSON Schema 2020-12); objects have only the
listed fields. The field `schema` is the one schema number of stores, bundles, editions and files. A file with another number or
without one is refused in one line, with what to do (exit code 2).
The file is one object, an AuditReport.
"""
AUDIT_CSV = """\
## audit.csv

RFC 4180: UTF-8 without a byte-order mark, commas, CRLF, one header line. There is one line for every judged run, then one for
every selected run that could not be judged (`status` is `excluded`). In the column names, EDITION and RULE are placeholders for
the editions and rules of the audit. There is one `verdict_` column per edition (the leading edition is first) and five columns
per rule of the leading edition. Then there is one column for every aggregate of Γ that was measured. Last, there is one column for
every other metric with one number per run: metrics of tables and forms without a column above, and metrics of third-party
diagnostics. Numbers have all their digits. A missing number is an empty cell; the reason is in `reasons`.

A `'` is put before a text that begins with `'`, or that a spreadsheet would calculate. Such texts begin with `=`, `+`, `-` or
`@`, also after blanks, or with a tab or a line break. To restore a text, remove one leading `'`.
In pandas: `pandas.read_csv("audit.csv", keep_default_na=False, na_values=[""], dtype=…)` with `string` for text,
`Int64` for integer, `Float64` for number, `boolean` for boolean.
"""
JUNIT = """\
## junit.xml

A test suite is a method in a setting, with the properties `verdict` and `proof` (level of proof). A test case is the finding of a
rule on a run, with `required`, `observed` and the sentence.
JUnit has fewer outcomes than the rules. Every run also has a case `integrity` (`mismatch` is an error, `unverifiable` is skipped).
A run that could not be judged is an error in the suite `not judged`. The file contains no times. An invisible character
(control, direction) is written as `⟨U+001B⟩`, as in audit.csv; in audit.json, it is the escape `\\u001b`.

A failure means that a rule fired. The verdict decides whether the run fails: use the exit code of `fa-registry audit`.
"""
DIFF = """\
## fa-registry diff --json

The output lists the changes from audit A to audit B; its schema is [`diff.schema.json`](diff.schema.json). Runs are matched by
run id, and retrained runs by their specification. Exit code 0: nothing changed except ids of retrained runs and the order of
runs; 1: changes are listed; 2: one of the two files is not an audit.json of this schema.
The output is one object, an AuditDiff; it contains records of audit.json in the same form.
"""
OTHER = Metric(
    "QUANTITY",
    words="a metric of a third-party diagnostic with one number per run; the card of the diagnostic states its text and unit",
)


def audit_files_reference() -> str:
    """Return the text of docs/audit-json.md."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield START.replace("{files}", "\n".join(f"- `{file.name}`: {file.description}" for file in report_files()))
    audit = audit_schema()
    yield from _records(audit, ())
    yield AUDIT_CSV
    yield from _table(("column", "type", "what"), _columns())
    yield JUNIT
    yield from _table(("outcome of the rule", "in JUnit"), _outcomes())
    yield DIFF
    yield from _records(diff_schema(), audit["$defs"])


def _records(schema: Mapping[str, Any], documented_names: Collection[str]) -> Iterator[str]:
    """Yield one section of the page per record that is not in `documented_names`."""
    definitions = schema["$defs"]
    waiting, done_names = _inside(schema["$ref"]), set(documented_names)
    while waiting:
        name = waiting.pop(0)
        if name in done_names:
            continue
        done_names.add(name)
        record = definitions[name]
        waiting += _inside(record)
        yield f"### {name}\n\n{_sentence(record['description'])}.\n"
        if properties := record.get("properties"):
            rows = [(f"`{field}`", _type(kind), _sentence(kind["description"])) for field, kind in properties.items()]
            yield from _table(("field", "type", "what"), rows)


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


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"| {' | '.join('---' for _ in header)} |"
    yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    yield ""


def audit_schema() -> dict[str, Any]:
    """Return the JSON Schema of audit.json."""
    return schema_of(AuditReport, "audit.json of fa_registry")


def diff_schema() -> dict[str, Any]:
    """Return the JSON Schema of the output of `fa-registry diff --json`."""
    return schema_of(AuditDiff, "fa-registry diff --json")
