"""What is kept says when and on what it was measured; one command records every figure of a processor."""

from __future__ import annotations

import argparse
import importlib
import json
import re
from pathlib import Path
from string import Formatter
from types import ModuleType
from typing import Any

import pytest
import torch

from benchmarks import (
    architectures,
    calibration,
    departures,
    differences,
    end_to_end,
    performance,
    precision,
    readme,
    record,
    step_time,
    store_scale,
    toy_lq,
)
from benchmarks import methods as methods_pages
from benchmarks.calibration import OURS, class_of
from benchmarks.differences import SECTIONS, effect
from benchmarks.limit import Limit
from benchmarks.readme import ROOT
from benchmarks.recording import FOLDER, add_options, processor, recorded, recorded_elsewhere, stamp, tell, where
from benchmarks.step_time import ShapeTimes, StepTimes
from benchmarks.tables import END, inserted, over_seeds, row
from benchmarks.timing import Spread
from fa_registry import methods
from fa_registry.protocol.grouping import Group
from fa_registry.protocol.rules import load_edition
from fa_registry.records import Reading, RunAudit, Verdict
from fa_registry.training.measuring import measure
from tests.builders import measurements
from tests.builders import record as a_record


def test_what_is_reported_is_kept_only_where_asked(tmp_path, capsys):
    path, parser = tmp_path / "found.json", argparse.ArgumentParser()
    add_options(parser, path)
    tell({"value": 3}, ["a line"], parser.parse_args([]), path)
    assert capsys.readouterr().out == "a line\n" and recorded(path) is None
    tell({"value": 3}, ["a line"], parser.parse_args(["--record", "--json"]), path)
    kept = recorded(path)
    assert kept == json.loads(capsys.readouterr().out) and kept["value"] == 3
    assert kept["date"] in where(kept, "benchmarks.x") and "torch 2" in where(kept, "benchmarks.x")


def test_a_note_is_kept_and_shown(tmp_path):
    path, parser = tmp_path / "found.json", argparse.ArgumentParser()
    add_options(parser, path)
    tell({}, [], parser.parse_args(["--record", "--note", "Another job ran."]), path)
    assert where(recorded(path), "benchmarks.x").startswith("Another job ran.\n")


def test_a_record_of_another_processor_is_reported_with_both(tmp_path, capsys, made, monkeypatch):
    keep(monkeypatch, tmp_path, step_time, stamp())
    assert torch.backends.cpu.get_cpu_capability() in processor() and recorded_elsewhere(tmp_path) == []
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(OTHER), encoding="utf-8")
    (warning,) = recorded_elsewhere(tmp_path)
    assert "another machine" in warning and processor() in warning and "(one.json, two.json)" in warning
    monkeypatch.setattr(bench, "recorded_elsewhere", lambda: [warning])
    bench.main(["--json", "--one-thread"])
    assert warning in capsys.readouterr().err


def test_one_command_records_every_figure_of_a_processor():
    modules = {name: importlib.import_module(name) for name, *_ in record.COMMANDS}
    kept = {modules[name].MEASURED.name for name, *options in record.COMMANDS if options == ["--record"]}
    assert kept == {
        "first_light.json",
        "step_time.json",
        "end_to_end.json",
        "operations.json",
        "audit_again.json",
        "registry_scale.json",
        "store_scale.json",
        "start_up.json",
    }
    assert all(modules[name].MEASURED.parent == FOLDER for name, *options in record.COMMANDS if options)
    assert record.COMMANDS[-1] == ("benchmarks.performance",)


def test_readme_holds_the_recorded_figures():
    page = (ROOT / "README.md").read_text()
    assert readme.BEGIN in page and END in page
    assert inserted(page, readme.BEGIN, readme.render(json.loads(readme.MEASURED.read_text()))) == page


def test_a_changed_figure_is_noticed():
    measured = json.loads(readme.MEASURED.read_text())
    measured["seconds"]["environment"] += 100
    page = (ROOT / "README.md").read_text()
    assert inserted(page, readme.BEGIN, readme.render(measured)) != page


