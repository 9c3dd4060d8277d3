"""README's figures are the recorded ones, and the recorded ones show what the study is for."""

from __future__ import annotations

import json

import pytest

from benchmarks import end_to_end
from benchmarks.overheads import MEASURING_TARGET, TRACKING_TARGET
from benchmarks.readme import BEGIN, MEASURED, RATIOS, ROOT, render
from benchmarks.step_time import FUSED, LAYER, TARGET
from benchmarks.tables import END, inserted


def test_readme_holds_the_recorded_figures():
    readme = (ROOT / "README.md").read_text()
    assert BEGIN in readme and END in readme
    assert inserted(readme, BEGIN, render(json.loads(MEASURED.read_text()))) == readme


def test_a_changed_figure_is_noticed():
    measured = json.loads(MEASURED.read_text())
    measured["seconds"]["environment"] += 100
    readme = (ROOT / "README.md").read_text()
    assert inserted(readme, BEGIN, render(measured)) != readme


@pytest.fixture
def rows():
    """what → (measured, aim) of the second table, from figures that no other row shares."""
    measured = json.loads(MEASURED.read_text())
    for index, compared in enumerate(RATIOS):
        measured["bench"]["step"]["ratio"][compared] = {"median": 0.1 + index, "low": 0.0 + index, "high": 0.2 + index}
    for index, one in enumerate(measured["bench"]["overheads"]):
        one.update(measuring_share=0.31 + index, diagnostics_share=0.21 + index, tracking_share=0.11 + index)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in render(measured).splitlines()]
    return {row[0]: tuple(row[1:]) for row in cells if len(row) == 3}


def test_every_ratio_is_shown_with_what_it_compares(rows):
    ratios = {what: found for what, found in rows.items() if what.startswith("DFA step, CIFAR-shaped, ")}
    assert list(ratios.values()) == [
        ("0.10 (0.00 to 0.20)", f"≤ {TARGET}: met"),
        ("1.10 (1.00 to 1.20)", ""),
        ("2.10 (2.00 to 2.20)", ""),
    ]
    assert list(RATIOS) == ["dfa / published", f"dfa / {LAYER}", f"dfa / {FUSED}"]
    assert [what.removeprefix("DFA step, CIFAR-shaped, ") for what in list(ratios)[1:]] == [
        f"dfa / {LAYER}: the order of the work, and a fused AdamW",
        f"dfa / {FUSED}: the order of the work alone",
    ]


def test_whole_epochs_stand_there_with_their_aim_once_they_are_recorded(monkeypatch, tmp_path):
    measured, words = json.loads(MEASURED.read_text()), next(iter(end_to_end.COMPARED))
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(end_to_end, "MEASURED", kept)
    assert words not in render(measured)
    ratio = dict.fromkeys(end_to_end.COMPARED, {"median": 6.5, "low": 6.0, "high": 7.0})
    kept.write_text(json.dumps({"seconds": {}, "ratio": ratio}), encoding="utf-8")
    assert f"| CIFAR-shaped, two cores, {words} | 6.50 (6.00 to 7.00) | ≥ 6: met |" in render(measured)


def test_the_aim_stands_at_all_of_measuring_and_its_part_has_none(rows):
    found = list(rows.items())
    for index, name in enumerate(("digits", "cifar-shaped")):
        whole = f"measuring every epoch, whole test set included, {name}, of training"
        place = list(rows).index(whole)
        assert found[place : place + 3] == [
            (whole, (f"{0.31 + index:.1%}", f"≤ {MEASURING_TARGET:.0%}: missed")),
            (f"of which diagnostics (without test accuracy), {name}", (f"{0.21 + index:.1%}", "")),
            (f"tracking, {name}, of training", (f"{0.11 + index:.1%}", f"≤ {TRACKING_TARGET:.0%}: missed")),
        ]
