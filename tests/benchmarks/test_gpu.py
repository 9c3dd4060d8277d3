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


# Stands in for the process of a part: what it writes, prints and ends with.
PARTS = {
    "well": "keep(3)",
    "slow": "keep(1); time.sleep(1000)",
    "broken": "keep(2); raise RuntimeError('the card is gone')",
    "absent": f"print('no files'); sys.exit({gpu.SKIPPED})",
}
CHILD = """
import pathlib, sys, time
path = pathlib.Path(sys.argv[sys.argv.index("--to") + 1])
keep = lambda count: path.write_text('{"runs": %d}' % count)
"""


def test_the_file_is_written_after_every_part_and_says_what_failed(monkeypatch, tmp_path):
    kept, popen, keep = [], subprocess.Popen, gpu.keep

    def start(command, **named):
        work = PARTS[command[command.index("--part") + 1]]
        return popen([sys.executable, "-c", CHILD + work, *command[3:]], **named)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(gpu, "PARTS", {name: (None, 5 if name == "slow" else 60) for name in PARTS})
    monkeypatch.setattr(gpu, "DRY_LIMIT", 1)
    monkeypatch.setattr(gpu, "keep", lambda *given, **named: kept.append([*keep(*given, **named)["parts"]]))
    path = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--dry", "--to", str(path), "--parts", *PARTS]) == 1
    assert kept == [[*PARTS][: count + 1] for count in range(4)]
    found = recorded(path)["parts"]
    assert [found[name]["state"] for name in PARTS] == ["done", "timed out", "failed", "skipped"]
    assert [found[name]["found"].get("runs") for name in PARTS] == [3, 1, 2, None]
    assert found["broken"]["amiss"] == "RuntimeError: the card is gone" and found["absent"]["amiss"] == "no files"
    assert [line for line in gpu.gpu_lines(recorded(path)) if line.startswith("broken: failed")]


def test_a_part_without_its_data_is_skipped_with_the_reason(monkeypatch, tmp_path, capsys):
    def work(part):
        raise gpu.Skipped("no files")

    monkeypatch.setattr(gpu, "PARTS", {"fashion": (work, 60)})
    command = ["--device", "cpu", "--dry", "--part", "fashion", "--to", str(tmp_path / "found.json")]
    threads = torch.get_num_threads()
    try:
        assert gpu.main(command) == gpu.SKIPPED and capsys.readouterr().out == "no files\n"
    finally:
        torch.set_num_threads(threads)


def test_a_dry_run_never_replaces_what_was_measured(capsys):
    for wrong in (["--device", "cpu"], ["--device", "cpu", "--dry"]):
        with pytest.raises(SystemExit):
            gpu.main(wrong)
