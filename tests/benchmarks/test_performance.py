"""docs/performance.md holds what was recorded, every aim with met or missed, and claims nothing of what was not measured."""

from __future__ import annotations

import copy
import json

import pytest

from benchmarks import audit_again, end_to_end, gpu, operations, performance, readme, registry_scale, store_scale
from benchmarks.recording import stamp

SPREAD = {"median": 2.0, "low": 1.0, "high": 3.0}
COST = {"cpu": 10.0, "wall": 4.0, "peak": 300.0}
SCALE = {
    "records": 125,
    "settings": 17,
    "forms": 25,
    "judging": 0.5,
    "rendering": 3.0,
    "cpu": 3.0,
    "peak": 200.0,
    "index_bytes": 900_000,
    "bytes_written": 8_000_000,
}
MADE = {
    end_to_end: {"seconds": {}, "ratio": dict.fromkeys(end_to_end.COMPARED, SPREAD)},
    audit_again: {"runs": audit_again.RUNS, "costs": dict.fromkeys(audit_again.VERBS, COST)},
    store_scale: {"sizes": [{"runs": runs, "costs": dict.fromkeys(store_scale.VERBS, COST)} for runs in (125, 2000)]},
    registry_scale: {"sizes": [SCALE]},
}
AIMS = {
    end_to_end: f"{next(iter(end_to_end.COMPARED))} | 2 | 1 | 3 | ≥ 6: missed |",
    audit_again: "125 runs ≤ 60 s by the clock: 4.0 s, met",
    store_scale: "audit of 125 logged runs ≤ 5 s by the clock: 4.0 s, met",
    registry_scale: "125 runs ≤ 5 s of CPU: 3.0 s, met",
}


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """Keep something in place of a module's record."""

    def keep(module, found) -> None:
        path = tmp_path / f"{module.__name__}.json"
        path.write_text(json.dumps(found), encoding="utf-8")
        monkeypatch.setattr(module, "MEASURED", path)

    return keep


@pytest.fixture
def made(kept):
    """Made-up records of everything, so that no test needs that all was measured."""
    for module, found in MADE.items():
        kept(module, stamp() | found)
    return kept


def test_the_page_holds_the_recorded_figures():
    assert performance.PAGE.read_text(encoding="utf-8") == performance.render()


def test_a_changed_figure_is_noticed(kept):
    measured = json.loads(readme.MEASURED.read_text(encoding="utf-8"))
    measured["bench"]["step"]["ratio"]["dfa / bp"]["median"] += 1
    kept(readme, measured)
    assert performance.PAGE.read_text(encoding="utf-8") != performance.render()


@pytest.mark.parametrize("module", MADE, ids=lambda module: module.__name__)
def test_every_record_is_on_the_page_with_its_aim_its_command_and_its_machine(made, module):
    page = performance.render()
    assert AIMS[module] in page
    assert f"`python -m {module.__name__} --record`" in page and "Not measured yet: `python" not in page
    assert page.count(stamp()["versions"]["mlflow"]) >= len(MADE)


@pytest.mark.parametrize("module", MADE, ids=lambda module: module.__name__)
def test_a_changed_record_changes_the_page(made, module):
    before, changed = (
        performance.render(),
        json.dumps(stamp() | MADE[module]).replace("3.0", "3.5").replace("4.0", "70.5"),
    )
    made(module, json.loads(changed))
    assert performance.render() != before
    assert AIMS[module] not in performance.render()


@pytest.mark.parametrize("module", MADE, ids=lambda module: module.__name__)
def test_what_was_not_measured_is_said_and_nothing_claimed_of_it(made, module, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MEASURED", tmp_path / "none.json")
    page = performance.render()
    assert f"Not measured yet: `python -m {module.__name__} --record`" in page and AIMS[module] not in page


def test_the_shares_of_what_was_measured_add_up(made):
    lines = performance.render().partition("## Where the time goes")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.endswith("% |")]
    sums: dict[str, float] = {}
    for of, _, share in rows:
        name = of or list(sums)[-1]
        sums[name] = sums.get(name, 0.0) + float(share.rstrip("%"))
    assert len(sums) == 6 and all(total == pytest.approx(100, abs=1.1) for total in sums.values()), sums


def test_the_stores_whose_audits_are_shared_out_are_the_smallest_and_the_largest(made):
    sizes = [{"runs": runs, "costs": dict.fromkeys(store_scale.VERBS, COST)} for runs in (125, 2_000, 10_000)]
    made(store_scale, stamp() | {"sizes": sizes})
    rows = [
        line for line in performance.render().splitlines() if line.startswith("| an audit of ") and "logged" in line
    ]
    assert [row.split()[4] for row in rows] == ["125", "10,000"]


def test_both_shares_of_the_limit_are_judged(kept):
    measured = json.loads(readme.MEASURED.read_text(encoding="utf-8"))
    square = {"median": 0.55, "low": 0.5, "high": 0.6}
    limit = measured["bench"]["step"]["limit"]
    limit |= {"share": SPREAD, "square_rate": 87e9, "square_floor": 0.0113, "square_share": square}
    kept(readme, measured)
    rows = [line for line in performance.render().splitlines() if "share of its limit" in line]
    assert [row.rpartition(": ")[2] for row in rows] == ["met |", "missed |"]
    assert "at the 87 GFLOP/s of one product" in performance.render()


def test_words_that_hold_figures_take_them_from_the_records(made):
    costly = {"bp": 10, "dfa": 11, "ep": 125}
    made(operations, stamp() | {"counts": costly})
    text = performance.render()
    assert "A second process brings 2.00 times the runs a second" in text and "ep 12.5 (twenty relaxation steps" in text
    made(operations, stamp() | {"counts": {"bp": 10, "dfa": 11}})
    assert "exceed the aim" not in performance.render()


def test_a_missed_share_is_said(made, kept):
    measured = json.loads(readme.MEASURED.read_text(encoding="utf-8"))
    changed = copy.deepcopy(measured)
    changed["bench"]["overheads"][0] |= {"measuring_share": 0.019, "tracking_share": 0.031}
    kept(readme, changed)
    assert "| 1.9% (≤ 2%: met) |" in performance.render() and "| 3.1% (≤ 3%: missed) |" in performance.render()


def test_without_a_gpu_nothing_is_claimed_of_one(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "MEASURED", tmp_path / "none.json")
    section = performance.render().partition("## On a GPU")[2].partition("## Where")[0]
    assert "Not measured yet" in section and "aim ≤" not in section
