"""Edition 2026-12:token: a separate built-in file, and D3 in nats per token, where less is better."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fa_registry import bundled_files
from fa_registry.errors import InvalidFields
from fa_registry.jsonio import read_toml
from fa_registry.metrics import ACCURACY, TOKEN_LOSS, headline_of
from fa_registry.protocol.builtin_editions import claimed, digests, file_of, provenance_of
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.last_block import last_block_controls
from fa_registry.protocol.operators import OPERATORS
from fa_registry.protocol.rules import load_edition, shipped, shipped_editions
from fa_registry.records import CHANCE, Reading, SampleScores
from fa_registry.studies import editions
from fa_registry.studies.editions import check_headlines, headline_of_edition, headline_problem
from tests.builders import edition_text, measurements, reading, record

NAME = "2026-12:token"
EDITION, PLAIN = load_edition(NAME), load_edition("2026-12")
D3 = next(rule for rule in EDITION.rules if rule.code == "D3")
VOCABULARY = 32
GUESS = math.log(VOCABULARY)


def token_run(run_id, loss, chance=GUESS, cosines=None, **changes):
    """A run whose main metric is the loss per token."""
    found = measurements()
    scalars = {name: value for name, value in found.scalars.items() if name != "accuracy"}
    scalars |= {"token_loss": reading(loss), "perplexity": reading(loss and math.exp(loss))}
    sites = found.sites | ({"gamma_batch": tuple(map(reading, cosines))} if cosines else {})
    conventions = {"test_samples": 512} | ({CHANCE: chance} if chance else {})
    # every sequence has the loss: the test set has no error
    scores = {} if loss is None else {"token_loss": SampleScores.of("loss", np.full(512, loss))}
    found = dataclasses.replace(found, sites=sites, scalars=scalars, conventions=conventions, sample_scores=scores)
    return record(run_id, found, **changes)


def control(run_id, loss, kind="frozen", **changes):
    return token_run(run_id, loss, method="bp", control=kind, **changes)


def over_seeds(losses, frozen, **changes):
    """One run a seed with its loss, then one frozen control a seed."""
    runs = [token_run(f"r{seed}", loss, seed=seed, **changes) for seed, loss in losses.items()]
    return [*runs, *(control(f"f{seed}", loss, seed=seed) for seed, loss in frozen.items())]


def depth(records, edition=EDITION):
    """D3 of the first run."""
    return next(finding for finding in judge_all(records, edition)[0].findings if finding.rule == "D3")


# The file.


def test_the_edition_is_built_in_and_has_its_own_file_and_digest():
    assert file_of(NAME) == bundled_files.editions() / "2026-12_token.toml"
    assert NAME in shipped() and NAME in [edition.name for edition in shipped_editions()]
    assert EDITION.digest == digests()[NAME] == read_toml(file_of(NAME), "edition").digest
    assert digests()[NAME] != digests()["2026-12"] and "2026-12_token" not in digests()
    reference = EDITION.reference
    assert provenance_of(reference) == "shipped" and reference.shipped and reference.differences == ()


def test_the_other_built_in_editions_keep_their_files():
    assert file_of("2026-12").name == "2026-12.toml" and file_of("2026-05:strict").name == "2026-05.toml"
    assert digests()["2026-05:strict"] == digests()["2026-05"]


@pytest.mark.parametrize("name", [NAME, "2026-12:tokens"])
def test_no_other_file_takes_the_name(tmp_path, name):
    text = file_of(NAME).read_text(encoding="utf-8").replace("threshold = 0.05", "threshold = 0.01", 1)
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(f'name = "{NAME}"', f'name = "{name}"'), encoding="utf-8")
    assert claimed(name) == "2026-12"
    with pytest.raises(InvalidFields, match="is a name of the built-in edition 2026-12"):
        load_edition(str(path))


def test_a_copy_with_another_limit_is_an_edition_of_its_owner_based_on_it(tmp_path):
    text = file_of(NAME).read_text(encoding="utf-8").replace(f'name = "{NAME}"', 'name = "mine"')
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('threshold = 0.05\nunit = "nats', 'threshold = 0.01\nunit = "nats'), encoding="utf-8")
    mine = load_edition(str(path))
    assert mine.based_on == NAME and provenance_of(mine.reference) == "own"
    assert [(item.rule, item.field, item.this) for item in mine.reference.differences] == [("D3", "threshold", 0.01)]


def test_it_differs_from_2026_12_in_texts_and_d3_only():
    assert EDITION.fail_if == PLAIN.fail_if and EDITION.labels == PLAIN.labels and EDITION.strict == PLAIN.strict
    assert [rule.code for rule in EDITION.rules] == [rule.code for rule in PLAIN.rules]
    changed = {
        (ours.code, field.name)
        for ours, theirs in zip(EDITION.rules, PLAIN.rules, strict=True)
        for field in dataclasses.fields(ours)
        if getattr(ours, field.name) != getattr(theirs, field.name)
    }
    d3 = ("quantity", "reference", "fires", "threshold", "unit", "source", "rationale", "far_seed")
    assert changed == {("D2", "unit"), ("D2", "source"), *(("D3", name) for name in d3)}
    raw, plain = (read_toml(file_of(name), "edition").table for name in (NAME, "2026-12"))
    assert {name for name in raw if raw[name] != plain[name]} == {"name", "title", "source", "rule"}


@pytest.mark.parametrize("code", ["D1", "D2", "D4", "S"])
def test_every_other_rule_judges_as_in_2026_12(code):
    runs = over_seeds({1: 1.0, 2: 1.1}, {1: 2.0, 2: 2.0})
    ours, theirs = (
        next(finding for finding in judge_all(runs, edition)[0].findings if finding.rule == code)
        for edition in (EDITION, PLAIN)
    )
    assert (ours.outcome, ours.state, ours.observed) == (theirs.outcome, theirs.state, theirs.observed)


# D3 in nats.

FROZEN = {1: 2.0, 2: 2.0, 3: 2.0}


@pytest.mark.parametrize(
    ("losses", "outcome", "state", "crossed"),
    [
        ({1: 1.80, 2: 1.81, 3: 1.80}, "pass", "CLEARS", ""),
        ({1: 1.99, 2: 1.98, 3: 1.99}, "fail", "UNDERCUT", "above_reference_minus"),  # below frozen, but not enough
        ({1: 2.40, 2: 2.41, 3: 2.40}, "fail", "UNDERCUT", "above_reference_minus"),
        ({1: 1.70, 2: 2.10, 3: 1.90}, "warn", "UNDECIDED", ""),
        ({1: 1.50}, "warn", "UNDECIDED", ""),
        ({1: 2.50}, "warn", "UNDECIDED", ""),
    ],
)
def test_a_lower_loss_than_the_frozen_control_clears(losses, outcome, state, crossed):
    found = depth(over_seeds(losses, {seed: FROZEN[seed] for seed in losses}))
    assert (found.outcome, found.state, found.crossed) == (outcome, state, crossed)
    mean = sum(2.0 - loss for loss in losses.values()) / len(losses)
    assert found.quantity == "margin_nats" and found.observed.value == pytest.approx(mean, abs=1e-9)
    assert "nats" in found.sentence and "pp" not in found.sentence
    assert found.seeds == len(losses)


def test_exactly_at_the_limit_clears_although_binary_fractions_say_less():
    assert 1.65 - 1.6 < D3.threshold == 0.05  # the trap
    frozen = dict.fromkeys((1, 2, 3), 1.65)
    found = depth(over_seeds(dict.fromkeys(frozen, 1.6), frozen))
    assert (found.state, found.observed, found.interval) == ("CLEARS", Reading(0.05), (0.05, 0.05))
    assert depth(over_seeds(dict.fromkeys(frozen, 1.600001), frozen)).state == "UNDERCUT"


@pytest.mark.parametrize(
    ("loss", "frozen", "fires"),
    [
        (1.6, 1.65, False),
        (1.600001, 1.65, True),
        (1.0, 1.65, False),
        (2.0, 1.65, True),
        (None, 1.65, None),
        (1.6, None, None),
    ],
)
def test_the_operator_of_one_run_compares_in_the_same_way(loss, frozen, fires):
    assert OPERATORS["above_reference_minus"].compare(reading(loss), 0.05, reading(frozen)).fires is fires


def test_the_interval_pairs_by_seed():
    """Losses and controls scatter by .3 nats, their differences by .01."""
    found = depth(over_seeds({1: 1.0, 2: 1.31, 3: 1.15}, {1: 1.2, 2: 1.5, 3: 1.35}))
    assert found.state == "CLEARS" and 0.1 < found.interval[0] <= found.observed.value <= found.interval[1] < 0.3


def test_a_margin_that_rounds_to_the_limit_is_not_shown_as_the_limit():
    found = depth(over_seeds({1: 1.6041, 2: 1.6042, 3: 1.6041}, {1: 1.65, 2: 1.65, 3: 1.65}))
    assert found.state == "UNDERCUT"
    assert "+0.0459 nats" in found.sentence and "+0.05 nats" not in found.sentence


@pytest.mark.parametrize(
    ("loss", "control", "state", "undecided"),
    [
        (GUESS + 0.01, GUESS + 3, "AT CHANCE", ()),
        (GUESS - 0.05, GUESS + 3, "UNDECIDED", ("control at chance",)),
        (GUESS - 0.20, GUESS - 0.05, "CLEARS", ()),
        (GUESS - 0.0005, GUESS + 3, "UNDECIDED", ("control at chance", "accuracy at chance")),
    ],
)
def test_a_loss_and_its_control_have_to_be_below_chance(loss, control, state, undecided):
    losses = {1: loss, 2: loss + 0.001, 3: loss + 0.002}
    found = depth(over_seeds(losses, dict.fromkeys(losses, control)))
    assert (found.state, found.undecided) == (state, undecided) and found.interval[0] > D3.threshold


def test_a_seed_far_from_the_others_leaves_depth_undecided():
    near = [0.40, 0.401, 0.399, 0.4005, 0.3995, 0.4, 0.4003, 0.3997, 0.4001]
    margins = dict(enumerate([*near, 0.2]))
    found = depth(over_seeds({seed: 2.0 - value for seed, value in margins.items()}, dict.fromkeys(margins, 2.0)))
    assert (found.outcome, found.state) == ("warn", "UNDECIDED") and found.interval[0] > D3.threshold
    assert "seed 9" in found.sentence and "0.05 nats" in found.sentence


@pytest.mark.parametrize(("loss", "frozen"), [(None, 2.0), (1.0, None)])
def test_a_missing_loss_is_not_applicable(loss, frozen):
    found = depth(over_seeds({1: loss}, {1: frozen}))
    assert (found.outcome, found.observed.value) == ("not_applicable", None)
    assert "the loss per token" in found.sentence


# Between tasks.


def test_a_token_run_under_2026_12_is_not_applicable_with_the_reason():
    found = depth(over_seeds({1: 1.0, 2: 1.0}, {1: 2.0, 2: 2.0}), PLAIN)
    assert (found.outcome, found.seeds, found.quantity) == ("not_applicable", 0, "margin_pp")
    assert "accuracy" in found.observed.reason and "loss per token" in found.observed.reason


def test_an_accuracy_under_the_token_edition_is_not_applicable_with_the_reason():
    runs = [
        record("r1", measurements(accuracy=0.9)),
        record("f1", measurements(accuracy=0.5), method="bp", control="frozen"),
    ]
    found = depth(runs)
    assert found.outcome == "not_applicable" and "accuracy" in found.observed.reason


def test_each_edition_names_the_headline_that_it_judges():
    assert headline_of_edition(EDITION) is TOKEN_LOSS and headline_of_edition(PLAIN) is ACCURACY
    assert headline_problem(EDITION, [TOKEN_LOSS]) == headline_problem(PLAIN, [ACCURACY]) == ""
    assert headline_problem(PLAIN, [ACCURACY, TOKEN_LOSS]) == headline_problem(PLAIN, []) == ""
    assert headline_problem(PLAIN, [TOKEN_LOSS]).endswith("--edition 2026-12:token")
    assert headline_problem(EDITION, [ACCURACY]).endswith("use --edition 2026-12")
    check_headlines([EDITION], [TOKEN_LOSS])


def test_the_default_edition_is_recommended_and_not_the_last_one(monkeypatch):
    later = dataclasses.replace(PLAIN, name="2027-01")
    monkeypatch.setattr(editions, "shipped_editions", lambda: (PLAIN, later))
    assert headline_problem(EDITION, [ACCURACY]).endswith("use --edition 2026-12")


def own_text(quantity: str, reference: str, fires: str) -> str:
    return edition_text(
        "mine", quantity, 0.1, code="X", judge="seeds_margin", reference=reference, fires=fires, unit="nats"
    )


@pytest.mark.parametrize(
    ("quantity", "fires", "valid"),
    [
        ("token_loss", "above_reference_minus", True),
        ("token_loss", "below_reference_plus", False),
        ("accuracy", "below_reference_plus", True),
        ("accuracy", "above_reference_minus", False),
        ("perplexity", "above_reference_minus", False),
    ],
)
def test_a_margin_over_seeds_needs_the_operator_of_its_metric(tmp_path, quantity, fires, valid):
    path = tmp_path / "mine.toml"
    path.write_text(own_text(quantity, quantity, fires), encoding="utf-8")
    if valid:
        assert load_edition(str(path)).rules[0].fires == fires
        return
    needed = {"below_reference_plus": "accuracy", "above_reference_minus": "token_loss"}[fires]
    with pytest.raises(
        InvalidFields, match=f"seeds_margin requires the metric {needed} in `quantity` and in `reference`"
    ):
        load_edition(str(path))


@pytest.mark.parametrize(("quantity", "reference"), [("token_loss", "accuracy"), ("accuracy", "token_loss")])
def test_quantity_and_reference_are_the_same_metric(tmp_path, quantity, reference):
    path = tmp_path / "mine.toml"
    text = own_text(quantity, reference, "above_reference_minus")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFields, match="requires the metric token_loss in `quantity` and in `reference`"):
        load_edition(str(path))


# The control of the last block.


def exact_on_top(ladder, seeds=(1, 2, 3), **changes):
    """Three seeds of fa, exact at the last block, at .2 nats below their frozen controls; a ladder_1 control a seed."""
    runs = over_seeds(dict.fromkeys(seeds, 1.8), dict.fromkeys(seeds, 2.0), cosines=(0.1, 0.2, 1.0), method="fa")
    return [*runs, *(control(f"l{seed}", loss, "ladder_1", seed=seed, **changes) for seed, loss in ladder.items())]


@pytest.mark.parametrize(
    ("ladder", "outcome", "state", "reference"),
    [
        ({}, "warn", "LAST BLOCK", "f1"),
        (dict.fromkeys((1, 2, 3), 1.9), "pass", "CLEARS", "l1"),  # better than frozen: the margin is .1
        (dict.fromkeys((1, 2, 3), 1.79), "fail", "UNDERCUT", "l1"),
        (dict.fromkeys((1, 2, 3), 2.6), "pass", "CLEARS", "f1"),  # worse than frozen: frozen stays the one to beat
    ],
)
def test_the_lower_loss_of_the_two_controls_is_the_one_to_beat(ladder, outcome, state, reference):
    found = depth(exact_on_top(ladder))
    assert (found.outcome, found.state, found.reference_run_id) == (outcome, state, reference)
    if reference == "l1":
        assert found.observed.value == pytest.approx(ladder[1] - 1.8)
        assert "last block" in found.sentence
        assert "is below" in found.sentence


def test_of_several_last_block_controls_the_lowest_loss_counts():
    records = [control(f"l{index}", loss, "ladder_1", seed=1) for index, loss in enumerate((1.9, 1.7, 2.4, None))]
    (chosen,) = last_block_controls(records).values()
    assert chosen.run_id == "l1" and headline_of(chosen.measurements) is TOKEN_LOSS
