"""The first screen of a form: its kinds, values and limits agree with the claims, and the sentence names both accuracies."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.metrics import SUBJECTS
from fa_registry.reporting.claims_reference import GAMMA
from fa_registry.reporting.pages.form_tiles import DEPTH, OF_GAMMA, WHY, answers, judged_scale
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.summary import CLAUSES, depth_result
from fa_registry.reporting.text.filters import number
from tests.reporting.report_changes import with_runs


def shown(report, method):
    sources = Sources.of(report)
    group = next(group for group in sources.groups if group.method == method)
    sentence, tiles = answers(group, sources)
    return group, sentence, {tile.topic: tile for tile in tiles}


def test_every_result_of_the_summary_has_an_answer():
    assert DEPTH.keys() == CLAUSES.keys()
    assert set(OF_GAMMA) == {"may", "partly", "open", "not"}


@pytest.mark.parametrize("method", ["fa", "dfa", "drtp", "bp"])
def test_a_tile_and_its_claims_agree(rich, method):
    group, sentence, tiles = shown(rich, method)
    assert list(tiles) == [GAMMA, "Depth", "Scale"]
    assert tiles["Depth"].kind == DEPTH[depth_result(group.runs, ())][0]
    for topic, tile in tiles.items():
        assert {one.topic for one in tile.claims} <= {topic, *(["Reference"] if topic == GAMMA else [])}
        kinds = {one.kind for one in tile.claims if one.topic == topic}
        assert tile.kind != "may" or "not" not in kinds, topic
    assert DEPTH[depth_result(group.runs, ())][2] in sentence


def test_the_sentence_names_the_accuracy_its_frozen_control_and_gamma(rich):
    group, sentence, tiles = shown(rich, "fa")
    sources = Sources.of(rich)
    values = [run.record.measurements.scalars["accuracy"].value for run in group.runs]
    assert f"{100 * sum(values) / len(values):.1f}" in sentence
    assert number(tiles[GAMMA].value.mean) in sentence
    assert any(one.key in WHY for one in tiles[GAMMA].claims) == any(text in sentence for text in WHY.values())
    assert "frozen." in sentence and len(sources.groups) > 1


def test_the_scale_is_that_of_the_worst_finding_with_its_limit(rich):
    """A growth since initialisation that fires is shown in place of a growth per block that does not."""

    def fires_since(run):
        changed = tuple(
            dataclasses.replace(one, quantity="growth_init_max", outcome="fail", threshold=77.0)
            if one.quantity in SUBJECTS["scale"]
            else one
            for one in run.findings
        )
        return dataclasses.replace(run, findings=changed)

    group, _, tiles = shown(with_runs(rich, fires_since), "bp")
    assert judged_scale(group.runs) == ("growth_init_max", "fail")
    assert tiles["Scale"].kind == "not" and "77" in tiles["Scale"].limit
    values = [run.record.measurements.scalars["growth_init_max"].value for run in group.runs]
    assert min(values) <= tiles["Scale"].value.mean.reading.value <= max(values)


def test_a_method_whose_credit_is_the_gradient_has_no_gamma(rich):
    exact = dataclasses.replace(rich, cards={**rich.cards, "methods/bp": {"exact_sites": "all"}})
    _, sentence, tiles = shown(exact, "bp")
    assert tiles[GAMMA].kind == "note" and tiles[GAMMA].value is None and GAMMA not in sentence


def test_a_control_has_no_answer(rich):
    assert answers(next(group for group in Sources.of(rich).groups if group.control), Sources.of(rich)) == ("", ())
