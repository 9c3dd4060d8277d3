"""All that is to be measured on a GPU runs on a CPU in small, is kept as JSON and read back, and says which aims are missed."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from benchmarks import gpu, performance, projection
from benchmarks.card import Card
from benchmarks.gpu import Gpu, gpu_lines, measure_gpu
from benchmarks.projection import Kind, Projection
from benchmarks.recording import recorded, where
from benchmarks.replicas import ALONE, STACKED
from benchmarks.timing import Spread
from fa_registry import methods
from tests.helpers.small import RAW

SPREAD = Spread(0.3, 0.2, 0.4)
KIND = Kind("dfa resmlp", 3, 100, 39_100, 5e-5, 0.01, 0.5, "CUDA graph")
CARD = Card(8192, 5e13, 4e14, 4e12, 810_000_000, 37_000_000, 25e-6, SPREAD)
FOUND = Gpu(
    "a card",
    CARD,
    7.0,
    1.5,
    SPREAD,
    SPREAD,
    {"fa": SPREAD},
    {"small_resnet, dfa": SPREAD},
    {"small_resnet, dfa": 1.0},
    {"fa": "CUDA graph"},
    {ALONE: SPREAD, STACKED: SPREAD},
    Projection("paper-full", "a card", 5, 1, (KIND,), 0.5),
)


def read_back(found):
    return Gpu.of(json.loads(json.dumps(dataclasses.asdict(found))))


def test_the_table_says_which_aims_are_missed():
    lines = gpu_lines(read_back(FOUND))
    assert read_back(FOUND) == FOUND
    assert "aim ≤ 6: MISSED" in lines[1] and "5 side by side" in lines[2] and "aim ≤ 2: met" in lines[2]
    assert any("small_resnet" in line and "aim ≥ 40%: MISSED" in line for line in lines)
    assert any(line.startswith("  fa / bp") and line.endswith("aim ≤ 3: met; CUDA graph") for line in lines)
    assert any(line.startswith("  stacked") for line in lines) and "aim ≤ 20: met" in lines[-1]


def test_everything_runs_on_a_cpu_in_small(monkeypatch):
    monkeypatch.setattr(projection, "run_cost", lambda device, epochs: 0.5)
    monkeypatch.setattr(gpu, "NETWORKS", {"mlp, dfa": {"architecture": "mlp"}})
    base = {**RAW, "epochs": 1, "architecture_options": {"num_blocks": 1}}
    found = measure_gpu(
        torch.device("cpu"), base, steps=1, rounds=1, replicas=2, study="digits", side=64, settings=1, pixels="digits"
    )
    assert set(found.methods) == {
        name for name in methods.CATALOG.names() if methods.CATALOG.get(name).card.supports("resmlp")
    } - {"bp"}
    assert found.published.low > 0 and found.published_epoch.low > 0 and found.card.side == 64
    assert found.alone > 0 and found.side_by_side > 0 and found.limit["mlp, dfa"].low > 0
    assert read_back(found) == found


def test_what_is_kept_names_the_card_and_the_page_says_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "measure_gpu", lambda device: FOUND)
    monkeypatch.setattr(gpu, "MEASURED", tmp_path / "gpu.json")
    assert gpu.main(["--record"]) == 0
    table = capsys.readouterr().out
    heading = where(recorded(gpu.MEASURED), "benchmarks.gpu")
    assert heading.startswith("a card, ") and "torch 2" in heading
    assert heading in performance.render() and table in performance.render()


def test_without_a_card_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2 and "no CUDA device" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_everything_runs_on_a_card_in_small(monkeypatch):
    monkeypatch.setattr(gpu, "NETWORKS", {"small_resnet, dfa": {"architecture": "small_resnet"}})
    base = {**RAW, "dataset": "cifar_shaped:1000", "epochs": 5, "architecture_options": {"num_blocks": 1}}
    found = measure_gpu(
        torch.device("cuda"), base, steps=16, rounds=1, replicas=2, study="digits", settings=2, pixels="digits"
    )
    assert set(found.stepping.values()) == {"CUDA graph"} and {kind.stepping for kind in found.projection.kinds} == {
        "CUDA graph"
    }
