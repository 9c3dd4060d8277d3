"""Which properties determine the sign of a credit: the negated credit does not have them."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry import methods
from fa_registry.architectures.linear_lq import PLUGIN as LINEAR
from fa_registry.architectures.resmlp import PLUGIN as RESMLP
from fa_registry.conformance import check_method
from fa_registry.conformance.declared_checks import DECLARED
from fa_registry.conformance.outcomes import SIGN
from fa_registry.conformance.small_networks import Setting, variants
from fa_registry.methods._card import SIGN_PROPERTIES
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.records import Conformance, RunSpec
from fa_registry.studies import method_conformance
from tests.reporting.runs import make_record

UNTESTED = {"credit_bridge", "dni", "dtp", "forward_forward", "mono_forward", "state_bridge"}
CASES = [
    (name, declared)
    for name, method in methods.CATALOG.members().items()
    for declared in method.card.properties
    if declared in SIGN_PROPERTIES
]


class Unsigned(DirectFeedbackAlignment):
    card = dataclasses.replace(DirectFeedbackAlignment.card, properties=("feedback_fixed",))


def first_setting(method):
    architecture = RESMLP if method.card.supports("resmlp") else LINEAR
    return Setting(method, architecture, next(iter(variants(architecture))), 0, {})


def test_the_properties_exist_and_the_methods_without_one_are_known():
    assert set(SIGN_PROPERTIES) <= set(DECLARED)
    assert {name for name, method in methods.CATALOG.members().items() if not method.card.fixes_sign} == UNTESTED


@pytest.mark.long
@pytest.mark.parametrize(("name", "declared"), CASES)
def test_the_negated_credit_fails(name, declared, monkeypatch):
    method = methods.CATALOG.get(name)
    original, with_states = type(method).credits, getattr(type(method), "credits_and_states", None)

    def negated(self, *arguments):
        return [-credit for credit in original(self, *arguments)]

    def negated_with_states(self, *arguments):
        credited = with_states(self, *arguments)
        return dataclasses.replace(credited, credits=[-credit for credit in credited.credits])

    before = DECLARED[declared](first_setting(method)).outcome
    monkeypatch.setattr(type(method), "credits", negated)
    if with_states:
        monkeypatch.setattr(type(method), "credits_and_states", negated_with_states)
    after = DECLARED[declared](first_setting(method)).outcome
    assert (before, after) in {("pass", "fail"), ("not_applicable", "not_applicable")}


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "outcome"), [(DirectFeedbackAlignment(), "pass"), (Unsigned(), "not_tested")], ids=["dfa", "no property"]
)
def test_conformance_reports_whether_the_sign_was_tested(method, outcome):
    (sign,) = [result for result in check_method(method, [RESMLP]) if result.property == SIGN]
    assert sign.outcome == outcome


@pytest.mark.parametrize(("method", "sign"), [("dfa", "tested"), ("dni", "not tested")])
def test_a_record_of_a_built_in_method_has_the_field(method, sign):
    record = dataclasses.replace(make_record("dfa", 1, 0.6, 2.0, 1e-3, 0.1), provenance={})
    record = dataclasses.replace(record, spec=RunSpec(method, "resmlp", "digits", seed=1, epochs=1))
    assert method_conformance.with_conformance(record).conformance == Conformance("own", sign=sign)
