"""A filled store has what a trained one has, and every command takes it for real."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import audit_again, registry_scale, scaling, store_scale
from benchmarks.audit_again import AGAIN, LOGGED, UNTAKEN, WIDTH, again_lines
from benchmarks.filled_store import TABLES, fill
from benchmarks.filled_study import PER_SEED, SEEDS, study_text
from benchmarks.recording import ROOT
from benchmarks.registry_scale import INDEX_TARGET, Scale, _judged, measure, measure_sizes
from benchmarks.store_scale import AUDIT, slope
from benchmarks.synthetic import EPOCHS, ROUND, registry, specs, wide
from benchmarks.verb_cost import Cost, Costs, cost_of
from fa_registry import jsonio
from fa_registry.cli import main
from fa_registry.metrics import DECLARED, SITE_TABLES
from fa_registry.records import RunRecord
from fa_registry.reporting.render import _index
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.text.environment import TemplateRenderer
from fa_registry.studies.study import load_study
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.writer import folder_digests

RUNS = 2 * PER_SEED
OWN = {"fa.artifacts", "fa.weights", "fa.process", "fa.study_run"}  # tags whose values no two runs share


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("filled")
    fill(folder, RUNS)
    return folder


@pytest.fixture
def call(filled, monkeypatch):
    monkeypatch.chdir(filled)

    def invoke(*arguments: str):
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    return invoke


def runs(folder: Path) -> dict[str, str]:
    """Name of every run → its id."""
    found = MlflowTracker(f"sqlite:///{folder / 'mlflow.db'}").search({schema.TAG_KIND: "run"})
    assert len(found) == len({run.name for run in found})
    return {run.name: run.run_id for run in found}


def rows(folder: Path, table: str, run_id: str) -> list[dict]:
    with sqlite3.connect(folder / "mlflow.db") as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} WHERE {TABLES[table]} = ?", (run_id,))]


def artifacts(folder: Path, run_id: str) -> Path:
    return Path(rows(folder, "runs", run_id)[0]["artifact_uri"].removeprefix("file://"))


def test_a_study_has_settings_of_25_seeds(tmp_path):
    (tmp_path / "study.toml").write_text(study_text(3 * PER_SEED * SEEDS - 10), encoding="utf-8")
    study = load_study(str(tmp_path / "study.toml"))
    assert [len(specs) for specs in study.settings.values()] == [125, 125, 115]


@pytest.mark.long
def test_there_is_nothing_left_to_train(call):
    result = call("study", "study.toml", "--device", "cpu")
    assert result.exit_code == 0 and f"all {RUNS} runs are complete" in result.stderr


@pytest.mark.long
def test_an_audit_takes_every_run_and_finds_it_intact(call, filled, tmp_path, monkeypatch):
    store = shutil.copy(filled / "mlflow.db", tmp_path)  # so that what an audit writes is in no other test's store
    (tmp_path / "mlartifacts").symlink_to(filled / "mlartifacts")
    monkeypatch.setenv("FA_REGISTRY_ARTIFACTS", str(filled))
    asked = ("--study", "study.toml", "--device", "cpu", "--trust-logged", "--exit-zero", "--out", str(tmp_path))
    result = call("audit", *asked, "--store", f"sqlite:///{store}")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert len(report["runs"]) == RUNS and not report["excluded"]


@pytest.mark.long
def test_a_copy_is_a_run_of_its_own_and_leaves_the_one_it_was_made_from_alone(filled):
    names = runs(filled)
    assert len(names) == RUNS
    folders = {name: artifacts(filled, run_id) for name, run_id in names.items()}
    seeds = {json.loads((folder / schema.SPEC).read_text())["seed"] for folder in folders.values()}
    assert seeds == {0, 1} and len(set(folders.values())) == RUNS
    for folder in folders.values():
        provenance = json.loads((folder / schema.PROVENANCE).read_text())
        found = {name: digest for name, digest in folder_digests(folder).items() if name in provenance["digests"]}
        assert found == provenance["digests"]


@pytest.mark.long
def test_a_copy_has_what_a_trained_run_of_its_specification_has(filled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(filled / "study.toml", tmp_path)
    trained = CliRunner().invoke(main, ["study", "study.toml", "--device", "cpu", "--jobs", "1", "--seeds", "1"])
    assert trained.exit_code == 0, trained.output
    copies, real = runs(filled), runs(tmp_path)
    assert len(real) == PER_SEED
    for name, run_id in real.items():
        assert described(filled, copies[name]) == described(tmp_path, run_id), name


def described(folder: Path, run_id: str) -> dict:
    """All that is stored of a run, with the values that do not come from training or belong to one run alone."""
    files = artifacts(folder, run_id)
    tags = {row["key"]: "" if row["key"] in OWN else row["value"] for row in rows(folder, "tags", run_id)}
    return {
        "status": rows(folder, "runs", run_id)[0]["status"],
        "tags": tags,
        "params": {row["key"]: row["value"] for row in rows(folder, "params", run_id)},
        "metrics": sorted((row["key"], row["step"]) for row in rows(folder, "metrics", run_id)),
        "latest": sorted((row["key"], row["step"]) for row in rows(folder, "latest_metrics", run_id)),
        "data sets": [row["source_type"] for row in rows(folder, "inputs", run_id)],
        "files": set(folder_digests(files)) - {*schema.ADDED_BY_AUDITS},
        "specification": (files / schema.SPEC).read_text(encoding="utf-8"),
    }


def made(runs: int, wall: float) -> Costs:
    return Costs(runs, dict.fromkeys(audit_again.VERBS, Cost(90.0, wall, 500.0)))


def test_the_study_is_the_given_number_of_runs_of_one_epoch_on_the_digits_study_s_network(tmp_path):
    (tmp_path / "study.toml").write_text(study_text(audit_again.RUNS, epochs=1, width=WIDTH), encoding="utf-8")
    study = load_study(str(tmp_path / "study.toml"))
    assert len(study.specs) == audit_again.RUNS and {spec.epochs for spec in study.specs} == {1}
    assert {spec.architecture_options["d_hidden"] for spec in study.specs} == {256}


@pytest.mark.parametrize("command", audit_again.VERBS.values(), ids=audit_again.VERBS)
def test_every_command_takes_the_options_it_is_given(command):
    assert CliRunner().invoke(main, [*command, "--help"]).exit_code == 0


def test_one_audit_measures_again_and_the_other_does_not():
    assert "--trust-logged" in audit_again.VERBS[LOGGED] and "--trust-logged" not in audit_again.VERBS[AGAIN]


@pytest.mark.parametrize(("wall", "text"), [(59.9, "met (59.9 s)"), (60.1, "MISSED (60.1 s)")])
def test_the_aim_is_reported_met_or_missed(wall, text):
    assert again_lines(made(audit_again.RUNS, wall))[-1].endswith(text)


def test_fewer_runs_meet_no_aim_in_time():
    assert "by the clock: " not in "\n".join(again_lines(made(10, 1.0)))


@pytest.mark.parametrize(("cpu", "met"), [(129.9, True), (130.1, False)])
def test_what_taking_steps_again_may_cost(cpu, met):
    costs = dict.fromkeys(audit_again.VERBS, Cost(100.0, 1.0, 500.0)) | {AGAIN: Cost(cpu, 1.0, 500.0)}
    assert [aim[2] for aim in audit_again.targets(Costs(15, costs))] == [met]
    del costs[UNTAKEN]  # a record of before
    assert audit_again.targets(Costs(15, costs)) == []


MADE = Scale(
    records=125,
    settings=17,
    forms=25,
    judging=0.5,
    rendering=3.0,
    cpu=3.0,
    peak=200.0,
    index_bytes=900_000,
    bytes_written=8_000_000,
)


def test_a_round_is_125_runs_of_ten_methods_in_17_settings():
    found = list(islice(specs(), ROUND))
    assert len({spec.identity for spec in found}) == len(found) == 125
    assert len({spec.setting.identity for spec in found}) == 17
    assert len({(spec.method_label) for spec in found}) == 10
    assert len({spec.identity for spec in islice(specs(), 3 * ROUND)}) == 3 * ROUND


def test_the_same_seed_makes_the_same_runs_and_they_are_real_records():
    first, again = list(registry(3)), list(registry(3))
    assert first == again != list(registry(3, seed=1))
    assert jsonio.decode(RunRecord, jsonio.encode(first[0])) == first[0]
    assert {len(row) for row in first[0].trajectory.values()} == {EPOCHS + 1}
    assert len(first[0].trajectory) == 13


def test_a_run_has_every_quantity_a_form_knows():
    known = DECLARED
    shown = {name for _, names in SITE_TABLES for name in names if not known[name].valued}
    assert shown <= set(next(registry(1)).measurements.sites)


@pytest.mark.long
def test_an_audit_of_125_runs_in_17_settings_is_a_page_of_less_than_a_megabyte():
    found = measure(ROUND)
    assert (found.records, found.settings, found.forms) == (125, 17, 25)
    assert 500_000 < found.index_bytes <= INDEX_TARGET < found.bytes_written
    assert found.cpu > 0 and found.peak > 1


def test_120_runs_of_one_setting_show_their_figures_on_a_page_of_less_than_a_megabyte():
    report = _judged(list(wide()))
    sources = Sources.of(report)
    assert len(report.runs) == 120 and len({run.record.setting for run in report.runs}) == 1
    page, _ = _index(sources, TemplateRenderer())
    assert 600_000 < len(page.encode()) <= INDEX_TARGET
    figures = page[page.index('id="figures"') : page.index('id="findings"')]
    assert (
        figures.count("<img ") == 7
        and "No setting's figures fit" not in figures
        and "Only the figures of the first" not in figures
    )


@pytest.mark.long
def test_each_size_has_a_process_of_its_own():
    (found,) = measure_sizes([3])
    assert found.records == 3 and found.milliseconds_a_record > 0


def test_every_target_is_reported_met_or_missed():
    text = "\n".join(registry_scale.scale_lines([MADE, dataclasses.replace(MADE, records=250, cpu=7.0)]))
    assert "125 runs, 17 settings, 25 forms: 24.00 ms of CPU a record" in text
    assert text.count(": met (") == 4 and "MISSED" not in text and "time a record, 250 / 125, ≤ 1.2: met (1.17)" in text


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"cpu": 5.1}, "125 runs ≤ 5 s of CPU: MISSED (5.1 s)"),
        ({"index_bytes": 1_000_001}, "index of 125 runs ≤ 1,000,000 bytes: MISSED (1,000,001)"),
        ({"peak": 1025.0}, "peak memory ≤ 1024 MiB: MISSED (1025 MiB)"),
    ],
)
def test_a_missed_target_is_reported(change, line):
    assert line in "\n".join(registry_scale.scale_lines([dataclasses.replace(MADE, **change)]))
    slow = dataclasses.replace(MADE, records=250, cpu=7.5)
    assert "≤ 1.2: MISSED (1.25)" in "\n".join(registry_scale.scale_lines([MADE, slow]))


def test_the_first_size_is_the_one_the_targets_are_about():
    assert registry_scale.SIZES[0] == ROUND and list(registry_scale.SIZES) == sorted(registry_scale.SIZES)


def costs_of(runs: int, cpu: float, wall: float = 1.0, peak: float = 100.0) -> Costs:
    return Costs(runs, dict.fromkeys(store_scale.VERBS, Cost(cpu, wall, peak)))


def test_what_a_whole_command_costs_is_counted(tmp_path):
    found = cost_of(["--version"], tmp_path)
    assert found.cpu > 0.01 and found.wall > 0.01 and 5 < found.peak < 4096
    with pytest.raises(SystemExit, match="fa-registry nothing: exit 2"):
        cost_of(["nothing"], tmp_path)


ORPHAN = """
import subprocess, sys
from unittest.mock import patch
from benchmarks import verb_cost
burn = "import time\\nwhile time.process_time() < 0.5: pass"
leaves = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
with patch.object(subprocess, "call", lambda *given, **named: subprocess.run([sys.executable, "-c", leaves]).returncode):
    verb_cost.main([])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="another system has no parent for orphans")
