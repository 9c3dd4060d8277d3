"""list, show, doctor, report: what people and machines read."""

from __future__ import annotations

import datetime
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient

from fa_registry import jsonio
from fa_registry.audits.recorded_verdicts import UNPROVEN
from fa_registry.cli import main
from fa_registry.inspection import doctor
from fa_registry.inspection.plugin_list import CATALOGS, members
from fa_registry.plugin_registry import catalog_of
from fa_registry.records import RunRecord
from fa_registry.reporting.render import overridable
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.devices import bf16_gain
from tests.commands.conftest import TRAIN
from tests.commands.test_audit import run_of


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        *(("methods", "bp dfa fa"), ("architectures", "resmlp"), ("datasets", "digits"), ("studies", "digits")),
        *(("editions", "2026-04 2026-05 2026-05:strict 2026-12"), ("analyses", "ablation first-fire sensitivity")),
        ("diagnostics", "rho stability h_norm g_norm gain fidelity gamma aggregates norm_ratio"),
    ],
)
def test_list_names_every_member_with_its_file_and_line(registry, family, expected):
    rows = json.loads(registry("list", family, "--json").stdout)
    assert {*expected.split()} <= {row["name"] for row in rows}
    assert all(row["line"] and Path(row["file"]).is_file() for row in rows)
    assert registry("list", family).exit_code == 0


def test_show_prints_the_record_also_by_the_first_characters_of_its_id(trained):
    run_id = run_of("dfa").run_id
    shown = json.loads(trained("show", run_id[:8], "--json").stdout)
    assert shown.pop("form") == ""  # no audit wrote one
    record = jsonio.decode(RunRecord, shown)
    assert record.run_id == run_id
    assert f"{record.measurements.scalars['accuracy'].value:.4g}" in trained("show", run_id).stdout
    MlflowTracker().log(run_id, tags={schema.TAG_VERDICT: "PASS"})
    assert trained("show", run_id).stdout.endswith(f"verdict: {UNPROVEN}\n")  # no audit has this verdict


