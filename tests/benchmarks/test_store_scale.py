"""Every verb of the list exists, costs are those of the whole command, and what was aimed at is said met or missed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.store_scale import AUDIT, SIZES, VERBS, scale_lines, slope, targets
from benchmarks.verb_cost import Cost, Costs, cost_of
from fa_registry.cli import main


def made(runs: int, cpu: float, wall: float = 1.0) -> Costs:
    return Costs(runs, dict.fromkeys(VERBS, Cost(cpu, wall, 100.0)))


def test_what_a_whole_command_costs_is_counted(tmp_path):
    found = cost_of(["--version"], tmp_path)
    assert found.cpu > 0.01 and found.wall > 0.01 and 5 < found.peak < 4096
    with pytest.raises(SystemExit, match="fa-registry show nothing: exit 2"):
        cost_of(["show", "nothing"], tmp_path)


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb[0])
def test_every_verb_takes_the_options_it_is_given(verb):
    """By its --help, which click prints only where all before it can be read."""
    result = CliRunner().invoke(main, [*verb, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output


def test_a_further_run_costs_the_slope_from_the_smallest_to_the_largest_store():
    found = [made(100, 10.0), made(300, 10.0), made(1100, 60.0)]
    assert slope(found, AUDIT) == pytest.approx(0.05)
    assert slope(found[:1], AUDIT) is None
    assert "50.0 ms" in "\n".join(scale_lines(found))


@pytest.mark.parametrize(("wall", "words"), [(4.9, "met (4.9 s)"), (5.1, "MISSED (5.1 s)")])
def test_the_aim_of_the_smallest_store_is_by_the_clock(wall, words):
    lines = scale_lines([made(SIZES[0], 30.0, wall)])
    assert [line.rpartition(": ")[2] for line in lines if "target" in line] == [words]
    assert not targets([made(7, 30.0, wall)])


@pytest.mark.parametrize(("cpu", "met"), [(590.0, True), (610.0, False)])
def test_an_audit_is_linear_where_a_run_of_the_largest_store_costs_no_more_than_one_of_the_store_before(cpu, met):
    what, value, judged = targets([made(2000, 100.0), made(10000, cpu)])[-1]
    assert what.endswith("CPU a logged run, 10,000 / 2,000, ≤ 1.2") and judged == met and value == f"{cpu / 500:.2f}"


def test_what_was_kept_is_what_was_found():
    found = made(125, 3.0)
    kept = json.loads(json.dumps({"runs": 125, "costs": {words: vars(cost) for words, cost in found.costs.items()}}))
    assert Costs.of(kept) == found
