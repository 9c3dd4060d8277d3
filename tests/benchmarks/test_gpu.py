"""`make bench-gpu` in small on a CPU: every line of it runs, and a part that ends early keeps what it found."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from benchmarks import gpu
from benchmarks.recording import ROOT, recorded
from fa_registry import methods

# What a machine that was lent for ten minutes may lack.
WITHOUT = """
import runpy, sys
for missing in ("mlflow", "pydantic", "pydantic_core"):
    sys.modules[missing] = None
sys.argv = ["gpu", "--device", "cpu", "--dry", "--part", "tokens", "--to", sys.argv[1]]
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""


def test_all_parts_take_ten_minutes_at_most():
    assert sum(limit for _, limit in gpu.PARTS.values()) <= 600


@pytest.mark.long
@pytest.mark.parametrize("name", gpu.PARTS)
def test_every_part_runs_in_small(name, tmp_path):
    part = gpu.measured_part(name, "cpu", True, 600)
    assert part["state"] == "done" or (part["state"], name) == ("skipped", "fashion"), part["amiss"]
    found = part["found"]
    if name in ("digits", "tokens"):
        assert [*found] == [f"{method}, {way}" for method in ("bp", "fa", "dfa") for way in gpu.WAYS]
        assert all(run["status"] == "complete" and not run["failures"] for run in found.values())
    if name == "steps":
        assert {*found} == {one for one in methods.CATALOG.names() if methods.CATALOG.get(one).card.supports("resmlp")}
    if name == "GPU tests" and not torch.cuda.is_available():
        assert found["tests"] == found["skipped"] > 0 and not found["failed"]


@pytest.mark.long
def test_training_parts_need_neither_mlflow_nor_pydantic(tmp_path):
    path = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(path.read_text(encoding="utf-8"))) == 6


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """Parts that are a line of Python each, run as measured_part runs its own."""
    works = {
        "well": "part.keep('runs', 3)",
        "slow": "part.keep('runs', 1); __import__('time').sleep(60)",
        "broken": "part.keep('runs', 2); raise RuntimeError('the card is gone')",
        "absent": "raise gpu.Skipped('no files')",
    }
    script = (
        "import sys, pathlib\nfrom benchmarks import gpu\n"
        f"gpu.PARTS = {{name: (lambda part, work=work: exec(work, {{'part': part, 'gpu': gpu}}), 9) for name, work in {works}.items()}}\n"
        "sys.exit(gpu.main(sys.argv[1:]))"
    )
    genuine = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **named: genuine([sys.executable, "-c", script, *command[3:]], **named)
    )
    monkeypatch.setattr(gpu, "PARTS", {name: (None, 60) for name in works})
    return [*works]


@pytest.mark.long
def test_the_file_is_written_after_every_part_and_says_what_failed(parts, monkeypatch, tmp_path):
    path, kept = tmp_path / "gpu.json", []
    monkeypatch.setitem(gpu.PARTS, "slow", (None, 2))
    monkeypatch.setattr(gpu, "DRY_LIMIT", 6)
    genuine = gpu.keep
    monkeypatch.setattr(gpu, "keep", lambda *given, **named: kept.append(genuine(*given, **named)["parts"].copy()))
    assert gpu.main(["--device", "cpu", "--dry", "--to", str(path), "--parts", *parts]) == 1
    assert [[*one] for one in kept] == [parts[: count + 1] for count in range(4)]
    found = recorded(path)["parts"]
    assert [found[name]["state"] for name in parts] == ["done", "timed out", "failed", "skipped"]
    assert [found[name]["found"].get("runs") for name in parts] == [3, 1, 2, None]
    assert found["broken"]["amiss"] == "RuntimeError: the card is gone" and found["absent"]["amiss"] == "no files"
    assert [line for line in gpu.gpu_lines(recorded(path)) if line.startswith("broken: failed")]


def test_a_dry_run_never_replaces_what_was_measured(capsys):
    for wrong in (["--device", "cpu"], ["--device", "cpu", "--dry"]):
        with pytest.raises(SystemExit):
            gpu.main(wrong)
