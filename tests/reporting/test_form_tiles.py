"""The first screen of a form: its kinds, values and limits agree with the claims, and the sentence names both accuracies."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.metrics import SUBJECTS
from fa_registry.records import FurtherLimit
from fa_registry.reporting.claims_reference import GAMMA, KEYS
from fa_registry.reporting.pages import form_tiles
from fa_registry.reporting.pages.form_tiles import DEPTH, OF_GAMMA, WHY, answers, judged_scale
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.summary import CLAUSES, RESULTS, depth_result
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


def test_a_result_has_the_kind_of_the_claims_that_lead_to_it():
    about_depth = {key: result for key, result in RESULTS.items() if KEYS[key][1] == "Depth" and KEYS[key][0] != "note"}
    assert {key: DEPTH[result][0] for key, result in about_depth.items()} == {key: KEYS[key][0] for key in about_depth}
    assert {DEPTH[result][0] for result in about_depth.values()} == {"may", "not", "open"}


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
    controls = {run.frozen_run_id for run in group.runs}
    compared = [group.runs, [run for run in rich.runs if run.record.run_id in controls]]
    values = [[run.record.measurements.scalars["accuracy"].value for run in runs] for runs in compared]
    own, frozen = (f"{100 * sum(each) / len(each):.1f}\u00a0%" for each in values)
    assert f": {own} against {frozen} frozen." in sentence and own != frozen
    assert number(tiles[GAMMA].value.mean) in sentence
    assert any(one.key in WHY for one in tiles[GAMMA].claims) == any(text in sentence for text in WHY.values())


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
    assert judged_scale(group.runs) == ("growth_init_max", "fail", len(group.runs))
    tile = tiles["Scale"]
    assert (tile.kind, tile.text, tile.limit) == ("not", "explodes", "at most 77")
    values = [run.record.measurements.scalars["growth_init_max"].value for run in group.runs]
    assert min(values) <= tiles["Scale"].value.mean.reading.value <= max(values)


def test_a_method_whose_credit_is_the_gradient_has_no_gamma(rich):
    exact = dataclasses.replace(rich, cards={**rich.cards, "methods/bp": {"exact_sites": "all"}})
    _, sentence, tiles = shown(exact, "bp")
    assert tiles[GAMMA].kind == "note" and tiles[GAMMA].value is None and GAMMA not in sentence


def of_scale(rich, change):
    """The tile of bp's scale, if each run's finding about scale is changed: seed → replaced fields."""

    def changed(run):
        findings = tuple(
            dataclasses.replace(one, **change(run.record.spec.seed)) if one.quantity in SUBJECTS["scale"] else one
            for one in run.findings
        )
        return dataclasses.replace(run, findings=findings)

    return shown(with_runs(rich, changed), "bp")[2]["Scale"]


def test_a_scale_that_explodes_in_one_seed_says_in_how_many(rich):
    tile = of_scale(rich, lambda seed: {"outcome": "fail"} if seed == 42 else {"outcome": "pass"})
    assert (tile.kind, tile.text) == ("not", "explodes in 1 of 2 seeds")


def test_a_network_without_a_stream_has_no_scale_to_judge(rich):
    """A plain network is neither open nor kept: the rule does not apply, and no limit is shown."""
    away = {"outcome": "not_applicable", "inapplicable": "no residual stream"}
    tile = of_scale(rich, lambda seed: away)
    assert (tile.kind, tile.value, tile.limit) == ("note", None, "")
    assert of_scale(rich, lambda seed: {**away, "inapplicable": ""}).kind == "open"


def test_the_limit_is_that_of_the_growth_that_is_shown(rich):
    """A rule may limit both growths; each has its own limit."""
    limits = {"threshold": 60.0, "further": (FurtherLimit("growth_init", 90.0),), "outcome": "pass"}
    assert of_scale(rich, lambda seed: {"quantity": "growth", **limits}).limit == "at most 60"
    swapped = {"threshold": 90.0, "further": (FurtherLimit("growth", 60.0),), "outcome": "pass"}
    assert of_scale(rich, lambda seed: {"quantity": "growth_init", **swapped}).limit == "at most 90"


def test_a_reason_is_given_only_where_gamma_may_not_be_claimed(rich, monkeypatch):
    for answer, sentence in (("partly", "may be claimed at some sites."), ("not", "is no evidence of useful credit.")):
        monkeypatch.setattr(form_tiles, "gamma_answer", lambda *_, answer=answer: answer)
        assert shown(rich, "fa")[1].endswith(sentence)


def test_a_control_has_no_answer(rich):
    assert answers(next(group for group in Sources.of(rich).groups if group.control), Sources.of(rich)) == ("", ())