def listed(call, *more):
    result = call("list", "runs", "--json", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_runs_are_listed_newest_first_with_what_the_store_says_of_them(trained):
    tracker = MlflowTracker()
    tracker.log(run_of("dfa").run_id, tags={schema.TAG_VERDICT: "WARN(D3 undecided)", schema.TAG_PROOF: "replayed"})
    runs = listed(trained)
    assert [run["method"] for run in runs] == [run.tags["fa.method"] for run in tracker.search({"fa.kind": "run"})]
    dfa = next(run for run in runs if run["method"] == "dfa")
    assert dfa["run_id"] == run_of("dfa").run_id
    assert (dfa["study"], dfa["seed"], dfa["status"], dfa["verdict"]) == ("tiny", 1, "complete", UNPROVEN)
    assert {run["proof"] for run in runs} == {""}
    assert dfa["accuracy"] == tracker.get(dfa["run_id"]).metrics["accuracy/test"]
    assert abs(datetime.datetime.fromisoformat(dfa["started"]).timestamp() - run_of("dfa").started / 1000) <= 1


def test_runs_are_chosen_by_study_method_and_status(trained):
    assert [run["method"] for run in listed(trained, "--method", "fa", "--study", "tiny")] == ["fa"]
    assert listed(trained, "--status", "failed") == listed(trained, "--study", "digits") == []
    for option, typed, meant in (("--method", "dfaa", "dfa"), ("--study", "tinny", "tiny"), ("--status", "done", "")):
        result = trained("list", "runs", option, typed, "--json")
        assert result.exit_code == 2 and f"{typed!r}" in result.stderr and meant in result.stderr and not result.stdout


def test_a_listing_is_one_search_of_few_runs_that_reads_no_file(trained, monkeypatch):
    genuine, asked = MlflowClient.search_runs, []

    def search(client, *given, **named):
        found = genuine(client, *given, **named)
        asked.append(len(found))
        return found

    monkeypatch.setattr(MlflowClient, "search_runs", search)
    monkeypatch.setattr(MlflowTracker, "artifact", lambda *arguments: 1 / 0)
    assert len(listed(trained, "--limit", "2")) == 2 and len(listed(trained, "--limit", "0")) == 4
    assert asked[0] == 3 and len(asked) == 2  # one more than are listed shows whether any is left off


@pytest.mark.long
def test_variants_of_a_method_are_not_equal_rows(registry):
    for sigma in ("0.3", "0.5"):
        assert registry(*TRAIN[:2], "dtp", *TRAIN[3:], "--set", f"method.sigma={sigma}").exit_code == 0
    text = registry("list", "runs").stdout
    assert "dtp (sigma=0.3)" in text and "dtp (sigma=0.5)" in text and "skip=" not in text


@pytest.mark.parametrize("option", ["--study", "--method", "--status", "--limit", "--store"])
def test_what_chooses_runs_chooses_nothing_else(registry, option):
    result = registry("list", "methods", option, "5")
    assert result.exit_code == 2 and option in result.stderr


def found(answer) -> dict[str, str]:
    return {row["check"]: row["found"] for row in json.loads(answer.stdout)}


def test_doctor_makes_no_store_of_a_mistyped_name(registry, tmp_path):
    typo = tmp_path / "typo.db"
    rows = found(registry("doctor", "--store", f"sqlite:///{typo}", "--json"))
    assert not typo.exists()
    typo.touch()
    assert found(registry("doctor", "--store", f"sqlite:///{typo}", "--json"))["store"] == rows["store"]


def test_doctor_calls_no_data_set_ok_whose_files_are_missing(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("FA_REGISTRY_DATA", str(tmp_path / "nothing"))
    rows = {row["check"]: row for row in json.loads(registry("doctor", "--json").stdout)}
    mnist, digits = rows["data set mnist"], rows["data set digits"]
    assert (mnist["state"], digits["state"]) == ("missing", "ok") and "4" in mnist["found"]


def test_doctor_offers_bf16_where_the_processor_multiplies_it_faster(registry, monkeypatch):
    rows = []
    for gain in (4.2, 0.8):
        monkeypatch.setattr(doctor, "bf16_gain", lambda gain=gain: gain)
        rows += [row for row in doctor.examine() if row["check"] == "bf16 on the CPU"]
    assert [row["ok"] for row in rows] == [True, True] and [" is faster" in row["found"] for row in rows] == [
        True,
        False,
    ]
    before = torch.get_num_threads()
    assert 0.0 < bf16_gain() < 1000.0 and torch.get_num_threads() == before


def test_doctor_shows_the_configuration_of_which_audits_demand_bits(registry, monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    (row,) = (row for row in doctor.examine() if row["check"] == "configuration")
    expected = f"{torch.backends.cpu.get_cpu_capability()}, MKL_CBWR=AVX2; "
    assert row["ok"] and row["found"].startswith(expected)
    assert re.search(r"fingerprint [0-9a-f]{16} at \d+ threads$", row["found"])


def test_doctor_is_content_here_and_not_with_a_store_it_cannot_use(registry, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(doctor, "bf16_gain", bf16_gain)
        good = registry("doctor", "--json")
    assert good.exit_code == 0 and all(row["ok"] for row in json.loads(good.stdout))
    bad = registry("doctor", "--store", "file:mlruns", "--json")
    assert bad.exit_code == 1
    assert [row["check"] for row in json.loads(bad.stdout) if not row["ok"]] == ["store"]


def test_every_command_prints_json():
    without = [
        name
        for name, command in main.commands.items()
        if "--json" not in {opt for p in command.params for opt in p.opts}
    ]
    assert without == []


@pytest.mark.parametrize("family", CATALOGS)
def test_every_member_has_a_card_to_show(registry, family):
    for name in catalog_of(family).names():
        card = json.loads(registry("info", name, "--family", family, "--json").stdout)
        assert (card["family"], card["name"]) == (family, name) and card["file"].endswith(".py")
        assert f"name: {name}\n" in registry("info", name, "--family", family).stdout


def statistics(path) -> list:
    with sqlite3.connect(path) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE name = 'sqlite_stat1'").fetchall()
        return connection.execute("SELECT tbl FROM sqlite_stat1 WHERE tbl = 'metrics'").fetchall() if names else []


def test_a_store_is_analysed_and_its_rows_are_reported(trained, workplace):
    assert not statistics(workplace / "mlflow.db")
    result = trained("optimize-store", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["rows"]["runs"] == 5 and found["rows"]["metrics"] > 100  # four runs and their study's own
    assert statistics(workplace / "mlflow.db")
    assert "runs" in trained("optimize-store").stdout


def test_a_store_that_is_not_there_is_not_made(registry, tmp_path):
    result = registry("optimize-store", "--store", f"sqlite:///{tmp_path / 'none.db'}")
    assert result.exit_code == 2 and not (tmp_path / "none.db").exists()


def damaged(database: Path) -> None:
    """Overwrite a page in the middle of the database, as a failing disk would. The header and the first tables stay whole."""
    with closing(sqlite3.connect(database)) as connection:
        (size,), (root,) = (
            connection.execute(question).fetchone()
            for question in ("PRAGMA page_size", "SELECT rootpage FROM sqlite_master WHERE name = 'metrics'")
        )
    with database.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)


def database_row(result) -> dict[str, str]:
    return next(row for row in json.loads(result.stdout) if row["check"] == "database")


@pytest.mark.parametrize("small", [2**40, 0], ids=["integrity_check", "quick_check"])
def test_doctor_finds_damaged_pages_of_a_database(trained, workplace, monkeypatch, small, request):
    monkeypatch.setattr(doctor, "SMALL", small)
    check = request.node.callspec.id
    whole = trained("doctor", "--json")
    assert whole.exit_code == 0 and database_row(whole)["state"] == "ok" and check in database_row(whole)["found"]
    damaged(workplace / "mlflow.db")
    result = trained("doctor", "--json")
    row = database_row(result)
    assert result.exit_code == 1 and row["state"] == "NOT OK"
    assert [row["check"] for row in json.loads(result.stdout) if not row["ok"]] == ["database"]
    assert ".recover" in row["found"]


def test_a_check_of_a_database_that_takes_too_long_is_broken_off_and_says_so(trained, monkeypatch):
    monkeypatch.setattr(doctor, "CHECK_SECONDS", -1.0)
    monkeypatch.setattr(doctor, "STEPS", 1)
    row = database_row(trained("doctor", "--json"))
    assert row["ok"] and "within" in row["found"]


@pytest.mark.parametrize(
    "command",
    [
        *(("show", "zzzz"), ("forget", "", "--yes"), ("info", "dfaa"), ("info", "dfa", "--family", "method")),
        ("list", "task"),
    ],
)
def test_what_is_unknown_is_refused(trained, command):
    assert trained(*command).exit_code == 2


def test_templates_are_listed_with_their_line_and_file():
    rows = {row["name"]: row for row in members("templates")}
    assert list(rows) == overridable() and "note.md.j2" not in rows
    assert all(row["line"] and Path(row["file"]).is_file() for row in rows.values())
