"""`python -m benchmarks` measures each thing once, and says whether it took as long as it may."""

from __future__ import annotations

import importlib
import json

import pytest

from benchmarks.limit import Limit
from benchmarks.step_time import StepTimes
from benchmarks.timing import Spread

bench = importlib.import_module("benchmarks.__main__")
SPREAD = Spread(0.5, 0.4, 0.6)
STEPS = StepTimes({"dfa": 20.0}, {"dfa / published": SPREAD}, Limit(1, 1.0, 1, 1.0, 1.0, SPREAD, 1.0, 1.0, SPREAD))


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
    assert {"step", "overheads"} < set(found) and "end_to_end" not in found and not made


def test_all_is_measured_and_said_unless_told_otherwise(made, capsys):
    bench.main([])
    text = capsys.readouterr().out
    assert made == ["two cores"] and "\nepochs\n" in text and "one thread, in CPU seconds" in text
    assert text.rstrip().endswith("target ≤ 300 s: met")


@pytest.mark.parametrize(("seconds", "said"), [(299.0, "met"), (301.0, "MISSED")])
def test_taking_too_long_is_said(seconds, said):
    assert bench.took(seconds) == f"{seconds:.0f} s by the clock, target ≤ 300 s: {said}"