def cells(page: str) -> dict[str, tuple[str, ...]]:
    """First cell of each table row → the other cells."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return {row[0]: tuple(row[1:]) for row in rows}


OTHER = {"machine": "another machine", "date": "2026-01-02"}


def test_the_figures_that_a_user_decides_by_are_the_recorded_ones(monkeypatch, tmp_path):
    measured = json.loads(readme.MEASURED.read_text())
    measured["seconds"] |= {"environment": 1101, "study, audit and report": 1102}
    for index, share in enumerate(measured["bench"]["overheads"]):
        share.update(measuring_share=0.31 + index, tracking_share=0.11 + index)
    keep(monkeypatch, tmp_path, end_to_end, {"seconds": {}, "ratio": {end_to_end.THROUGHPUT: spread(6.5)}} | OTHER)
    costs = {store_scale.AUDIT: {"cpu": 7.0, "wall": 1103.0, "peak": 1.0}}
    keep(monkeypatch, tmp_path, store_scale, {"sizes": [{"runs": 125, "costs": costs}]} | OTHER)
    rows = list(cells(readme.render(measured)).values())[-5:]
    assert [row[1] for row in rows if "another machine" in row[1]] == [
        "`benchmarks.end_to_end`, another machine, 2026-01-02",
        "`benchmarks.store_scale`, another machine, 2026-01-02",
    ]
    assert [row[0] for row in rows] == [
        "1101 s",
        "1102 s",
        "6.5 (6.0 to 7.0) × the runs an hour",
        "242.0% of training",
        "1103 s",
    ]


def test_what_is_not_recorded_yet_has_no_row(monkeypatch, tmp_path):
    monkeypatch.setattr(end_to_end, "MEASURED", tmp_path / "none")
    monkeypatch.setattr(store_scale, "MEASURED", tmp_path / "none")
    page = readme.render(json.loads(readme.MEASURED.read_text()))
    assert "published loop" not in page and "logged runs" not in page and "digits: environment" in page


def test_every_aim_is_shown_next_to_what_was_measured(monkeypatch, tmp_path):
    measured = json.loads(readme.MEASURED.read_text())
    measured["seconds"] = {name: 2 * most for name, most in readme.SECONDS.items()} | {"environment": 1.0}
    steps = recorded(step_time.MEASURED)
    steps["shapes"] = {
        "digits": steps["shapes"][step_time.DIGITS]
        | {"ratio": {"dfa / fair loop": spread(0.6), "dfa / published": spread(0.6)}}
    }
    keep(monkeypatch, tmp_path, step_time, steps)
    for index, share in enumerate(measured["bench"]["overheads"]):
        share.update(measuring_share=0.31 + index, diagnostics_share=0.21 + index, tracking_share=0.01 + index)
    keep(monkeypatch, tmp_path, readme, measured)
    rows = cells(performance.render())
    assert rows["environment"] == ("1 s", "≤ 240 s: met")
    assert rows["study, audit and report"] == ("360 s", "≤ 180 s: missed")
    assert rows["digits: dfa / fair loop"] == ("0.6", "0.1", "1.1", "≤ 0.9: met")
    assert rows["digits: dfa / published"] == ("0.6", "0.1", "1.1", "≤ 0.5: missed")
    assert rows["digits"] == ("31.0% (≤ 8%: missed)", "21.0%", "1.0% (≤ 3%: met)")
    assert rows["cifar-shaped"] == ("131.0% (≤ 2%: missed)", "121.0%", "101.0% (≤ 3%: missed)")


def keep(monkeypatch: pytest.MonkeyPatch, folder: Path, module: ModuleType, kept: object) -> None:
    """Let a benchmark's record be these figures."""
    place = folder / f"{module.__name__}.json"
    place.write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(module, "MEASURED", place)


def spread(median: float) -> dict[str, float]:
    return {"median": median, "low": median - 0.5, "high": median + 0.5}


ROWS = [row for rows in SECTIONS.values() for row in rows]
KEPT = json.loads(differences.MEASURED.read_text(encoding="utf-8"))


def asked(row) -> set[str]:
    """The figures that a row's sentence shows."""
    return {name for _, name, _, _ in Formatter().parse(row.effect) if name}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.point)
def test_an_effect_is_measured_or_says_why_not(row):
    if not row.figures:
        assert row.effect.startswith("N/A: ")
        return
    assert asked(row) and not re.search(r"\d\.\d|\de-\d", row.effect)  # no figure is typed in
    assert effect(row, KEPT) != row.effect


def test_every_figure_that_was_measured_is_shown():
    shown = {(row.figures, name) for row in ROWS for name in asked(row)}
    kept = {(name, figure) for name, figures in KEPT["figures"].items() for figure in figures}
    assert shown == kept


