"""list, show, doctor, report: what people and machines read."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from fa_registry import jsonio, methods
from fa_registry.cli import main
from fa_registry.errors import UnknownName
from fa_registry.records import RunRecord
from fa_registry.reporting.render import overridable
from fa_registry.workflows.looking import CATALOGS, members
from tests.workflows.test_audit import AUDIT, run_of


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("methods", {"bp", "dfa", "fa"}),
        ("architectures", {"resmlp"}),
        ("datasets", {"digits"}),
        ("editions", {"2026-04", "2026-05", "2026-05:strict", "2026-11"}),
        ("analyses", {"ablation", "first-fire", "sensitivity"}),
        ("studies", {"digits"}),
        (
            "diagnostics",
            {"rho", "stability", "h_norm", "g_norm", "gain", "fidelity", "gamma", "aggregates", "norm_ratio"},
        ),
    ],
)
def test_list_names_every_member_with_its_file_and_line(registry, family, expected):
    rows = json.loads(registry("list", family, "--json").stdout)
    assert expected <= {row["name"] for row in rows}
    assert all(row["line"] and Path(row["file"]).is_file() for row in rows)
    assert registry("list", family).exit_code == 0


def test_an_unknown_family_is_a_usage_error(registry):
    result = registry("list", "method")
    assert result.exit_code == 2 and "did you mean 'methods'" in result.stderr


def test_show_prints_the_record_also_by_the_first_characters_of_its_id(trained):
    run_id = run_of("dfa").run_id
    record = jsonio.decode(RunRecord, json.loads(trained("show", run_id[:8], "--json").stdout))
    assert record.run_id == run_id
    text = trained("show", run_id).stdout
    assert "gamma" in text and f"{record.measurements.scalars['accuracy'].value:.4g}" in text


def test_show_of_an_unknown_run(trained):
    result = trained("show", "zzzz")
    assert result.exit_code == 2 and "0 runs begin so" in result.stderr


def found(answer) -> dict[str, str]:
    return {row["check"]: row["found"] for row in json.loads(answer.stdout)}


def test_doctor_makes_no_store_of_a_mistyped_name(registry, tmp_path):
    typo = tmp_path / "typo.db"
    rows = found(registry("doctor", "--store", f"sqlite:///{typo}", "--json"))
    assert rows["store"].endswith("none yet, the first run makes it") and rows["MLflow's pages"] == "no study yet"
    assert not typo.exists()


def test_doctor_names_the_page_that_shows_the_newest_study_side_by_side(trained):
    rows = found(trained("doctor", "--json"))
    assert rows["MLflow's pages"].endswith("/runs?viewStateShareKey=tiny&compareRunsMode=CHART")
    assert "4 finished runs" in rows["store"]


def test_doctor_is_content_here_and_not_with_a_store_it_cannot_use(registry):
    good = registry("doctor", "--json")
    assert good.exit_code == 0 and all(row["ok"] for row in json.loads(good.stdout))
    bad = registry("doctor", "--store", "file:mlruns", "--json")
    assert bad.exit_code == 1
    assert [row["check"] for row in json.loads(bad.stdout) if not row["ok"]] == ["store"]


def test_rendering_again_gives_the_same_bytes(trained, workplace):
    trained(*AUDIT)
    result = trained("report", "reports/audit.json", "--out", "again", "--json")
    first = {path.relative_to("reports"): path.read_bytes() for path in Path("reports").rglob("*") if path.is_file()}
    again = {path.relative_to("again"): path.read_bytes() for path in Path("again").rglob("*") if path.is_file()}
    assert first == again and len(json.loads(result.stdout)) == len(first)


@pytest.mark.parametrize("verb", sorted(main.commands))
def test_every_verb_has_help_with_examples(registry, verb):
    text = registry(verb, "--help").stdout
    assert f"fa-registry {verb}" in text.split("Examples:")[1]


def test_every_verb_prints_json():
    without = [
        name
        for name, command in main.commands.items()
        if "--json" not in {opt for p in command.params for opt in p.opts}
    ]
    assert without == []


@pytest.mark.parametrize("family", CATALOGS)
def test_every_member_has_a_card_to_show(registry, family):
    for name in CATALOGS[family].names():
        card = json.loads(registry("card", name, "--family", family, "--json").stdout)
        assert (card["family"], card["name"]) == (family, name) and card["file"].endswith(".py")
        assert f"name: {name}\n" in registry("card", name, "--family", family).stdout


def test_deviations_are_numbered_and_options_say_what_they_take(registry):
    text = registry("card", "dfa").stdout
    for number, deviation in enumerate(methods.CATALOG.get("dfa").card.deviations, start=1):
        assert f"\n  {number}. {deviation}\n" in text
    text = registry("card", "mlp").stdout
    assert "\n  activation: relu (after every hidden layer, one of relu, tanh, sigmoid, gelu)\n" in text
    assert "\n  d_hidden: 256 (width of every hidden layer, at least 1)\n" in text


def test_unknown_names_are_refused(registry):
    result = registry("card", "dfaa")
    assert result.exit_code == 2 and "unknown name 'dfaa' (did you mean 'dfa'?)" in result.stderr
    result = registry("card", "dfa", "--family", "method")
    assert result.exit_code == 2 and "did you mean 'methods'" in result.stderr


def test_templates_are_listed_with_their_line_and_file():
    rows = {row["name"]: row for row in members("templates")}
    assert list(rows) == overridable() and "note.md.j2" not in rows
    assert rows["index.html.j2"]["line"] == "the whole audit on one page."
    assert rows["macros.html.j2"]["line"] == "taken in by pages."
    assert all(Path(row["file"]).is_file() for row in rows.values())


def test_an_unknown_family_is_told_which_there_are():
    with pytest.raises(UnknownName, match=r"'template' \(did you mean 'templates'\?\)"):
        members("template")


def statistics(path) -> list:
    with sqlite3.connect(path) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE name = 'sqlite_stat1'").fetchall()
        return connection.execute("SELECT tbl FROM sqlite_stat1 WHERE tbl = 'metrics'").fetchall() if names else []


def test_a_store_is_analysed_and_its_rows_are_told(trained, workplace):
    assert not statistics(workplace / "mlflow.db")
    result = trained("optimize", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["rows"]["runs"] == 5 and found["rows"]["metrics"] > 100  # four runs and their study's own
    assert statistics(workplace / "mlflow.db")
    assert "runs" in trained("optimize").stdout


def test_a_store_that_is_not_there_is_not_made(registry, tmp_path):
    result = registry("optimize", "--store", f"sqlite:///{tmp_path / 'none.db'}")
    assert result.exit_code == 2 and not (tmp_path / "none.db").exists()
