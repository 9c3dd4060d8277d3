"""README's figures are the recorded ones, and the recorded ones show what the study is for."""

from __future__ import annotations

import json

from benchmarks.readme import BEGIN, END, MEASURED, ROOT, inserted, render


def test_readme_holds_the_recorded_figures():
    readme = (ROOT / "README.md").read_text()
    assert BEGIN in readme and END in readme
    assert inserted(readme, render(json.loads(MEASURED.read_text()))) == readme


def test_a_changed_figure_is_noticed():
    measured = json.loads(MEASURED.read_text())
    measured["seconds"]["environment"] += 100
    readme = (ROOT / "README.md").read_text()
    assert inserted(readme, render(measured)) != readme