def test_a_card_that_changes_is_noticed(monkeypatch):
    fa = methods.CATALOG.get("fa")
    assert differences.render(KEPT) in differences.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(fa, "card", departures.changed(fa, credit_scale="sum").card)
    assert differences.render(KEPT) not in differences.PAGE.read_text(encoding="utf-8")


def test_a_skip_added_twice_is_another_network():
    found = departures.skip_added_twice()
    assert found["growth_wrong"] > 2 * found["growth"] and found["cosine"] < 0.95


def test_a_row_for_maps_does_not_fit_tokens():
    assert departures.expanded_to_tokens() == {"error": "RuntimeError"}


def test_averaged_gradients_are_as_many_times_smaller_as_there_are_positions():
    assert departures.one_vector_of_a_map()["positions"] == pytest.approx(12 * 12, rel=1e-5)


def test_the_sum_does_not_know_the_batch_and_the_mean_does():
    found = departures.reduction(departures.task_of("bp"))
    assert found["by_sum"] == pytest.approx(1, rel=1e-5)
    assert found["by_mean"] == pytest.approx(found["large"] / found["small"], rel=1e-5)


def test_a_walk_without_skips_is_another_network():
    """Its mean cosine with the skips is that of the registry: the published walk is what differs."""
    task = departures.task_of("fa")
    found = departures.without_skips(task)
    assert found["right"] == pytest.approx(measure(task).scalars["gamma_block_input_mean"].value, abs=1e-6)
    assert found["cosine"] < 0.9 and abs(found["norms"] - 1) > 0.1


CALIBRATED: list[dict[str, Any]] = json.loads(calibration.MEASURED.read_text(encoding="utf-8"))["rows"]
STREAM = {"residual": True, "terminal_ln": True}


def ends(quantity: str, kind: str) -> tuple[float, float]:
    values = [value for row in CALIBRATED if row["class"] == kind for value in row[quantity]]
    return min(values), max(values)


def threshold(rule: str, quantity: str) -> float:
    conditions = next(one for one in load_edition(OURS).rules if one.code == rule).conditions
    return next(condition.threshold for condition in conditions if condition.quantity == quantity)


def test_the_page_is_rendered_from_what_was_measured():
    page = calibration.PAGE.read_text(encoding="utf-8")
    assert (
        inserted(
            page, calibration.BEGIN, calibration.render(json.loads(calibration.MEASURED.read_text(encoding="utf-8")))
        )
        == page
    )


def test_the_gain_threshold_lies_between_the_exploding_and_the_healthy_runs():
    assert ends("gain", "exploding")[1] < threshold("D2", "gain") < ends("gain", "healthy")[0]


def test_the_norm_alone_does_not_separate_them():
    assert ends("g_norm_mean_ce", "healthy")[0] < ends("g_norm_mean_ce", "exploding")[1]


def test_growth_separates_the_classes_and_no_healthy_run_reaches_its_limit():
    assert ends("growth", "healthy")[1] < ends("growth", "exploding")[0]
    assert ends("growth", "healthy")[1] < threshold("D1", "growth")


def test_no_run_of_either_class_is_numerical_noise():
    allowed = 1 - threshold("D2", "fidelity")
    assert max(ends("fidelity", "healthy")[1], ends("fidelity", "exploding")[1]) < allowed


def test_backprop_fitted_to_the_end_fails_the_published_floor_and_is_converged_by_ours():
    fitted = [row for row in CALIBRATED if row["method"] == "bp" and row["state"] == "CONVERGED"]
    assert fitted and all(row["g_norm_mean_ce"][0] < 1e-7 and "D2" in row["verdicts"]["2026-05"] for row in fitted)
    assert all("D2" not in row["verdicts"][OURS] for row in fitted)


def test_an_exploded_network_has_a_tiny_but_exact_reference():
    tiny = [row for row in CALIBRATED if row["state"] == "AT FLOOR"]
    assert tiny and all(row["growth"][0] > 50 and row["fidelity"][1] < 1e-6 for row in tiny)


def test_a_run_is_classed_by_what_it_is_not_by_what_it_showed():
    assert class_of("bp", 0.1, {"residual": False, "terminal_ln": True}) == "healthy"
    assert class_of("dfa", 0.0, STREAM) == "exploding"
    assert class_of("dfa", 0.01, STREAM) == class_of("fa", 0.0, {**STREAM, "residual": False}) == ""


