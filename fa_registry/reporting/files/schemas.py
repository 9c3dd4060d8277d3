"""JSON Schema (2020-12) of frozen dataclasses: what jsonio reads back, with the words of their docstrings."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fa_registry import jsonio
from fa_registry.protocol.verdict import SEVERITY
from fa_registry.quantities import Quantity
from fa_registry.records import (
    EXCLUSION_KINDS,
    OUTCOMES,
    REPRODUCTION_OUTCOMES,
    SCHEMA,
    AuditReport,
    Reading,
    Scalar,
    Series,
)
from fa_registry.reporting.diff import HOW, AuditDiff
from fa_registry.reporting.files import junit
from fa_registry.reporting.files.csv import REASONS, TEXT, columns_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
# What has its own way of being written (`__json__`), by hand.
OWN: Mapping[type, Mapping[str, Any]] = types.MappingProxyType(
    {
        Reading: {
            "description": "One measured number, or why there is none.",
            "oneOf": [
                {"type": "number"},
                {
                    "type": "object",
                    "properties": {"na": {"type": "string", "minLength": 1, "description": "The reason."}},
                    "required": ["na"],
                    "additionalProperties": False,
                },
            ],
        },
        Series: {
            "description": "One reading an epoch; the index is the epoch, 0 is the initialisation.",
            "type": "array",
            "items": {"$ref": "#/$defs/Reading"},
        },
    }
)


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What types do not say. meanings: `Record` or `Record.field` → words, where its docstring has none.

    choices: `Record.field` → the closed set of its words. constants: `Record.field` → its only value.
    """

    meanings: Mapping[str, str]
    choices: Mapping[str, Sequence[str]]
    constants: Mapping[str, Any]


def schema_of(root: type, knowledge: Knowledge) -> dict[str, Any]:
    """The schema of a record and of every record inside it, each once under `$defs`, by name; fields in their order.

    A field with a default may be absent, as the reader allows; a field that is not declared may not be there.
    """
    definitions = {
        kind.__name__: _definition(kind, knowledge) for kind in sorted(within(root), key=lambda one: one.__name__)
    }
    return {"$schema": DIALECT, **_reference(root), "$defs": definitions}


def within(root: type) -> tuple[type, ...]:
    """The record and every type with a definition of its own that occurs in it, in the order they occur."""
    found: dict[type, None] = {}
    waiting = [root]
    while waiting:
        kind = waiting.pop(0)
        if typing.get_args(kind):
            waiting += typing.get_args(kind)
        elif kind not in found and (kind in OWN or dataclasses.is_dataclass(kind)):
            found[kind] = None
            # A Series is of readings, which its definition by hand refers to.
            waiting += [Reading] if kind in OWN else typing.get_type_hints(kind).values()
    return tuple(found)


def described(record: type, knowledge: Knowledge) -> tuple[str, dict[str, str]]:
    """What a record is, and what each of its fields is: from its docstring, `name: words.`, else from `meanings`."""
    names = [field.name for field in dataclasses.fields(record)]
    anyone = "|".join(map(re.escape, names))
    marker = rf"(?:^|(?<=[.;] )|(?<=\n))((?:{anyone})(?:(?:, | and )(?:{anyone}))*): "
    start, *parts = re.split(marker, inspect.cleandoc(record.__doc__ or ""))
    words: dict[str, str] = {}
    for named, text in zip(parts[::2], parts[1::2], strict=True):
        words |= dict.fromkeys(re.split(", | and ", named), _sentence(text))
    meanings = {name: knowledge.meanings.get(f"{record.__name__}.{name}", "") for name in names}
    return _sentence(start) or knowledge.meanings.get(record.__name__, ""), {
        name: words.get(name) or meanings[name] for name in names
    }


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".;")


def _definition(kind: type, knowledge: Knowledge) -> dict[str, Any]:
    if kind in OWN:
        return dict(OWN[kind])
    summary, meanings = described(kind, knowledge)
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    places = {field.name: f"{kind.__name__}.{field.name}" for field in fields}
    return {
        "description": summary,
        "type": "object",
        "properties": {
            name: {"description": meanings[name], **_property(place, hints[name], knowledge)}
            for name, place in places.items()
        },
        "required": [one.name for one in fields if _needed(one) or places[one.name] in knowledge.constants],
        "additionalProperties": False,
    }