def test_what_a_command_leaves_at_work_is_counted():
    """The process that Python starts workers from ends after the command, and is no child of the caller."""
    printed = subprocess.run(
        [sys.executable, "-c", ORPHAN], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert json.loads(printed)["cpu"] > 0.5


@pytest.mark.parametrize("command", store_scale.VERBS.values(), ids=lambda command: command[0])
def test_every_command_takes_the_options_that_a_store_is_measured_with(command):
    """By its --help, which click prints only where all before it can be read."""
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output


def test_a_further_run_costs_the_slope_from_the_smallest_to_the_largest_store():
    found = [costs_of(100, 10.0), costs_of(300, 10.0), costs_of(1100, 60.0)]
    assert slope(found, AUDIT) == pytest.approx(0.05)
    assert slope(found[:1], AUDIT) is None
    assert "50.0 ms" in "\n".join(store_scale.scale_lines(found))


@pytest.mark.parametrize(("wall", "text"), [(4.9, "met (4.9 s)"), (5.1, "MISSED (5.1 s)")])
def test_the_aim_of_the_smallest_store_is_by_the_clock(wall, text):
    lines = store_scale.scale_lines([costs_of(store_scale.SIZES[0], 30.0, wall)])
    assert [line.rpartition(": ")[2] for line in lines if "target" in line] == [text]
    assert not store_scale.targets([costs_of(7, 30.0, wall)])


@pytest.mark.parametrize(("cpu", "met"), [(590.0, True), (610.0, False)])
def test_an_audit_is_linear_where_a_run_of_the_largest_store_costs_no_more_than_one_of_the_store_before(cpu, met):
    what, value, judged = store_scale.targets([costs_of(2000, 100.0), costs_of(10000, cpu)])[0]
    assert what.endswith("CPU a logged run, 10,000 / 2,000, ≤ 1.2") and judged == met and value == f"{cpu / 500:.2f}"


@pytest.mark.parametrize(("peak", "met"), [(1279.0, True), (1281.0, False)])
def test_the_memory_of_the_largest_audit_is_compared_with_its_aim(peak, met):
    aim, value, judged = store_scale.targets([costs_of(2000, 1.0, peak=600.0), costs_of(10000, 5.0, peak=peak)])[-1]
    assert aim == "peak memory of the audit of 10,000 logged runs ≤ 1,280 MiB" and judged == met
    assert value == f"{peak:,.0f} MiB"


def test_the_memory_of_a_further_run_is_that_of_many():
    sizes = [costs_of(125, 1.0, peak=500.0), costs_of(2000, 40.0, peak=600.0), costs_of(10000, 198.5, peak=680.0)]
    kept = {"sizes": [{"runs": one.runs, "costs": {AUDIT: vars(one.costs[AUDIT])}} for one in sizes]}
    assert scaling.audit_slope(kept) == (pytest.approx(0.02), pytest.approx(580.0), pytest.approx(0.01))


def test_what_was_kept_is_what_was_found():
    found = costs_of(125, 3.0)
    kept = json.loads(json.dumps({"runs": 125, "costs": {text: vars(cost) for text, cost in found.costs.items()}}))
    assert Costs.of(kept) == found
