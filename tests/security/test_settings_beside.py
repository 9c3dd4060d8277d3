"""Seeds that hide in a setting which differs in one number by less than 1 %: shown, and no answer of pitfall 11 any more."""

from __future__ import annotations

import pytest

from fa_registry.protocol.grouping import NearSettings, describe_difference
from fa_registry.records import Recipe
from tests.builders import spec
from tests.security.conftest import call, written_report
from tests.security.test_seeds import answer

pytestmark = pytest.mark.long

SHAPE = "architecture.d_hidden=16,architecture.num_blocks=2"


def train(*arguments, recipe=""):
    """Train one run of the honest store's setting, with other arguments and other fields of the recipe."""
    fields = f"{SHAPE},{recipe}" if recipe else SHAPE
    result = call("train", "--epochs", "4", "--device", "cpu", "--set", fields, *arguments)
    assert result.exit_code == 0, result.output


def run_audit(store):
    result = call("audit", "--study", "tiny", "--out", "pages", "--trust-logged")
    page = (store.folder / "pages" / "index.html").read_text(encoding="utf-8")
    return written_report(store.folder), page, result.output


def test_a_seed_that_hides_behind_a_learning_rate_is_a_violation(store):
    train("--method", "dfa", "--seed", "4", recipe="learning_rate=1.0000001e-3")
    report, page, output = run_audit(store)
    (other,) = report.choice.beside
    assert (other.spec.seed, other.finished, other.run_id) == (4, True, store.run_id(seed=4))
    outcome, evidence = answer(report)
    assert outcome == "violated" and all("0.0010000001" in text for text in (evidence, page))
    assert "similar setting" in output
    assert answer(report, "fa")[0] == "avoided"  # nothing was tried close to fa


def test_the_same_seed_in_a_close_setting_is_mentioned_and_no_violation(audit):
    train("--method", "dfa", "--seed", "1", recipe="learning_rate=0.001005")
    _, report = audit("--trust-logged")
    outcome, evidence = answer(report)
    assert outcome == "unknown" and "0.001005" in evidence


def test_a_setting_that_is_judged_in_the_same_report_is_shown_too(audit):
    train("--method", "dfa", "--seed", "4", recipe="learning_rate=0.001005")
    _, report = audit("--experiment", "fa_registry", "--trust-logged")
    assert {other.spec.seed for other in report.choice.beside} == {1, 2, 3, 4}
    assert {other.status for other in report.choice.beside} == {"complete, judged in this report"}


def test_another_setting_is_not_close(store):
    train("--method", "dfa", "--seed", "4", recipe="learning_rate=0.00102")
    report, page, _ = run_audit(store)
    assert report.choice.beside == () and "Similar settings" not in page and answer(report)[0] == "avoided"


def rate(value, **changes):
    return {"recipe": Recipe(learning_rate=value), **changes}


CLOSE = [
    (rate(1e-3), rate(1.0000001e-3, seed=7)),
    ({"epochs": 100}, {"epochs": 101}),
    ({"penalty": 0.01}, {"penalty": 0.0101}),
    ({"method_options": {"sigma": 0.3}}, {"method_options": {"sigma": 0.302}}),
    ({"recipe": Recipe(batch_size=128, weight_decay=0.01)}, {"recipe": Recipe(batch_size=129, weight_decay=0.0101)}),
]
NOT_CLOSE = [
    ({}, {"seed": 7}),
    ({"epochs": 3}, {"epochs": 4}),
    ({"penalty": 0.0}, {"penalty": 1e-12}),
    (rate(1e-3), rate(1.0000001e-3, method="fa")),
    (rate(1e-3), rate(1.02e-3)),
    ({"method_options": {"sigma": 1}}, {"method_options": {"sigma": True}}),
    ({"method_options": {"sigma": 0.3}}, {}),
    (rate(1e-3), rate(1.0000001e-3, weights="a")),
]


@pytest.mark.parametrize(("one", "other"), CLOSE)
def test_numbers_within_one_per_cent_are_close(one, other):
    first, second = spec(**one), spec(**other)
    ((judged, differing),) = NearSettings([second]).near(first)
    assert judged == second and describe_difference(differing) and NearSettings([first]).near(second)


@pytest.mark.parametrize(("one", "other"), NOT_CLOSE)
def test_what_differs_by_more_or_in_no_number_is_not(one, other):
    first, second = spec(**one), spec(**other)
    assert not NearSettings([first]).near(second) and not NearSettings([second]).near(first)
