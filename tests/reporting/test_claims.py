"""Claims follow from findings: one test a rule, fires and does not."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.records import Reading
from fa_registry.reporting.claims import claims

HEALTHY = {"accuracy": 0.9, "scale": 3.0, "gradient": 0.1, "gamma": 0.2}


@pytest.fixture
def said(record, judged):
    """The claims of one dfa run, as one text; frozen accuracy .80."""

    def claim_text(status="complete", frozen=True, **changes):
        run = dataclasses.replace(record("dfa", 42, **{**HEALTHY, **changes}), status=status)
        control = [record("bp", 42, 0.80, 1.0, 0.4, 0.0, control="frozen")] if frozen else []
        return " ".join(f"{claim.kind}: {claim.text}" for claim in claims(judged([run, *control]).runs[:1]))

    return claim_text


def test_a_pass_may_claim_depth_and_alignment(said):
    text = said()
    assert "may: Its accuracy may be reported" in text and "may: Γ may be read as alignment" in text
    assert "not:" not in text


def test_both_scale_and_reference_take_the_alignment_back(said):
    text = said(scale=1e9, gradient=1e-6)
    assert (
        "not: Γ may not be read as credit alignment: the stream has exploded and the reference gradient is at its floor"
        in text
    )
    assert "tiny but exact" in text and "may:" not in text


def test_scale_alone_and_reference_alone(said):
    assert "not: The stream has exploded" in said(scale=1e9)
    assert "Γ may not be read" not in said(scale=1e9)
    reference = said(gradient=1e-6)
    assert "not: Γ may not be read as credit alignment: the reference gradient is at its floor" in reference
    assert "exploded" not in reference


def test_an_accuracy_below_frozen_takes_the_depth_back(said):
    assert "not: The trained blocks are not shown to beat frozen random ones" in said(accuracy=0.81)
    assert "not shown to beat" not in said(accuracy=0.83)


def test_without_a_frozen_control_nothing_is_decided(said):
    text = said(frozen=False)
    assert "open: The protocol could not be completed" in text and "no frozen control" in text
    assert "may:" not in text


def test_broken_runs_support_nothing(said):
    assert "not: Training diverged" in said(status="diverged")
    assert "open: The run broke off" in said(status="failed")


def test_a_missing_gamma_is_named_with_its_reason(report):
    run = next(run for run in report.runs if run.record.integrity.state == "unverifiable")
    assert any(
        claim.text.startswith("No alignment figure exists: the feedback file is missing") for claim in claims([run])
    )


def test_noise_is_not_called_exact(record, judged):
    run = record("dfa", 42, 0.9, 3.0, 1e-6, 0.1)
    scalars = {**run.measurements.scalars, "fidelity_min": Reading(0.5)}
    noisy = dataclasses.replace(run, measurements=dataclasses.replace(run.measurements, scalars=scalars))
    assert not any("tiny but exact" in claim.text for claim in claims(judged([noisy]).runs))


def test_several_seeds_are_counted_and_named(report):
    dfa = [run for run in report.runs if run.record.spec.method == "dfa"]
    depth = next(claim for claim in claims(dfa) if "frozen random ones" in claim.text)
    assert depth.text.endswith("(in 2 of 2 seeds: 42, 123).")
    assert depth.run_ids == tuple(run.record.run_id for run in dfa)
    assert not any("One seed" in claim.text for claim in claims(dfa))


def test_one_seed_says_so_and_a_control_says_nothing(report):
    assert any("One seed" in claim.text for claim in claims(report.runs[:1]))
    control = next(run for run in report.runs if run.verdict.outcome == "control")
    assert claims([control]) == ()
