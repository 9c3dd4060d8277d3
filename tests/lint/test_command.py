"""The command: what it prints and what it exits with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from fa_lint.runner import lint_paths, sarif
from fa_registry import jsonio
from fa_registry.cli import main
from tests.lint.samples import CLAMPED_COSINE, NEGATIVE_NORM, PITFALLS, notebook


@pytest.fixture
def lint(tmp_path, monkeypatch):
    """Runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, ["lint", *arguments])


@pytest.mark.parametrize("code", sorted(PITFALLS))
def test_a_pitfall_exits_1_and_says_where_what_why_and_how(lint, tmp_path, code):
    (tmp_path / "sample.py").write_text(PITFALLS[code])
    result = lint("sample.py")
    place, why, fix, summary = result.stdout.splitlines()
    assert result.exit_code == 1
    assert place.startswith("sample.py:") and f": {code} `" in place
    assert why.startswith("    why: ") and fix.startswith("    fix: ")
    assert summary.startswith("1 finding") and summary.endswith(f"{code} ×1")


def test_a_silenced_finding_exits_0_and_is_counted(lint, tmp_path):
    (tmp_path / "a.py").write_text(NEGATIVE_NORM.replace("norm(-1)", "norm(-1)  # fa: ok FA001 meant so"))
    result = lint(".")
    assert (result.exit_code, result.stdout) == (0, "no pitfall in 1 file; findings silenced with a reason: 1\n")


@pytest.mark.parametrize("choice", [("--ignore", "FA001"), ("--select", "FA002")])
def test_a_comment_for_a_rule_that_is_not_applied_is_accepted(lint, tmp_path, choice):
    (tmp_path / "a.py").write_text(NEGATIVE_NORM.replace("norm(-1)", "norm(-1)  # fa: ok FA001 meant so"))
    result = lint(".", *choice)
    assert (result.exit_code, result.stdout) == (0, "no pitfall in 1 file\n")
    (tmp_path / "a.py").write_text("x = 1  # fa: ok FA099 meant so\n")
    assert "FA099" in lint(".", *choice).stdout


def test_a_notebook_is_named_with_its_cell(lint, tmp_path):
    (tmp_path / "n.ipynb").write_bytes(notebook("import torch", "x.norm(-1)"))
    assert "cell 3, line 1:" in lint("n.ipynb").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "no such file or folder: nowhere"),
        (("empty",), "no .py or .ipynb file in empty"),
        (("empty", "--json", "--sarif"), "pass only one of them"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_linted_exits_2(lint, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    result = lint(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr and result.stdout == ""


def test_json_holds_every_field(lint, tmp_path):
    silenced = CLAMPED_COSINE.replace("dim=1)", "dim=1)  # fa: ok FA002 unit vectors")
    (tmp_path / "a.py").write_text(NEGATIVE_NORM)
    (tmp_path / "b.py").write_text(silenced)
    result = lint(".", "--json")
    shown = json.loads(result.stdout)
    (finding,) = shown["findings"]
    assert result.exit_code == 1 and shown["files"] == 2
    assert (finding["code"], finding["pitfall"], finding["silenced"]) == ("FA001", 1, "")
    assert finding["place"] == {"path": "a.py", "line": 4, "column": 12, "end_line": 4, "end_column": 22, "cell": 0}
    assert finding["what"] and finding["why"] and finding["fix"] == "norm(dim=-1)"
    assert [finding["silenced"] for finding in shown["silenced"]] == ["unit vectors"]


def test_sarif_is_printed_with_the_version(lint, tmp_path):
    (tmp_path / "a.py").write_text(NEGATIVE_NORM)
    result = lint("a.py", "--sarif")
    run = json.loads(result.stdout)["runs"][0]
    assert result.exit_code == 1
    assert run["tool"]["driver"]["version"] and run["results"][0]["ruleId"] == "FA001"


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
        wrong += [problem for item in value for problem in problems(schema["items"], item, f"{where}[]")]
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


ROOT = Path(__file__).resolve().parents[2]


def test_no_pitfall_in_this_projects_own_sources():
    """Of the package itself, test_engine.py says so."""
    result = lint_paths([str(ROOT / name) for name in ("packages", "tests", "benchmarks")])
    assert [str(finding) for finding in result.findings] == []


BOTH = f"{NEGATIVE_NORM}\n{CLAMPED_COSINE}"


def found(result) -> set[str]:
    return {finding["code"] for finding in json.loads(result.stdout)["findings"]}


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        ((), {"FA001", "FA002"}),
        (("--select", "FA001"), {"FA001"}),
        (("--ignore", "FA001, FA003"), {"FA002"}),
        (("--select", "FA001,FA002", "--ignore", "FA002"), {"FA001"}),
    ],
)
def test_rules_are_chosen_by_their_codes(lint, tmp_path, arguments, codes):
    (tmp_path / "a.py").write_text(BOTH)
    assert found(lint("a.py", "--json", *arguments)) == codes


def test_a_section_of_pyproject_says_the_same_and_what_is_typed_goes_before_it(lint, tmp_path):
    (tmp_path / "a.py").write_text(BOTH)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "b.py").write_text(BOTH)
    (tmp_path / "pyproject.toml").write_text('[tool.fa-registry.lint]\nignore = ["FA001"]\nexclude = ["old/*"]\n')
    result = lint(".", "--json")
    assert found(result) == {"FA002"} and json.loads(result.stdout)["files"] == 1
    assert found(lint(".", "--json", "--ignore", "FA002")) == {"FA001"}


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ('ignore = ["FA999"]', "ignore: unknown rule"),
        ('ignored = ["FA001"]', "ignored: expected one of the keys select, ignore, exclude with a list of texts"),
        ("select = 1", "select: expected one of the keys select, ignore, exclude with a list of texts"),
        ("select = [", "pyproject.toml"),
    ],
)
def test_a_section_that_is_none_is_a_sentence(lint, tmp_path, section, text):
    (tmp_path / "a.py").write_text(BOTH)
    (tmp_path / "pyproject.toml").write_text(f"[tool.fa-registry.lint]\n{section}\n")
    result = lint("a.py")
    assert result.exit_code == 2 and text in result.stderr, result.stderr


def test_a_project_without_the_section_is_linted_as_ever(lint, tmp_path):
    (tmp_path / "a.py").write_text(BOTH)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n[tool]\nfa-registry = 3\n')
    assert lint("a.py").exit_code == 1


def test_findings_of_one_rule_in_one_file_are_reported_once_with_their_lines(lint, tmp_path):
    (tmp_path / "a.py").write_text("import torch\nx.norm(-1)\ny.norm(-1)\nz.norm(-1)\n")
    lines = lint("a.py").stdout.splitlines()
    assert [line.split(": ")[0] for line in lines[:3]] == ["a.py:2:1", "a.py:3:1", "a.py:4:1"]
    assert lines[3].startswith("    why: ") and lines[4].startswith("    fix: ") and len(lines) == 6


def test_the_hook_for_pre_commit_is_the_command():
    (hook,) = yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "fa-lint" and hook["additional_dependencies"] == ["./packages/fa_lint"]
    assert set(hook["types_or"]) == {"python", "jupyter"}
