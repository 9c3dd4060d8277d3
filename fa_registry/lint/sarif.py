"""A report as SARIF 2.1.0, the format that code hosts and editors show beside the code."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from fa_registry.lint.base import LintFinding, LintReport, RuleCard

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: LintReport, version: str) -> dict[str, Any]:
    """The log of one run. Silenced findings are in it too, with their reason, as SARIF wants them."""
    order = {card.code: index for index, card in enumerate(report.cards)}
    run = {
        "tool": {
            "driver": {
                "name": "fa-registry lint",
                "version": version,
                "rules": [_rule(card) for card in report.cards],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, order[finding.code]) for finding in (*report.findings, *report.silenced)],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(card: RuleCard) -> dict[str, Any]:
    rule = {
        "id": card.code,
        "name": card.name,
        "shortDescription": {"text": card.title},
        "fullDescription": {"text": card.why},
        "help": {"text": card.fix},
        "defaultConfiguration": {"level": "warning"},
    }
    return {**rule, "properties": {"pitfall": card.pitfall}} if card.pitfall else rule


def _result(finding: LintFinding, index: int) -> dict[str, Any]:
    result = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": "warning",
        "message": {"text": f"{finding.what}. {finding.why}. Fix: {finding.fix}."},
        "locations": [_location(finding)],
    }
    if finding.silenced:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.silenced}]
    return result


def _location(finding: LintFinding) -> dict[str, Any]:
    """A region counts lines of the file; a notebook's lines are lines of JSON, so its place is a logical one."""
    place = finding.place
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.path)}}
    if place.cell:
        name = f"cell {place.cell}, line {place.line}"
        return {"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": name}]}
    physical["region"] = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    return {"physicalLocation": physical}


def _uri(path: str) -> str:
    return ("file://" if PurePosixPath(path).is_absolute() else "") + quote(path)
