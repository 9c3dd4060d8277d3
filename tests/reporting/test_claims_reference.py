"""Scale and reference: exploded, at the floor, converged, noisy; each claim fires for its state and for no other."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.records import Reading, RunAudit
from fa_registry.reporting.claims_measured import reference_claims
from tests.reporting.scenes import a_finding


def runs_of(report, method) -> list[RunAudit]:
    return [run for run in report.runs if run.record.spec.method == method and run.record.spec.control == "none"]


def kinds(runs) -> list[str]:
    return [claim.kind for claim in reference_claims(runs)]


def text(runs) -> str:
    return " ".join(claim.text for claim in reference_claims(runs))


def changed(run: RunAudit, **scalars) -> RunAudit:
    measured = run.record.measurements
    measured = dataclasses.replace(measured, scalars={**measured.scalars, **scalars})
    return dataclasses.replace(run, record=dataclasses.replace(run.record, measurements=measured))


def test_an_exploded_network_with_a_tiny_but_exact_reference_is_walked_back_and_explained(rich):
    fa = runs_of(rich, "fa")
    back, note = reference_claims(fa)
    assert (back.kind, note.kind) == ("not", "note")
    assert "the stream has exploded and the reference gradient is at its floor; it is tiny but exact" in back.text
    assert "fidelity at least 0.999999" in back.text  # of 0.9999996: a lower bound is rounded down
    measured = fa[0].record.measurements
    for needed in (
        "a running vector, the stream",
        "it is 16.0 after the embedding and between 8.00×10⁹ and 8.32×10⁹ after the last block",
        "the largest growth in one block is between 156 and 157",
        "small, 1.00×10⁻⁵ for one sample, because the scale of the stream divides it",
        "single precision still computes it exactly",
        "at least 0.999999",
        "safety constant of 1e-8",
        "the lost scale",
        "in float64 without that constant: a true direction, but of a reference without scale",
        "refines the published reading",
        "(in 2 of 2 seeds: 42, 123)",
    ):
        assert needed in note.text, needed
    assert measured.sites["h_norm"][0].value == 16.0


def test_its_figures_are_those_of_the_runs(rich):
    (run, _) = runs_of(rich, "fa")
    assert "growth in one block is 77.0" in text([changed(run, growth_max=Reading(77.0))])
    assert "growth in one block" not in text([changed(run, growth_max=Reading(None, "not measured"))])


def test_noise_is_not_called_exact(rich):
    run = changed(runs_of(rich, "fa")[0], fidelity_min=Reading(0.98))
    assert kinds([run]) == ["not"] and "exact" not in text([run])
    assert "exact" not in text([changed(run, fidelity_min=Reading(None, "no float64 pass"))])


def test_without_a_layer_norm_nothing_divides_the_stream_again(rich):
    run = runs_of(rich, "fa")[0]
    options = {**run.record.spec.architecture_options, "terminal_ln": False}
    spec = dataclasses.replace(run.record.spec, architecture_options=options)
    assert kinds([dataclasses.replace(run, record=dataclasses.replace(run.record, spec=spec))]) == ["not"]


def test_a_stream_that_did_not_grow_explains_no_small_reference(rich):
    run = dataclasses.replace(runs_of(rich, "bp")[0], findings=(a_finding("x", quantity="g_norm", state="AT FLOOR"),))
    assert kinds([run]) == ["not"]
    assert "Γ = 0.750 may not be read as credit alignment: the reference gradient is at its floor" in text([run])
    unknown = changed(run, gamma_deep_mean=Reading(None, "no feedback"))
    assert "No credit may be judged by this reference: the reference gradient is at its floor" in text([unknown])
    assert "Γ" not in text([unknown])
    assert "exploded" not in text([run])


def test_scale_alone_leaves_gamma_alone(rich):
    dfa = runs_of(rich, "dfa")
    assert kinds(dfa) == ["not"]
    assert text(dfa).startswith("The stream has exploded") and "Γ may not" not in text(dfa)


def test_a_fitted_network_may_be_read(rich):
    bp = runs_of(rich, "bp")
    assert kinds(bp) == ["may"]
    assert "small because the network has fitted its task" in text(bp)
    assert (
        "its gain is healthy (0.300 of the output error arrives at the last site); its size is no reason against reading Γ"
        in text(bp)
    )
    exact = [changed(run, gamma_deep_mean=Reading(None, "exact by construction")) for run in bp]
    assert kinds(exact) == ["may"] and "Γ" not in text(exact)


def test_a_claim_about_an_exploded_stream_without_a_gamma_speaks_of_none(rich):
    exact = [changed(run, gamma_deep_mean=Reading(None, "exact")) for run in runs_of(rich, "fa")]
    back, note = reference_claims(exact)
    assert "Γ" not in back.text and "The Γ here" not in note.text


def test_a_noisy_reference_gives_no_gamma(rich):
    drtp = runs_of(rich, "drtp")
    assert kinds(drtp) == ["not"]
    assert text(drtp).startswith("The reference gradient is numerical noise: single and double precision do not agree")
    assert "(cosine 0.400000)" in text(drtp)


@pytest.mark.parametrize("state", ["OK", "ODD", ""])
@pytest.mark.parametrize("quantity", ["growth", "g_norm"])
def test_any_other_state_says_nothing(rich, quantity, state):
    run = dataclasses.replace(runs_of(rich, "fa")[0], findings=(a_finding("D1", quantity=quantity, state=state),))
    assert kinds([run]) == []


def test_a_state_of_another_quantity_says_nothing(rich):
    run = dataclasses.replace(
        runs_of(rich, "fa")[0], findings=(a_finding("D1", quantity="accuracy", state="EXPLODED"),)
    )
    assert kinds([run]) == []
