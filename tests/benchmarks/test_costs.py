"""What a run takes besides steps and measuring is that of a real, tracked run, once its store is there."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext

import pytest
import torch

from benchmarks import card, end_to_end, gpu, performance, projection, run_cost
from benchmarks.card import REPEATS, Card, card_lines, measure_card, shape_of
from benchmarks.end_to_end import (
    COMPARED,
    CORES,
    EDITION,
    JOBS,
    ONE,
    PUBLISHED,
    THREADED,
    EndToEnd,
    end_to_end_lines,
    study_job,
)
from benchmarks.gpu import Gpu, gpu_lines, measure_gpu
from benchmarks.limit import Shape
from benchmarks.projection import Kind, Projection
from benchmarks.recording import recorded, where
from benchmarks.replicas import ALONE as ALONE_GPU
from benchmarks.replicas import STACKED
from benchmarks.timing import Spread
from fa_registry import methods
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.cuda_graph import CAPTURED
from fa_registry.training.specs import parse_spec
from fa_registry.training.trainer import Trainer
from fa_registry.workflows.rule_monitor import checked_watch
from fa_registry.workflows.training import TrainingResult
from tests.helpers.tiny_tasks import RAW, tiny_task

CPU = torch.device("cpu")


def test_what_is_timed_is_a_complete_and_tracked_run(monkeypatch, workplace):
    results, tracked = [], run_cost._tracked
    monkeypatch.setattr(run_cost, "_tracked", lambda job: results.append(tracked(job)))
    monkeypatch.setattr(run_cost.tempfile, "TemporaryDirectory", lambda: nullcontext(workplace))
    run_cost.run_cost(CPU, 1, rounds=1)
    assert [(type(result), result.status, result.epochs) for result in results] == 2 * [(TrainingResult, "complete", 1)]
    assert results[0].run_id != results[1].run_id


def test_the_bare_run_has_all_its_epochs_every_time():
    trainer = Trainer(run_cost.build_setup(run_cost._spec(0, 2, CPU), CPU))
    bare = run_cost._bare(trainer)
    assert [bare().epochs, bare().epochs] == [2, 2]


def test_the_first_run_is_not_counted_and_the_bare_epochs_are_taken_off(monkeypatch):
    taken = iter([90.0, 1.0, 5.0, 1.0, 8.0, 2.0, 7.0, 2.0])
    monkeypatch.setattr(run_cost, "seconds", lambda work, device: next(taken))
    assert run_cost.run_cost(CPU, 1) == 5.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_card_the_bare_run_has_its_graphs():
    device = torch.device("cuda")
    trainer = Trainer(run_cost.build_setup(run_cost._spec(0, 4, device), device))
    run_cost._bare(trainer)()
    assert trainer.stepping == CAPTURED


FLOP = 2 * 128 * (2 * 144 * 16 + 2 * 6 * 16 * 16 + 2 * 16 * 10 + 3 * 16 * 10)  # digits, D = 16, L = 2


def test_the_floor_is_the_counted_work_at_the_measured_rates(monkeypatch):
    """One multiplication a second, two seconds a byte that is copied; the rounds' steps take twice and four times their floor."""
    trainer, side = Trainer(tiny_task()), 4
    moved = 7 * 4 * sum(parameter.numel() for parameter in trainer.setup.network.parameters())
    floor = FLOP + moved * 2
    seconds = {
        "fp32": [REPEATS * 2 * side**3] * 2,
        "tf32": [REPEATS * 2 * side**3 / 8] * 2,
        "copy": [2 * REPEATS * 2 * 4 * side**2] * 2,
        "step": [3 * 2 * floor, 3 * 4 * floor],
    }
    monkeypatch.setattr(card, "in_rounds", lambda works, rounds, device: {name: seconds[name] for name in works})
    found = measure_card(trainer, 3, 2, side)
    assert (found.fp32, found.tf32, found.bandwidth) == (1, 8, 0.5)
    assert (found.flop, found.moved, found.floor) == (FLOP, moved, floor)
    assert (found.share.low, found.share.high) == (0.25, 0.5)


def test_everything_is_measured_in_small():
    found = measure_card(Trainer(tiny_task()), 1, 1, side=32)
    assert found.fp32 > 0 and found.tf32 > 0 and found.bandwidth > 0 and found.share.low > 0
    assert "32 × 32" in card_lines(found)[0] and len(card_lines(found)) == 5


