"""docs/differences.md: every difference has an effect that was measured, or says why none can be."""

from __future__ import annotations

import dataclasses
import json
import re
from string import Formatter

import pytest
import torch

from benchmarks import departures
from benchmarks.differences import MEASURED, PAGE, SECTIONS, effect, render
from fa_registry import methods
from fa_registry.training.trainer import Trainer

ROWS = [row for rows in SECTIONS.values() for row in rows]
KEPT = json.loads(MEASURED.read_text(encoding="utf-8"))


def asked(row) -> set[str]:
    """The figures that a row's sentence shows."""
    return {name for _, name, _, _ in Formatter().parse(row.effect) if name}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.point)
def test_an_effect_is_measured_or_says_why_not(row):
    if not row.figures:
        assert row.effect.startswith("N/A: ")
        return
    assert asked(row) and not re.search(r"\d\.\d|\de-\d", row.effect)  # no figure is typed in
    assert effect(row, KEPT) != row.effect


def test_every_figure_that_was_measured_is_shown():
    shown = {(row.figures, name) for row in ROWS for name in asked(row)}
    kept = {(name, figure) for name, figures in KEPT["figures"].items() for figure in figures}
    assert shown == kept


def test_a_card_that_changes_is_noticed(monkeypatch):
    fa = methods.CATALOG.get("fa")
    assert render(KEPT) in PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(fa, "card", departures.changed(fa, credit_scale="sum").card)
    assert render(KEPT) not in PAGE.read_text(encoding="utf-8")


def test_a_skip_added_twice_is_another_network():
    found = departures.skip_added_twice()
    assert found["growth_wrong"] > 2 * found["growth"] and found["cosine"] < 0.95


def test_a_row_for_maps_does_not_fit_tokens():
    assert departures.expanded_to_tokens() == {"error": "RuntimeError"}


def test_averaged_gradients_are_as_many_times_smaller_as_there_are_positions():
    assert departures.one_vector_of_a_map()["positions"] == pytest.approx(12 * 12, rel=1e-5)


def test_the_sum_does_not_know_the_batch_and_the_mean_does():
    found = departures.reduction(departures.task_of("bp"))
    assert found["by_sum"] == pytest.approx(1, rel=1e-5)
    assert found["by_mean"] == pytest.approx(found["large"] / found["small"], rel=1e-5)


def test_fa_in_the_other_scale_is_trained_otherwise():
    """The variation reaches the step: one epoch, other weights."""
    task = departures.task_of("fa", epochs=1)
    rescaled = departures.changed(task.method, credit_scale="sum")
    other = dataclasses.replace(departures.task_of("fa", epochs=1), method=rescaled)
    for one in (task, other):
        Trainer(one).run_epoch()
    pairs = zip(task.network.blocks.parameters(), other.network.blocks.parameters(), strict=True)
    assert any(not torch.equal(*pair) for pair in pairs)
