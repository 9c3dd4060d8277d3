"""What an audit's files hold, for machines: the JSON Schemas (2020-12) of audit.json and of a diff, and docs/audit-json.md.

pydantic makes the schemas of the records that it reads; the words are the records' own, those below a field the field's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from fa_registry import jsonio
from fa_registry.metrics import Metric
from fa_registry.records import OUTCOMES, SCHEMA, AuditReport
from fa_registry.reporting.diff import AuditDiff
from fa_registry.reporting.files import junit, report_files
from fa_registry.reporting.files.csv import REASONS, TEXT, columns_of

REFERENCE = "#/$defs/"


class OfRecords(GenerateJsonSchema):
    """pydantic's schemas, less the titles that it makes of names, and with our own way of writing a default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, default: Any) -> Any:
        return jsonio.encode(default)

    def field_is_required(self, field: Any, total: bool) -> bool:
        """The version too, which a file has to name: an object of that release is made with it."""
        return super().field_is_required(field, total) or field.get("name") == "schema"

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """Closed and in the record's own words: of a record inside another one not every release of pydantic says so."""
        written = super().dataclass_schema(schema)
        written.pop("title", None)
        fields = {name: field | _text(field.get("description", "")) for name, field in written["properties"].items()}
        return written | _text(schema["cls"].__doc__) | {"properties": fields, "additionalProperties": False}


def _text(text: str) -> dict[str, str]:
    return {"description": _sentence(text)}


def schema_of(root: type, title: str) -> dict[str, Any]:
    """The schema of a record and of every record inside it, each once under `$defs`, by name; fields in their order.

    A field with a default may be absent, as the reader allows; a field that is not declared may not be there.
    """
    written = jsonio.adapter(tuple[root], use_attribute_docstrings=True).json_schema(schema_generator=OfRecords)
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": f"{title}, schema {SCHEMA}",
        **written["prefixItems"][0],
        "$defs": written["$defs"],
    }


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".;")


# docs/audit-json.md: the fields of audit.json, the columns of audit.csv, the outcomes in junit.xml, and what diff prints.


START = """\
# What an audit writes for machines

<!-- written by python -m fa_registry.reporting.files.schemas -->

`fa-registry audit` and `fa-registry report` write files for machines beside the pages:

{files}

The same audit gives the same bytes. Names of runs, tags and cards are text that people wrote: escape them where you show them.

## audit.json

UTF-8, no NaN, no infinity. [`audit.schema.json`](audit.schema.json) is its schema (JSON Schema 2020-12); an object has no
fields but those listed. A field with a default may be absent in a file of an earlier release of the same schema; what is
written now has them all. `schema` is the version: a file of another version is refused, with what to do about it.
The file is one object, an AuditReport.
"""
AUDIT_CSV = """\
## audit.csv

RFC 4180: UTF-8 without a mark, commas, CRLF, one header line. One line for every judged run, then one for every run that was
selected and could not be judged (`status` is `excluded`). EDITION and RULE stand for what the audit used: one `verdict_`
column an edition, the leading one first; five columns a rule of the leading edition; one for every aggregate of Γ that was
measured; and last, one for every further number that a run has one of: what a table or a form shows and has no column of its
own above, and what another package's diagnostic measured, by its own name.
Numbers have every digit. A number that does not exist is an empty cell, and `reasons` says why.

A text that a spreadsheet would calculate (`=`, `+`, `-`, `@`, their full-width twins, also after blanks; tab, line break)
or that begins with `'` has a `'` put before it: take one leading `'` off a text cell and you have the text again.
In pandas: `pandas.read_csv("audit.csv", keep_default_na=False, na_values=[""], dtype=…)` with `string` for text,
`Int64` for integer, `Float64` for number, `boolean` for boolean.
"""
JUNIT = """\
## junit.xml

A suite is a method in a setting, a case is a rule's finding on a run: `required`, `observed` and the sentence are its text.
JUnit has fewer outcomes than the rules. Every run has a case `integrity` too (`mismatch` is an error, `unverifiable` skipped),
and a run that could not be judged is an error in the suite `not judged`. There is no time in it. A character that is
not seen (control, direction) stands as `⟨U+001B⟩`, as in audit.csv; audit.json has its escape, `\\u001b`.

A failure says that a rule fired. Whether that fails the run is for the verdict: take the exit code of `fa-registry audit`.
"""
DIFF = """\
## fa-registry diff --json

What changed from audit A to audit B, by [`diff.schema.json`](diff.schema.json). Runs are matched by run id, and those that
were trained again by their specification. Exit code 0: nothing changed but the ids of runs that
were trained again and the order of runs; 1: something is listed; 2: one of the two is no audit.json of this schema.
The file is one object, an AuditDiff; the records of audit.json stand in it as they stand there.
"""
OTHER = Metric(
    "QUANTITY", words="of another package's diagnostic, which a run has one of; words and unit are on its card"
)


