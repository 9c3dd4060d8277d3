"""Names that others chose, in every command: no raw escape reaches a terminal, JSON stays JSON, trained runs are found again."""

from __future__ import annotations

import json
import unicodedata

import pytest
from mlflow import MlflowClient

from fa_registry.text_safety import CATEGORIES
from fa_registry.tracking import schema
from fa_registry.tracking.stores import open_tracker
from tests.commands.conftest import STUDY, TRAIN

pytestmark = pytest.mark.long

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\x7f\r\nPASS: all good\u2028[/red]{{7*7}}"
QUOTES = "' or 1=1 -- it's `a\\'\""
MARGIN = "PASS: all good"  # what a name would write at the beginning of a separate line


def is_seen(text: str) -> bool:
    """Whether nothing in what is printed moves a cursor, and no name has begun a line."""
    hidden = [char for char in text if unicodedata.category(char) in CATEGORIES and char != "\n"]
    return not hidden and not any(line.startswith(MARGIN) for line in text.split("\n"))


@pytest.fixture
def hostile(trained):
    """The tiny study's store with hostile tags, names and experiment, as another person may send it."""
    tracker = open_tracker()
    client = MlflowClient(tracker.uri)
    for run in tracker.search({schema.TAG_KIND: "run"}):
        client.update_run(run.run_id, name=ESCAPES)
        marked = (schema.TAG_SETTING, schema.TAG_METHOD, schema.TAG_VERDICT, "mlflow.user")
        tracker.log(run.run_id, tags=dict.fromkeys(marked, ESCAPES))
    return trained


CALLS = (
    ("list", "runs"),
    ("list", "runs", "--study", ESCAPES),
    ("list", ESCAPES),
    ("info", ESCAPES),
    ("train", "--method", ESCAPES, "--seed", "1"),
    ("train", "--method", "bp", "--seed", ESCAPES, "--set", f"{ESCAPES}=1"),
    ("study", ESCAPES),
    ("audit", "--study", "tiny", "--trust-logged"),
    ("audit", "--study", "tiny", "--threshold", ESCAPES),
    ("audit", "--experiment", ESCAPES),
    ("verify", "--study", "tiny", "--jobs", "1"),
    ("compare", "bp", "dfa", "--study", "tiny"),
    ("compare", ESCAPES, "dfa", "--study", "tiny"),
    ("analyse", "penalty", "--study", "tiny"),
    ("analyse", ESCAPES, "--study", "tiny"),
    ("report", "reports/audit.json", "--out", "again"),
    ("report", ESCAPES),
    ("diff", "reports", "again"),
    ("diff", ESCAPES, "again"),
    ("promote", "RUN"),
    ("promote", "RUN", "--name", ESCAPES),
    ("adopt", ESCAPES, "--method", "dfa", "--seed", "1", "--epochs", "1", "--name", ESCAPES),
    ("doctor",),
    ("data", "where", ESCAPES),
    ("lint", ESCAPES),
    ("show", "RUN"),
    ("show", ESCAPES),
    (ESCAPES,),
    ("list", "--limit", ESCAPES),
)


def test_no_command_prints_a_raw_escape(hostile, caplog):
    """One store for all: each call takes milliseconds, the store seconds."""
    run_id = run_of_experiment()
    for call in CALLS:
        result = hostile(*(run_id if word == "RUN" else word for word in call))
        printed = result.stdout + result.stderr
        assert printed and is_seen(printed), (call, ascii(printed))
        assert "Traceback" not in printed


def run_of_experiment() -> str:
    return open_tracker().search({schema.TAG_KIND: "run"})[0].run_id


@pytest.mark.parametrize("call", [("list", "runs"), ("show", "RUN"), ("audit", "--study", "tiny", "--trust-logged")])
def test_json_holds_the_names_as_they_are_in_signs_that_are_seen(hostile, call):
    run_id = run_of_experiment()
    result = hostile(*(run_id if word == "RUN" else word for word in call), "--json")
    assert is_seen(result.stdout) and ESCAPES in str_of(json.loads(result.stdout))


def str_of(value) -> list[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inside for text in str_of(item)]


def test_what_is_trained_under_a_name_is_audited_under_it(registry, in_this_process, workplace):
    name = QUOTES
    text = STUDY.replace('"bp", "fa", "dfa"', '"bp"').replace("epochs = 2", "epochs = 1")
    (workplace / "tiny" / "study.toml").write_text(text.replace('name = "tiny"', f"name = {json.dumps(name)}"))
    where = ("--experiment", f"../../{name}")
    assert registry("study", "tiny", "--jobs", "1", "--device", "cpu", *where).exit_code == 0
    judged = registry("audit", "--study", "tiny", "--trust-logged", "--json")
    assert len(json.loads(judged.stdout)["report"]["runs"]) == 2
    assert len(json.loads(registry("list", "runs", "--study", name, "--json").stdout)) == 2
    assert registry("report", "--study", name, "--out", "again").exit_code == 0
    (inside,) = (workplace / "mlartifacts").iterdir()
    assert inside.is_dir() and not list(workplace.parent.glob("..*"))  # artifacts are below the store


@pytest.mark.parametrize("name", [ESCAPES, "x" * 201, " ", "a\x00"], ids=["escapes", "long", "blank", "zero"])
def test_what_is_unreadable_is_no_name(registry, workplace, name):
    path = workplace / "tiny" / "study.toml"
    path.write_text(STUDY.replace('name = "tiny"', f"name = {json.dumps(name)}"), encoding="utf-8")
    for call in (("study", "tiny"), (*TRAIN, "--study", name), (*TRAIN, "--experiment", name)):
        result = registry(*call)
        assert result.exit_code == 2 and is_seen(result.stderr), result.output
    assert not open_tracker().search({})
    assert registry("study", "x" * 300).exit_code == 2
