"""Readings refuse NaN; every record goes JSON → object → JSON unchanged; identities and settings."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_registry import jsonio
from fa_registry.jsonio import parse_fields
from fa_registry.records import (
    NOT_DUE,
    AuditReport,
    EditionReference,
    Exclusion,
    FigureVerdict,
    Finding,
    Flag,
    Integrity,
    Margin,
    MeasuredFigure,
    Measurements,
    Option,
    Published,
    PublishedFigure,
    Reading,
    Recipe,
    ReferenceSetting,
    Reproduction,
    RunAudit,
    RunRecord,
    RunSpec,
    Series,
    Verdict,
)

SPEC = RunSpec(
    "dfa",
    "resmlp",
    "digits",
    42,
    150,
    {"a": 1},
    {"d_hidden": 256, "terminal_ln": True, "w2_std": 0.01},
    Recipe(learning_rate=0.01),
    penalty=0.01,
)
MEASURED = Measurements(
    {"gamma": (Reading(None, "no feedback"), Reading(0.1)), "h_norm": (Reading(3.0), Reading.of(math.inf))},
    {"accuracy": Reading(0.5)},
    {"threads": 1, "eval_digest": "ab"},
)
RECORD = RunRecord(
    "r1",
    "dfa · s42",
    "resmlp",
    "complete",
    SPEC,
    MEASURED,
    {"h_L": Series([Reading(1.0), Reading(2.0)])},
    Integrity("verified", ("ok",)),
    {"spec.json": "ff"},
    {"seed": 42},
    {"versions": {"torch": "2"}},
)
FINDING = Finding("D1", "scale", "fail", "growth_max", Reading(80.0), "≤ 50", "It grew.", "r1", site=2, first_fire=3)
REPORT = AuditReport(
    "t",
    "all",
    EditionReference("2026-05", "title", "file", "ab", {"D1": 50.0}),
    (RunAudit(RECORD, (FINDING,), Verdict("fail", "FAIL(D1)", (Flag("D1"), Flag("D3", "undecided", "below"))), "r2"),),
    (Exclusion("r3", "n", "half-written"),),
    ("remark",),
    {"methods/dfa": {"line": "x"}},
)


@pytest.mark.parametrize("record", [SPEC, MEASURED, RECORD, FINDING, REPORT], ids=lambda record: type(record).__name__)
def test_json_object_json_is_identical(record):
    text = jsonio.canonical(record)
    again = jsonio.decode(type(record), json.loads(text))
    assert again == record
    assert jsonio.canonical(again) == text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_reading_refuses_what_is_not_finite_and_of_keeps_it_as_a_reason(number):
    with pytest.raises(ValueError, match="use Reading.of"):
        Reading(number)
    kept = Reading.of(number)
    assert kept.value is None
    assert kept.reason == f"not finite ({number})"
    assert kept.not_finite


def test_reading_has_either_a_value_or_a_reason():
    for arguments in ((None, ""), (1.0, "why")):
        with pytest.raises(ValueError, match="either a value or a reason"):
            Reading(*arguments)
    assert not Reading(None, "no feedback").not_finite
    assert not Reading(0.0).not_finite


def test_reading_in_json_is_the_number_or_na():
    assert jsonio.canonical([Reading(0.5), Reading(None, "why")]) == '[0.5,{"na":"why"}]'


def test_identity_is_the_digest_and_changes_with_every_field():
    changed = {
        "method": "fa",
        "architecture": "vit",
        "dataset": "svhn",
        "seed": 1,
        "epochs": 1,
        "method_options": {},
        "architecture_options": {},
        "recipe": Recipe(),
        "penalty": 0.0,
        "penalty_embedding": 0.01,
        "control": "frozen",
        "precision": "tf32",
        "device_class": "cuda",
        "weights": "ab12",
    }
    assert set(changed) == {field.name for field in dataclasses.fields(RunSpec)}
    identities = {dataclasses.replace(SPEC, **{name: value}).identity for name, value in changed.items()}
    assert SPEC.identity not in identities
    assert len(identities) == len(changed)


def test_setting_blanks_what_runs_of_one_setting_may_differ_in():
    other = dataclasses.replace(
        SPEC,
        method="bp",
        seed=7,
        penalty=0.0,
        control="frozen",
        method_options={},
        recipe=dataclasses.replace(SPEC.recipe, credit_norm="none"),
    )
    assert other.setting == SPEC.setting
    for name, value in {"epochs": 1, "architecture": "vit", "dataset": "svhn", "device_class": "cuda"}.items():
        assert dataclasses.replace(SPEC, **{name: value}).setting != SPEC.setting


def test_method_label():
    assert SPEC.method_label == "dfa+pen λ=0.01"
    assert dataclasses.replace(SPEC, penalty=0.0).method_label == "dfa"
    assert dataclasses.replace(SPEC, method="bp", control="frozen", penalty=0.0).method_label == "frozen"
    assert dataclasses.replace(SPEC, weights="ab12").method_label == "dfa+pen λ=0.01 adopted"


@pytest.mark.parametrize(
    ("option", "good", "bad", "text"),
    [
        (Option(8, "draws", least=1), 1, 0, "expected at least 1, found 0"),
        (Option(0.5, "nudge", above=0), 1e-9, 0.0, "expected more than 0, found 0.0"),
        (
            Option("error", "conditioning", choices=("error", "target")),
            "target",
            "label",
            "expected one of error, target, found 'label'",
        ),
        (Option(3, "blocks", choices=(0, 1, 3)), 1, 7, "expected one of 0, 1, 3, found 7"),
    ],
)
def test_a_value_is_refused_with_what_was_expected(option, good, bad, text):
    for valid in (option.default, good, str(good)):
        assert parse_fields({"name": option.kind}, {"name": valid})[1] == []
    assert parse_fields({"name": option.kind}, {"name": bad}) == ({}, [f"name: {text}"])


@pytest.mark.parametrize(
    ("default", "good", "bad"), [(1.0, -1e30, 1e31), (1, -1_000_000, 1_000_001), ("x", "", None), (True, "no", 2)]
)
def test_without_bounds_only_the_type_and_the_size_count(default, good, bad):
    kinds = {"name": Option(default, "free").kind}
    assert parse_fields(kinds, {"name": good})[1] == [] != parse_fields(kinds, {"name": bad})[1]


READINGS = st.lists(
    st.one_of(
        st.just(Reading(None, "one reason", NOT_DUE)),
        st.floats().map(Reading.of),
        st.text(min_size=1).map(lambda why: Reading(None, why)),
    )
)


@given(READINGS)
def test_a_series_holds_what_was_put_in(readings):
    series = Series(readings)
    assert list(series) == readings == [series[index] for index in range(len(series))]
    assert list(series[1:]) == readings[1:]
    assert jsonio.encode(series) == jsonio.encode(tuple(readings))
    assert Series.__from_json__(jsonio.encode(series)) == series


def test_equal_series_are_equal_and_others_are_not():
    one = Series([Reading(1.0), Reading(None, "why")])
    assert one == Series(iter([Reading(1.0), Reading(None, "why")])) and hash(one) == hash(Series(one))
    assert one != Series([Reading(1.0), Reading(None, "another reason")])
    assert one != Series([Reading(2.0), Reading(None, "why")])
    assert one != [Reading(1.0), Reading(None, "why")]
    alike = (Reading(1.0), Reading(None, "why"))  # as training holds the readings of a moment
    assert one == alike and alike == one and hash(one) == hash(alike) and one != alike[:1]


FIGURE = PublishedFigure(
    "growth_max",
    "dfa",
    Published(values=(2.9, 11.0)),
    Margin(0.5, "log10", "a factor of three"),
    ReferenceSetting("resmlp", "cifar10", 100, {"terminal_ln": False}, {"batch_size": 256}),
    "A Paper",
    penalty=0.01,
)


def test_both_ways():
    rows = (
        FigureVerdict(FIGURE, "differs", "why", (MeasuredFigure(42, "r", Reading(1.0)),), interval_90=(0.1, 0.2)),
        FigureVerdict(PublishedFigure("x", "bp", Published(never=True), Margin(0.0), None, "s"), "not measured", "why"),
    )
    found = Reproduction("study", "title", "digest", rows, ("remark",))
    text = jsonio.canonical(found)
    again = jsonio.decode(Reproduction, jsonio.encode(found))
    assert again == found and jsonio.canonical(again) == text


def test_the_label_is_that_of_runs():
    assert FIGURE.label == "dfa+pen λ=0.01"
    assert PublishedFigure("x", "bp", Published(value=1.0), Margin(1.0), None, "s", control="frozen").label == "frozen"