PASS = Verdict("pass", "PASS")


def test_a_missing_seed_is_counted_and_never_left_out_in_silence():
    assert over_seeds([Reading(1.0), Reading(3.0)], ".1f") == "2.0"
    assert over_seeds([Reading(1.0), Reading(None, "noise"), Reading(3.0)], ".1f") == "2.0 (2 of 3 seeds)"


def test_where_no_seed_has_it_each_reason_is_given_once():
    missing = [Reading(None, "exact"), Reading(None, "noise"), Reading(None, "exact")]
    assert over_seeds(missing, ".1f") == "n/a: exact; noise"


def test_the_interval_is_of_the_seeds_and_one_seed_has_none():
    assert over_seeds([Reading(1.0), Reading(3.0)], ".1f", interval=True) == "2.0 [-10.7, 14.7]"  # t(1) = 12.706
    assert over_seeds([Reading(1.0)], ".1f", interval=True) == "1.0"


def test_a_run_without_a_gradient_has_a_row_too():
    measured = measurements(g_norm=None)
    measured.scalars["gamma_deep_mean"] = Reading(0.25)
    group = Group("dfa", "tiny", False, (RunAudit(a_record("a", measured), (), PASS),), PASS)
    assert row(group) == ["dfa", "0.900", "2", "n/a: not measured", "0.250", "PASS"]


PAGES = [architectures, differences, methods_pages, precision, toy_lq]
DIGIT = re.compile(r"(?<=\d\.\d)\d")


@pytest.fixture(params=PAGES, ids=lambda module: module.__name__.rpartition(".")[2])
def recorder(request):
    return request.param


def page(recorder, measured) -> str:
    """The page as the recorder would write it from these measurements."""
    return inserted(recorder.PAGE.read_text(encoding="utf-8"), recorder.BEGIN, recorder.render(measured))


def test_the_page_holds_the_recorded_figures(recorder):
    recorded = json.loads(recorder.MEASURED.read_text(encoding="utf-8"))
    assert page(recorder, recorded) == recorder.PAGE.read_text(encoding="utf-8")


def test_a_figure_that_a_page_does_not_hold_is_noticed(recorder):
    """Every decimal of the record turned into another."""
    text = recorder.MEASURED.read_text(encoding="utf-8")
    changed = json.loads(DIGIT.sub(lambda found: str((int(found[0]) + 5) % 10), text))
    assert page(recorder, changed) != recorder.PAGE.read_text(encoding="utf-8")


bench = importlib.import_module("benchmarks.__main__")
SPREAD = Spread(0.5, 0.4, 0.6)
STEPS = StepTimes(
    {"digits": ShapeTimes({"dfa": 20.0}, "fair", {"dfa / published": SPREAD})},
    Limit(1, 1.0, 1, 1.0, 1.0, SPREAD, 1.0, 1.0, SPREAD),
)


@pytest.fixture
def made(monkeypatch):
    """No second of measuring; the names of what takes two cores, as far as it was asked for."""
    asked: list[str] = []
    monkeypatch.setattr(bench, "measure_steps", lambda: STEPS)
    monkeypatch.setattr(bench, "measure_overheads", list)
    monkeypatch.setattr(bench, "two_cores", lambda: asked.append("two cores") or ({"end_to_end": {}}, [["epochs"]]))
    return asked


def test_what_has_a_record_of_its_own_is_not_measured_for_readme(made, capsys):
    bench.main(["--json", "--one-thread"])
    found = json.loads(capsys.readouterr().out)
    assert "overheads" in found and not {"step", "end_to_end"} & set(found) and not made


def test_all_is_measured_and_reported_by_default(made, capsys):
    bench.main([])
    text = capsys.readouterr().out
    assert (
        made == ["two cores"]
        and "\nepochs\n" in text
        and "one thread, in CPU seconds" in text
        and "step: digits" in text
    )
    assert text.rstrip().endswith("target ≤ 300 s: met")


@pytest.mark.parametrize(("seconds", "expected"), [(299.0, "met"), (301.0, "MISSED")])
def test_taking_too_long_is_reported(seconds, expected):
    assert bench.took(seconds) == f"{seconds:.0f} s by the clock, target ≤ 300 s: {expected}"
