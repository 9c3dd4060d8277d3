"""Waivers are shown with what they really touched; an expired one touched nothing."""

from __future__ import annotations

import dataclasses

from fa_registry.protocol.grouping import groups
from fa_registry.records import Waiver
from fa_registry.reporting.pages.index import waiver_rows


def shown(report, *waivers):
    changed = dataclasses.replace(report, waivers=waivers)
    return [(row.waiver.rule, row.scope, row.applied) for row in waiver_rows(changed, groups(changed))]


def test_who_was_waived_is_named_and_expired_waivers_come_last(rich):
    rows = waiver_rows(rich, groups(rich))
    assert [(row.waiver.rule, row.scope, row.applied, row.waiver.expired) for row in rows] == [
        ("D3", "method fa", ("fa, seed 42", "fa, seed 123"), False),
        ("D1", f"run {rich.waivers[1].run}", (), True),
    ]
    turned = dataclasses.replace(rich, waivers=rich.waivers[::-1])
    assert waiver_rows(turned, groups(turned)) == rows


def test_a_waiver_lays_claim_to_its_own_rule_run_and_method_alone(rich):
    fa = next(run.record.run_id for run in rich.runs if run.record.spec.method == "fa")
    base = Waiver("D3", "why", "who", "2026-01-01", "2026-12-31")
    assert shown(rich, dataclasses.replace(base, run=fa[:8])) == [("D3", f"run {fa[:8]}", ("fa, seed 42",))]
    assert shown(rich, dataclasses.replace(base, rule="D2", method="fa")) == [("D2", "method fa", ())]
    assert shown(rich, dataclasses.replace(base, method="dfa")) == [("D3", "method dfa", ())]


def test_what_another_waiver_waived_is_not_laid_to_an_expired_one(rich):
    valid = Waiver("D3", "why", "who", "2026-01-01", "2026-12-31", method="fa")
    expired = dataclasses.replace(valid, reason="once", expiry="2026-01-31", expired=True)
    assert shown(rich, expired, valid) == [
        ("D3", "method fa", ("fa, seed 42", "fa, seed 123")),
        ("D3", "method fa", ()),
    ]
