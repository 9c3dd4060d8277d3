"""docs/performance.md holds what was recorded, and says so of a GPU where nothing was."""

from __future__ import annotations

import json

from benchmarks import gpu, performance, store_scale


def test_the_page_holds_the_recorded_figures():
    assert performance.PAGE.read_text(encoding="utf-8") == performance.render()


def test_a_changed_figure_is_noticed(monkeypatch, tmp_path):
    measured = json.loads(store_scale.MEASURED.read_text(encoding="utf-8"))
    measured["sizes"][0]["seconds"]["optimize"] += 100
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(measured), encoding="utf-8")
    monkeypatch.setattr(store_scale, "MEASURED", changed)
    assert performance.PAGE.read_text(encoding="utf-8") != performance.render()


def test_without_a_gpu_nothing_is_claimed_of_one(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "MEASURED", tmp_path / "none.json")
    section = performance.render().partition("## On a GPU")[2].partition("## Where")[0]
    assert "Not measured yet" in section and "aim ≤" not in section