def test_the_table_has_the_text_of_a_card():
    spread = {"median": 0.3, "low": 0.2, "high": 0.4}
    rates = {"side": 8192, "fp32": 5e13, "tf32": 4e14, "bandwidth": 4e12}
    lines = card_lines(Card.of({**rates, "flop": 8e8, "moved": 4e7, "floor": 2.6e-5, "share": spread}))
    assert "50.00 TFLOP/s" in lines[1] and "400.00 TFLOP/s" in lines[2] and "4.00 TB/s" in lines[3]
    assert "26.0 µs = 0.80 GFLOP in fp32 + 40 MB; reached 30% (20% to 40%)" in lines[4]


def test_the_shape_is_read_off_the_task():
    task = tiny_task()
    parameters = sum(parameter.numel() for parameter in task.network.parameters())
    assert shape_of(task) == Shape(128, 144, 16, 2, 10, parameters)


def test_each_product_is_in_its_own_precision(monkeypatch):
    received = []
    monkeypatch.setattr(torch, "mm", lambda *given, out: received.append(torch.backends.cuda.matmul.fp32_precision))
    works = card._at_best(4, CPU)
    works["fp32"](), works["tf32"]()
    assert received == REPEATS * ["ieee"] + REPEATS * ["tf32"]


ALONE, THREADS = PUBLISHED[1], PUBLISHED[CORES]
CLOCK = {ALONE: [24.0] * 3, THREADS: [36.0] * 3, JOBS: [8.0] * 3, ONE: [6.0] * 3, THREADED: [5.0] * 3}
AS_STARTED, THROUGHPUT = list(COMPARED)[:2]


def test_what_is_timed_is_a_run_of_a_study_measured_watched_and_tracked(workplace):
    store = f"sqlite:///{workplace / 'mlflow.db'}"
    small = {"d_hidden": 16, "num_blocks": 2}
    spec = parse_spec(
        {
            "method": "dfa",
            "architecture": "resmlp",
            "dataset": "digits",
            "seed": 0,
            "epochs": 9,
            "architecture_options": small,
        }
    )
    end_to_end._begin(study_job(spec, store))
    for _ in range(3):
        end_to_end._epoch()
    end_to_end._end()
    tracker = MlflowTracker(store)
    (run,) = tracker.search({schema.TAG_KIND: "run"})
    history = tracker._client.get_metric_history(run.run_id, "accuracy/test")
    assert [point.step for point in history] == [0, 1, 2]  # the third epoch is trained and not measured yet
    assert run.tags[schema.TAG_FIRST_FIRE_BY] == checked_watch(EDITION, "", []).by


def test_two_runs_side_by_side_are_counted_by_the_run_and_the_published_time_stands_above():
    found = EndToEnd.timed(CLOCK)
    assert found.seconds == {ALONE: 24.0, THREADS: 36.0, JOBS: 8.0 / CORES, ONE: 6.0, THREADED: 5.0}
    assert [round(one.median, 2) for one in found.ratio.values()] == [9.0, 6.0, 4.8, 4.0, 1.5, 1.2]


def test_the_faster_of_the_published_is_what_ours_is_compared_with():
    found = EndToEnd.timed({**CLOCK, THREADS: [10.0, 12.0, 14.0]})
    assert found.ratio[THROUGHPUT] == Spread(3.0, 2.5, 3.5)
    slow = EndToEnd.timed({**CLOCK, ALONE: [10.0] * 3})
    assert (slow.ratio[THROUGHPUT].median, slow.ratio[AS_STARTED].median) == (2.5, 9.0)
    assert found.seconds[ALONE] == 24.0 and found.seconds[THREADS] == 12.0  # both are printed


def test_what_is_compared_no_longer_is_left_out_of_a_record():
    kept = dataclasses.asdict(EndToEnd.timed(CLOCK))
    kept["ratio"]["of old"] = kept["ratio"][THROUGHPUT]
    assert EndToEnd.of(kept) == EndToEnd.timed(CLOCK)


@pytest.mark.parametrize(("published", "text"), [(24.0, "met"), (23.0, "MISSED")])
def test_every_aim_is_reported_met_or_missed(published, text):
    lines = end_to_end_lines(EndToEnd.timed({**CLOCK, ALONE: [published] * 3}))
    outcomes = [line.rpartition(": ")[2] for line in lines if "target" in line]
    assert outcomes == [
        "met",
        text,
        "MISSED",
        "MISSED",
        "MISSED",
    ]  # throughput, one run on two threads and on one, a second process
    assert all(name in "\n".join(lines) for name in CLOCK)


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
    {ALONE_GPU: SPREAD, STACKED: SPREAD},
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
