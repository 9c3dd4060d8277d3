"""SARIF 2.1.0: the required fields and value ranges of the standard, checked against hand-copied schema parts."""

from __future__ import annotations

import json

import pytest

from fa_registry import jsonio
from fa_registry.lint.linting import lint_paths, sarif
from tests.lint.samples import NEGATIVE_NORM, notebook

# The parts of the OASIS schema (sarif-schema-2.1.0.json) that our output touches: type, required, enum, minimum.
TEXT = {"type": str}
MESSAGE = {"type": dict, "required": ["text"], "properties": {"text": TEXT}}
POSITIVE = {"type": int, "minimum": 1}
REGION = {"type": dict, "properties": {name: POSITIVE for name in ("startLine", "startColumn", "endLine", "endColumn")}}
LOCATION = {
    "type": dict,
    "properties": {
        "physicalLocation": {
            "type": dict,
            "required": ["artifactLocation"],
            "properties": {"artifactLocation": {"type": dict, "properties": {"uri": TEXT}}, "region": REGION},
        },
        "logicalLocations": {"type": list, "items": {"type": dict, "properties": {"fullyQualifiedName": TEXT}}},
    },
}
LEVEL = {"type": str, "enum": ["none", "note", "warning", "error"]}
RESULT = {
    "type": dict,
    "required": ["message"],
    "properties": {
        "ruleId": TEXT,
        "ruleIndex": {"type": int, "minimum": -1},
        "level": LEVEL,
        "message": MESSAGE,
        "locations": {"type": list, "items": LOCATION},
        "suppressions": {
            "type": list,
            "items": {
                "type": dict,
                "required": ["kind"],
                "properties": {"kind": {"type": str, "enum": ["inSource", "external"]}, "justification": TEXT},
            },
        },
    },
}
RULE = {
    "type": dict,
    "required": ["id"],
    "properties": {
        "id": TEXT,
        "name": TEXT,
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": {"type": dict, "properties": {"level": LEVEL}},
        "properties": {"type": dict, "properties": {"pitfall": POSITIVE}},
    },
}
DRIVER = {
    "type": dict,
    "required": ["name"],
    "properties": {"name": TEXT, "version": TEXT, "rules": {"type": list, "items": RULE}},
}
RUN = {
    "type": dict,
    "required": ["tool"],
    "properties": {
        "tool": {"type": dict, "required": ["driver"], "properties": {"driver": DRIVER}},
        "columnKind": {"type": str, "enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": list, "items": RESULT},
    },
}
LOG = {
    "type": dict,
    "required": ["version", "runs"],
    "properties": {"$schema": TEXT, "version": {"type": str, "enum": ["2.1.0"]}, "runs": {"type": list, "items": RUN}},
}


def problems(schema: dict, value: object, where: str = "log") -> list[str]:
    """Where a value breaks a schema; SARIF's objects allow no property that it does not name."""
    if type(value) is not schema["type"]:
        return [f"{where}: {type(value).__name__}"]
    wrong = [f"{where}: {value} not allowed" for _ in [0] if value not in schema.get("enum", [value])]
    if "minimum" in schema and value < schema["minimum"]:
        wrong.append(f"{where}: {value} too small")
    if schema["type"] is dict:
        wrong += [f"{where}: {name} missing" for name in schema.get("required", []) if name not in value]
        wrong += [f"{where}: {name} unknown" for name in value if name not in schema["properties"]]
        for name in value.keys() & schema["properties"].keys():
            wrong += problems(schema["properties"][name], value[name], f"{where}.{name}")
    if schema["type"] is list:
        wrong += [one for item in value for one in problems(schema["items"], item, f"{where}[]")]
    return wrong


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The log of a standing, a silenced, an unreadable and a notebook's finding."""
    (tmp_path / "a b.py").write_text(NEGATIVE_NORM + "x.norm(-1)  # fa: ok FA001 the L₋₁ norm is meant\n")
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "n.ipynb").write_bytes(notebook("import torch\nx.norm(-1)"))
    monkeypatch.chdir(tmp_path)
    return json.loads(jsonio.pretty(sarif(lint_paths(["."]), "1.2.3")))


def test_the_log_keeps_to_the_schema(log):
    assert problems(LOG, log) == []
    assert len(log["runs"][0]["results"]) == 4


@pytest.mark.parametrize(
    "spoil",
    [
        lambda log: log.pop("version"),
        lambda log: log.update(version="2.0.0"),
        lambda log: log["runs"][0]["tool"]["driver"].pop("name"),
        lambda log: log["runs"][0]["results"][0].pop("message"),
        lambda log: log["runs"][0]["results"][0].update(level="bad"),
        lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"].update(startLine=0),
    ],
)
def test_the_schema_check_can_fail(log, spoil):
    spoil(log)
    assert problems(LOG, log)


def test_results_point_to_their_rule_place_and_reason(log):
    run = log["runs"][0]
    standing, broken, in_notebook, silenced = run["results"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    place = standing["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b.py"
    assert place["region"] == {"startLine": 4, "startColumn": 12, "endLine": 4, "endColumn": 22}
    assert broken["ruleId"] == "FA900" and "suppressions" not in standing
    assert silenced["suppressions"] == [{"kind": "inSource", "justification": "the L₋₁ norm is meant"}]
    assert "region" not in in_notebook["locations"][0]["physicalLocation"]
    assert in_notebook["locations"][0]["logicalLocations"] == [{"fullyQualifiedName": "cell 2, line 2"}]


def test_an_absolute_path_is_a_file_uri(tmp_path):
    (tmp_path / "a.py").write_text(NEGATIVE_NORM)
    (result,) = sarif(lint_paths([str(tmp_path)]), "1")["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == (tmp_path / "a.py").as_uri()
