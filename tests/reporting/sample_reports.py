"""Made-up audits for the tests of the pages: a small one of older runs, and one with every state there is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fa_registry.protocol.engine import judge_all, second_opinions
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport, Exclusion, Finding, Reading, RunRecord, Waiver
from tests.reporting.runs import CARDS, HOSTILE, SEEDS, SITES, TRACEBACK, diverged, full, make_record, without_feedback


def make_report(
    runs: Sequence[RunRecord], leading: str = "2026-05", others: Sequence[str] = (), **changes
) -> AuditReport:
    """The records judged by shipped editions, each against the frozen control of its seed. changes: fields of the report."""
    edition = load_edition(leading)
    waivers = changes.get("waivers", ())
    opinions = second_opinions(runs, [load_edition(name) for name in others], waivers)
    report = AuditReport(
        "digits, first audit",
        "study digits",
        edition.reference,
        judge_all(runs, edition, waivers),
        cards=CARDS,
        opinions=opinions,
    )
    return dataclasses.replace(report, **changes)


def small_report() -> AuditReport:
    """bp and dfa with two seeds and frozen controls, as 0.1 logged them; one run diverged, one has lost its feedback file."""
    frozen = [make_record("bp", seed, 0.80 + 0.01 * (seed == 42), 1.02, 0.4, 0.0, control="frozen") for seed in SEEDS]
    bp = [make_record("bp", seed, 0.955 + 0.004 * (seed == 42), 3.0, 0.15, 1.0) for seed in SEEDS]
    dfa = [make_record("dfa", seed, 0.79 + 0.02 * (seed == 42), 3e8, 6e-6, 0.1) for seed in SEEDS]
    runs = [*bp, without_feedback(dfa[0]), diverged(dfa[1]), *frozen]
    excluded = (
        Exclusion("f" * 32, HOSTILE, "still running: last epoch 3 of 30"),
        Exclusion("e" * 32, "dfa-9", "half-written: the run broke", TRACEBACK),
    )
    remarks = ("Γ is specific to the feedback used in training.", f"A tag says {HOSTILE}.")
    return make_report(runs, excluded=excluded, remarks=remarks)


def full_report(seeds: tuple[int, ...] = SEEDS) -> AuditReport:
    """Every state of edition 2026-12, with two second opinions, a waiver in force and an expired one, and crashes."""
    frozen = [full(make_record("bp", seed, 0.80, 1.02, 0.4, 0.0, control="frozen")) for seed in seeds]
    bp = [full(make_record("bp", seed, 0.97, 3.0, 1e-5, 1.0), gain=[0.3] * SITES) for seed in seeds]
    fa = [full(make_record("fa", seed, 0.70, 5e8, 1e-5, 0.25), gain=[1.1e-5] * SITES) for seed in seeds]
    dfa = [full(make_record("dfa", seed, 0.81 + 0.03 * (seed == 42), 3e8, 0.02, 0.1)) for seed in seeds]
    noisy = full(make_record("drtp", 42, 0.84, 3.0, 1e-6, 0.1), {"fidelity_min": 0.4}, fidelity=[0.4] * SITES)
    crashed = dataclasses.replace(noisy.measurements, failures={"rho": TRACEBACK})
    runs = [*bp, *fa, *dfa, dataclasses.replace(noisy, measurements=crashed), *frozen]
    waivers = (
        Waiver("D3", HOSTILE, "A. Person", "2026-05-01", "2026-12-31", method="fa"),
        Waiver("D1", "known", "B. Person", "2025-01-01", "2025-06-30", run=dfa[0].run_id[:8], expired=True),
    )
    report = make_report(runs, "2026-12", ("2026-05", "2026-04"), waivers=waivers)
    return dataclasses.replace(report, cards={**CARDS, **DIAGNOSTIC_CARDS})


DIAGNOSTIC_CARDS = {
    "diagnostics/rho": {
        "name": "rho",
        "symbol": "ρ_l",
        "line": "Pearson of ⟨c_l, εv⟩ with the change of the loss",
        "quantities": ["rho", "rho_samples", "rho_bp"],
        "cannot_tell": "whether a step of the training's size helps",
    },
    "diagnostics/feature_drift": {
        "name": "feature_drift",
        "symbol": "‖W_T − W_0‖/‖W_0‖",
        "line": "relative distance from the initial value",
        "quantities": ["feature_drift/*"],
        "cannot_tell": "whether the features became better",
    },
    "diagnostics/absent": {"name": "absent", "symbol": "?", "line": "", "quantities": ["other"], "cannot_tell": ""},
}


def a_finding(rule: str, outcome: str = "fail", **fields) -> Finding:
    """A finding by hand, where what is tested is what a page makes of it."""
    given = {
        "title": "a rule",
        "quantity": "growth",
        "observed": Reading(1.0),
        "required": "at most 50",
        "run_id": "r1",
    }
    return Finding(**{"rule": rule, "outcome": outcome, "sentence": f"{rule}: required, observed", **given, **fields})
