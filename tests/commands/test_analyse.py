"""The analyse command on real small runs: what it prints and writes, and what it refuses."""

from __future__ import annotations

import csv
import json

import pytest

from fa_registry import jsonio
from fa_registry.analyses import CATALOG, Analysis
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import fields

pytestmark = pytest.mark.long

NAMES = sorted(name.replace("_", "-") for name in CATALOG.names())
STUDY = ("--study", "tiny", "--device", "cpu")


def test_all_of_them_print_their_question_and_write_json_csv_and_picture(trained, workplace):
    result = trained("analyse", "all", *STUDY)
    assert result.exit_code == 0, result.output
    out = workplace / "reports" / "analyses"
    for name in NAMES:
        assert CATALOG.get(name.replace("-", "_")).question in result.output
        analysis = jsonio.decode(Analysis, json.loads((out / f"{name}.json").read_text(encoding="utf-8")))
        assert analysis.name == name and analysis.selection.startswith("study tiny")
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        for index, table in enumerate(analysis.tables):
            file = out / (f"{name}-{table.name}.csv" if index else f"{name}.csv")
            with file.open(encoding="utf-8", newline="") as stream:
                assert len(list(csv.DictReader(stream))) == len(table.rows)
    assert sorted(path.suffix for path in out.iterdir()).count(".png") == len(NAMES)
    assert "nan" not in result.output
    assert trained("analyse", "all", *STUDY, "--out", "again").exit_code == 0  # the same runs give the same bytes
    written = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (out, workplace / "again")]
    assert written[0] == written[1]


def test_json_is_the_record_and_a_list_only_where_all_were_asked_for(trained):
    one = json.loads(trained("analyse", "ablation", *STUDY, "--json").stdout)
    assert trained("analyse", "first_fire", *STUDY).exit_code == 0  # either way to write a name
    assert jsonio.decode(Analysis, one).name == "ablation" and one["edition"]["name"] == "2026-05"
    assert [each["name"] for each in json.loads(trained("analyse", "all", *STUDY, "--json").stdout)] == NAMES


def test_another_edition_and_another_threshold_judge(trained):
    arguments = ("--edition", "2026-05", "--threshold", "D1=1.001", "--json")
    found = json.loads(trained("analyse", "sensitivity", *STUDY, *arguments).stdout)
    assert found["edition"]["name"] == "2026-05" and found["edition"]["overrides"] == {"D1.threshold": 1.001}
    rows = found["tables"][0]["rows"]
    assert rows[0]["rule"]["text"] == "D1" and rows[0]["threshold"]["reading"] == 1.001


@pytest.mark.long
def test_recomputed_figures_give_the_same_answer(trained, workplace):
    for folder, how in (("logged", "--trust-logged"), ("again", "--recompute")):
        result = trained("analyse", "aggregation", *STUDY, how, "--out", folder)
        assert result.exit_code == 0, result.output
    logged, again = (
        json.loads((workplace / folder / "aggregation.json").read_text()) for folder in ("logged", "again")
    )
    assert again["remarks"].pop() and logged == again  # the last remark is about the replay


def test_the_weights_are_needed_only_to_measure_again(trained):
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run", "fa.method": "dfa"})
    MlflowTracker().artifact(run.run_id, schema.FINAL).unlink()
    assert trained("analyse", "aggregation", *STUDY).exit_code == 0
    result = trained("analyse", "aggregation", *STUDY, "--recompute")
    assert result.exit_code == 3 and run.run_id in result.output


def test_a_changed_file_is_left_out_by_name_and_makes_exit_3(trained):
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run", "fa.method": "dfa"})
    path = MlflowTracker().artifact(run.run_id, schema.MEASUREMENTS)
    path.write_bytes(path.read_bytes() + b" ")
    result = trained("analyse", "aggregation", *STUDY)
    assert result.exit_code == 3 and run.run_id in result.output and "SHA-256" in result.output


def test_controls_alone_are_analysed_and_reported_as_nothing(trained, workplace):
    (control,) = MlflowTracker().search({schema.TAG_KIND: "run", "fa.method": "frozen"})
    result = trained("analyse", "all", "--run", control.run_id)
    assert result.exit_code == 0 and "(1, only controls)" in result.output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (
            ["sensitivty", "--study", "tinny", "--edition", "2026-5", "--out", "file", "--jobs", "many"],
            ["name", "study", "edition", "out", "jobs"],
        ),
        (("aggregation",), []),
    ],
)
def test_every_wrong_argument_is_named_at_once(registry, workplace, arguments, named):
    (workplace / "file").write_text("")
    assert sorted(fields(registry("analyse", *arguments))) == sorted(named)
    assert registry("analyse", "aggregation", *STUDY).exit_code == 2  # it has no finished run
