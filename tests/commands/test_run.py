"""The run command: study, audit and report in one call; and what every command that writes pages refuses before it begins."""

from __future__ import annotations

import json

import pytest

from fa_registry.audits.options import ReportOutput, checked_pages
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import fields
from tests.commands.test_audit import spoil
from tests.helpers.audits import unpublished

WRITING = (
    ("audit", "--study", "tiny"),
    ("run", "tiny"),
    ("report",),
    ("compare", "dfa", "bp"),
    ("analyse", "all", "--study", "tiny"),
)
RUN = ("run", "tiny", "--jobs", "1", "--device", "cpu")


@pytest.mark.parametrize("command", WRITING, ids=lambda command: command[0])
def test_a_folder_that_cannot_be_written_is_refused_first(registry, workplace, command):
    """Nothing is trained or looked up: the store that none of them would find is not even missed."""
    (workplace / "taken").write_text("a file")
    (workplace / "reports").mkdir()
    (workplace / "reports" / "audit.json").write_text("{}")
    before = {path: path.stat().st_mtime_ns for path in workplace.rglob("*")}
    for out in ("taken", "taken/below/it", "/proc/no/such", "x" * 300):
        result = registry(*command, "--out", out)
        assert fields(result) == ["out"]
    assert {path: path.stat().st_mtime_ns for path in workplace.rglob("*")} == before


@pytest.mark.parametrize("out", ["", ".", "reports", "a/b/../c", "reports/"])
def test_a_folder_that_can_be_written_is_accepted_and_not_made(workplace, out):
    problems: list[str] = []
    before = sorted(workplace.rglob("*"))
    checked_pages(ReportOutput(out), problems)
    assert problems == [] and sorted(workplace.rglob("*")) == before


@pytest.mark.long
def test_the_last_lines_are_the_meaning_of_the_result_and_an_address_to_click(trained, workplace):
    result = trained(*RUN)
    *_, first, gamma, address = result.stdout.splitlines()
    assert gamma.startswith("Γ: ") and all(name in first for name in ("bp", "fa", "dfa"))
    assert address == f"report: {(workplace / 'reports' / 'index.html').as_uri()}"


@pytest.mark.long
def test_all_editions_judge_what_one_run_has_trained_in_the_experiment_that_was_named(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace('"bp", "fa", "dfa"', '"dfa"'))
    result = registry(*RUN, "--editions", "2026-12,2026-05", "--experiment", "mine", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)["report"]
    assert report["edition"]["name"] == "2026-05"  # the study's own leads
    assert [opinion["edition"]["name"] for opinion in report["opinions"]] == ["2026-12"]
    runs = MlflowTracker().search({schema.TAG_KIND: "run"}, "mine")
    assert len(runs) == 2
    assert {run.tags[schema.TAG_FIRST_FIRE_BY].split()[0] for run in runs} == {"2026-05"}
    with unpublished():
        assert registry(*RUN, "--experiment", "mine", "--force").exit_code == 0
    assert len(MlflowTracker().search({schema.TAG_KIND: "run"}, "mine")) == 4


def test_a_changed_file_of_a_run_that_is_already_trained_gives_exit_code_3(trained):
    spoil("dfa", schema.SERIES, lambda path: path.write_bytes(path.read_bytes() + b" "))
    result = trained(*RUN, "--json")
    assert result.exit_code == 3 and "integrity failure" in result.stdout


def test_what_the_audit_would_refuse_is_refused_before_the_training(registry, workplace):
    for more, field in ((("--edition", "2026-05"), "editions"), ((), "edition")):
        assert field in fields(registry(*RUN, "--editions", "2026-05,2099-01", *more))
    (workplace / "waivers.toml").write_text("x = ")
    study = workplace / "tiny" / "study.toml"
    study.write_text(f'waivers = "../waivers.toml"\n{study.read_text()}')
    assert registry(*RUN).exit_code == 2
    assert MlflowTracker().search({}) == []


def test_a_page_whose_place_is_taken_is_a_problem_before_anything_is_measured(tmp_path):
    (tmp_path / "forms").write_text("")
    for name in ("index.html", "audit.json", "audit_table.tex"):
        (tmp_path / name).mkdir()
    problems: list[str] = []
    checked_pages(ReportOutput(str(tmp_path)), problems)
    for problem, name in zip(problems, ("forms", "index.html", "audit_table.tex", "audit.json"), strict=True):
        assert problem.startswith("out: ") and str(tmp_path / name) in problem