def document() -> str:
    """The whole page."""
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


def _records(schema: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    """A section a record, each after the one that it first occurs in; those that another file's part describes are left out."""
    definitions = schema["$defs"]
    waiting, seen = _inside(schema["$ref"]), set(known)
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        record = definitions[name]
        waiting += _inside(record)
        yield f"### {name}\n\n{_sentence(record['description'])}.\n"
        if properties := record.get("properties"):
            rows = [(f"`{field}`", _type(kind), _sentence(kind["description"])) for field, kind in properties.items()]
            yield from _table(("field", "type", "what"), rows)


def _inside(schema: Any) -> list[str]:
    """The names of the records that a schema refers to, in order."""
    if isinstance(schema, str):
        return [schema.removeprefix(REFERENCE)] if schema.startswith(REFERENCE) else []
    parts = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    return [name for part in parts for name in _inside(part)]


def _type(schema: dict[str, Any]) -> str:
    """A type in a word or two, as people say it."""
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
        yield f"`{column.name}`", column.kind, column.description
    yield f"`{REASONS}`", TEXT, "JSON: name of an empty column → why it is empty; `excluded` → why a run was not judged"


def _outcomes() -> Iterator[tuple[str, str]]:
    for outcome in OUTCOMES:
        tag = junit.ELEMENTS.get(outcome)
        yield f"`{outcome}`", f"`<{tag}>`" if tag else "passed, its sentence in `<system-out>`"
    yield "`fail` of a rule that the verdict does not look at", "passed, its sentence in `<system-out>`"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"| {' | '.join('---' for _ in header)} |"
    yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    yield ""


# python -m fa_registry.reporting.files.schemas [--out docs]: what machines need to know of an audit's files.
#
# Writes audit.schema.json, diff.schema.json and audit-json.md from the records and their words. To be run again whenever
# a record changes; a test compares.


def published() -> dict[str, str]:
    """File name → what stands in it."""
    return {
        "audit.schema.json": jsonio.pretty(audit_schema()),
        "diff.schema.json": jsonio.pretty(diff_schema()),
        "audit-json.md": document(),
    }


def audit_schema() -> dict[str, Any]:
    """The JSON Schema of audit.json."""
    return schema_of(AuditReport, "audit.json of fa_registry")


def diff_schema() -> dict[str, Any]:
    """The JSON Schema of what `fa-registry diff --json` prints."""
    return schema_of(AuditDiff, "fa-registry diff --json")


def main(arguments: list[str]) -> None:
    """Write the files and print their paths."""
    parser = argparse.ArgumentParser(
        prog="python -m fa_registry.reporting.files.schemas", description="Write the schemas and their description."
    )
    parser.add_argument("--out", default="docs", type=Path, help="folder [docs]")
    out = parser.parse_args(arguments).out
    out.mkdir(parents=True, exist_ok=True)
    for name, text in published().items():
        (out / name).write_text(text, encoding="utf-8", newline="\n")
        print(out / name)


if __name__ == "__main__":
    main(sys.argv[1:])