def _needed(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _property(place: str, hint: Any, knowledge: Knowledge) -> dict[str, Any]:
    if place in knowledge.constants:
        return {"const": knowledge.constants[place]}
    if place in knowledge.choices:
        return {"enum": list(knowledge.choices[place])}
    return _reference(hint)


def _reference(hint: Any) -> dict[str, Any]:
    """The schema of a type; a record's own is a reference to its definition."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if hint == Scalar:
        return {"type": ["string", "number", "boolean"]}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_reference(argument) for argument in arguments]}
    if origin is tuple:
        return _array(arguments)
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _reference(arguments[1])}
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _array(arguments: tuple[Any, ...]) -> dict[str, Any]:
    if arguments[1:] == (...,):
        return {"type": "array", "items": _reference(arguments[0])}
    count = len(arguments)
    items = [_reference(argument) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}


# What the fields of the published records mean, where their docstrings leave it to the name; and which words are closed sets.


RUN_ID = "id of the run in the tracking store"
RULE = "code of the rule"

MEANINGS = {
    "Verdict": "What the findings amount to",
    "Verdict.flags": "the rules that fired, or their word: `D1`, `D3 undecided`",
    "AuditReport.title": "of the audit, in words",
    "AuditReport.selection": "which runs were asked for, in words",
    "AuditReport.edition": "the leading edition: whose verdicts count",
    "AuditReport.runs": "every judged run",
    "AuditReport.excluded": "runs that were selected and could not be judged",
    "AuditReport.remarks": "what a reader must know besides",
    "AuditReport.cards": "`family/name` → what is declared of a method, data set, architecture or diagnostic that occurs",
    "AuditReport.schema": "version of this schema",
    "EditionReference.name": "of the edition",
    "EditionReference.title": "of the edition, in words",
    "EditionReference.source": "who says so",
    "EditionReference.digest": "SHA-256 of the edition's file",
    "EditionReference.overrides": "`rule.threshold` → the number that was used instead; any makes the edition modified",
    "RunAudit.record": "what the run is and what was measured",
    "RunAudit.findings": "one a rule of the leading edition",
    "RunAudit.verdict": "by the leading edition",
    "RunAudit.frozen_run_id": "of the frozen control it was compared with; empty where there is none",
    "RunRecord.run_id": RUN_ID,
    "RunRecord.name": "of the run, as people read it; untrusted text",
    "RunRecord.spec": "what was asked for",
    "RunRecord.measurements": "of the finished run",
    "RunRecord.integrity": "whether its figures stand",
    "RunRecord.feedback": "distribution, shapes, seed and SHA-256 of the feedback matrices; empty where there are none",
    "RunRecord.provenance": "commit, versions, hardware, digest of the data",
    "RunSpec.method": "the credit rule",
    "RunSpec.architecture": "the model",
    "RunSpec.dataset": "the data set",
    "RunSpec.seed": "of the run",
    "RunSpec.epochs": "to train",
    "RunSpec.method_options": "option of the method → value",
    "RunSpec.architecture_options": "option of the architecture → value",
    "RunSpec.recipe": "how it is optimised",
    "RunSpec.penalty": "strength λ of the residual penalty; 0 for none",
    "RunSpec.control": "none, or which control this run is",
    "RunSpec.precision": "of training",
    "RunSpec.device_class": "cpu or cuda",
    "Recipe.optimizer": "by name",
    "Recipe.learning_rate": "at its largest",
    "Recipe.weight_decay": "decoupled",
    "Recipe.schedule": "of the learning rate over epochs",
    "Recipe.batch_size": "samples",
    "Recipe.credit_norm": "how the credit is scaled before it acts",
    "Integrity.state": "verified, mismatch, unverifiable, or trusted (not recomputed)",
    "FigureDifference.quantity": "which figure",
    "FigureDifference.logged": "by training",
    "FigureDifference.recomputed": "by the audit",
    "Finding.rule": RULE,
    "Finding.title": "of the rule, in words",
    "Finding.quantity": "which figure it looks at",
    "Finding.required": "the limit, in words, with its unit",
    "Finding.sentence": "required and observed in one sentence",
    "Finding.run_id": "the run it judges",
    "Finding.threshold": "the limit as a number",
    "Finding.site": "where it was observed, 0..L; null where it is no figure of a site",
    "Finding.interval": "interval (low, high) of the observed estimate",
    "Finding.seeds": "how many runs it was observed over",
    "Finding.reference_run_id": "of the control it was compared with",
    "Finding.first_fire": "first epoch at which the rule fires; null where it never does or cannot be followed",
    "GuardReading.site": "where it was observed, 0..L; null where it is no figure of one site",
    "Exclusion.run_id": RUN_ID,
    "OtherRun.run_id": RUN_ID,
    "OtherRun.spec": "its specification: of a judged group but for the seed",
    "Exclusion.name": "of the run; untrusted text",
    "Exclusion.reason": "why it cannot be judged",
    "SecondOpinion.edition": "who judges",
    "SecondOpinion.judgements": "one a run, in the report's order",
    "Judgement.run_id": RUN_ID,
    "Judgement.findings": "one a rule of that edition",
    "Judgement.verdict": "by that edition",
    "Waiver.rule": RULE,
    "Waiver.reason": "in the author's words",
    "Waiver.author": "who decided",
    "Waiver.date": "when, ISO 8601",
    "Waiver.expiry": "until when, ISO 8601",
    "Waiver.method": "every run of this method, where no run is named",
    "Reproduction.reference": "the study whose published figures these are",
    "Reproduction.title": "of the reference, in words",
    "Reproduction.digest": "SHA-256 of the reference.toml",
    "Reproduction.rows": "one a published figure",
    "Reproduction.remarks": "what a reader must know besides",
    "FigureVerdict.figure": "what was published",
    "FigureVerdict.margin": "in the unit of the test; 0 where nothing was tested",
    "FigureVerdict.setting": "of the runs it was compared with, in words",
    "FigureVerdict.difference": "measured − published, in the unit of the test",
    "FigureVerdict.interval_90": "of the difference (low, high)",
    "PublishedFigure.quantity": "which figure",
    "PublishedFigure.method": "the credit rule",
    "PublishedFigure.published": "the number or numbers",
    "PublishedFigure.margin": "how far a difference may go",
    "PublishedFigure.setting": "of the published run; null where it is not known",
    "PublishedFigure.source": "table, figure or page",
    "PublishedFigure.penalty": "strength λ of the residual penalty",
    "PublishedFigure.control": "none, or which control it was",
    "PublishedFigure.method_options": "option of the method → value",
    "PublishedFigure.remark": "what a reader must know besides",
    "Published.mean": "over seeds",
    "Published.std": "over seeds, ddof 1",
    "Published.n": "number of seeds",
    "Margin.scale": "linear or log10",
    "ReferenceSetting.architecture": "the model",
    "ReferenceSetting.dataset": "the data set",
    "ReferenceSetting.epochs": "trained",
    "ReferenceSetting.architecture_options": "option of the architecture → value",
    "ReferenceSetting.recipe": "field of the recipe → value",
    "Measured.seed": "of the run",
    "Measured.run_id": RUN_ID,
    "Measured.reading": "its figure",
}
CHOICES = {
    "Finding.outcome": OUTCOMES,
    "Verdict.outcome": SEVERITY,
    "Exclusion.kind": (*EXCLUSION_KINDS, ""),
    "Check.outcome": ("agrees", "differs", "not possible"),
    "Integrity.state": ("verified", "trusted", "unverifiable", "mismatch"),
    "RunRecord.status": ("complete", "diverged", "failed"),
    "FigureVerdict.outcome": REPRODUCTION_OUTCOMES,
    "Margin.scale": ("linear", "log10"),
    "RunChange.matched": HOW,
}
CONSTANTS = {"AuditReport.schema": SCHEMA, "AuditDiff.schema": SCHEMA}
KNOWLEDGE = Knowledge(MappingProxyType(MEANINGS), MappingProxyType(CHOICES), MappingProxyType(CONSTANTS))


# docs/audit-json.md: the fields of audit.json, the columns of audit.csv, the outcomes in junit.xml, and what diff prints.


START = """\
# What an audit writes for machines

<!-- written by python -m fa_registry.reporting.files.schemas -->

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


# python -m fa_registry.reporting.files.schemas [--out docs]: what machines need to know of an audit's files.
#
# Writes audit.schema.json, diff.schema.json and audit-json.md from the records and their docstrings. To be run again whenever
# a record changes; a test compares.


def published() -> dict[str, str]:
    """File name → what stands in it."""
    return {
        "audit.schema.json": jsonio.pretty(audit_schema()),
        "diff.schema.json": jsonio.pretty(_titled(AuditDiff, "fa-registry diff --json")),
        "audit-json.md": document(),
    }


def audit_schema() -> dict[str, Any]:
    """The JSON Schema of audit.json."""
    return _titled(AuditReport, "audit.json of fa_registry")


def _titled(root: type, title: str) -> dict[str, Any]:
    schema = schema_of(root, KNOWLEDGE)
    return {"$schema": schema.pop("$schema"), "title": f"{title}, schema {SCHEMA}", **schema}


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
