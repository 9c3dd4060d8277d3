"""docs/audit-json.md: the fields of audit.json, the columns of audit.csv, the outcomes in junit.xml, and what diff prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fa_registry.quantities import Quantity
from fa_registry.records import AuditReport
from fa_registry.reporting import junit
from fa_registry.reporting.audit_csv import REASONS
from fa_registry.reporting.audit_csv_columns import TEXT, columns_of
from fa_registry.reporting.audit_diff.records import AuditDiff
from fa_registry.reporting.field_meanings import KNOWLEDGE
from fa_registry.reporting.json_schema import OWN, described, schema_of, within

START = """\
# What an audit writes for machines

<!-- written by python -m fa_registry.reporting.published_schemas -->

`fa-registry audit` and `fa-registry report` write three files for machines beside the pages: `audit.json` holds everything,
`audit.csv` one line a run, `junit.xml` the findings as a test report. The same audit gives the same bytes. Names of runs,
tags and cards are text that people wrote: escape them where you show them.

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
measured; and last, one for every number that a run has one of and that another package's diagnostic measured, by its own name.
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
and a run that could not be judged is an error in the suite `not judged`. There is no time in it. A character that XML cannot
hold stands as `\\x1b`.

A failure says that a rule fired. Whether that fails the run is for the verdict: take the exit code of `fa-registry audit`.
"""
DIFF = """\
## fa-registry diff --json

What changed from audit A to audit B, by [`diff.schema.json`](diff.schema.json). Runs are matched by run id, and those that
were trained again by their specification. Exit code 0: nothing changed but the ids of runs that
were trained again and the order of runs; 1: something is listed; 2: one of the two is no audit.json of this schema.
The file is one object, an AuditDiff; the records of audit.json stand in it as they stand there.
"""
OTHER = Quantity(
    "QUANTITY", words="of another package's diagnostic, which a run has one of; words and unit are on its card"
)


def document() -> str:
    """The whole page."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield START
    yield from _records(AuditReport, ())
    yield AUDIT_CSV
    yield from _table(("column", "type", "what"), _columns())
    yield JUNIT
    yield from _table(("outcome of the rule", "in JUnit"), _outcomes())
    yield DIFF
    yield from _records(AuditDiff, within(AuditReport))


def _records(root: type, known: Sequence[type]) -> Iterator[str]:
    """A section a record; those that another file's part describes already are left out."""
    for kind in within(root):
        if kind in known:
            continue
        if kind in OWN:
            yield f"### {kind.__name__}\n\n{OWN[kind]['description']}\n"
            continue
        summary, meanings = described(kind, KNOWLEDGE)
        yield f"### {kind.__name__}\n\n{summary}.\n"
        properties = schema_of(kind, KNOWLEDGE)["$defs"][kind.__name__]["properties"]
        yield from _table(
            ("field", "type", "what"),
            [(f"`{name}`", _type(properties[name]), meaning) for name, meaning in meanings.items()],
        )


def _type(schema: dict[str, Any]) -> str:
    """A type in a word or two, as people say it."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
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
        return kind if isinstance(kind, str) else " or ".join(kind)
    return f"{'list' if kind == 'array' else 'object'} of {_type(inner) if inner else 'anything'}"


def _columns() -> Iterator[tuple[str, ...]]:
    for column in columns_of(("EDITION",), ("RULE",), ("gamma_…",), (OTHER,)):
        yield f"`{column.name}`", column.kind, column.words
    yield f"`{REASONS}`", TEXT, "JSON: name of an empty column → why it is empty; `excluded` → why a run was not judged"


def _outcomes() -> Iterator[tuple[str, str]]:
    for outcome in KNOWLEDGE.choices["Finding.outcome"]:
        tag = junit.ELEMENTS.get(outcome)
        yield f"`{outcome}`", f"`<{tag}>`" if tag else "passed, its sentence in `<system-out>`"
    yield "`fail` of a rule that the verdict does not look at", "passed, its sentence in `<system-out>`"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"| {' | '.join('---' for _ in header)} |"
    yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    yield ""
