"""Pitfalls of computing figures: each answer with the record that gives it, avoided and violated and not to be known."""

from __future__ import annotations

import pytest

from fa_registry.reporting import pitfalls as questions
from tests.reporting.asking import asked, changed, run_of

TRUSTED = {"integrity": "trusted"}
STEP = {"conventions": {"nudge_step": 0.01}, **TRUSTED}
BOTH = {"conventions": {"test_samples": 360, "eval_samples": 128}, **TRUSTED}
REDUCED = {"gradient_reduction": "sum", "g_norm_mean_ce_samples": 128}


@pytest.fixture
def said(rich):
    """(outcome, evidence) of a question about a changed run of dfa."""
    return lambda question, **changes: question(asked(rich, changed(run_of(rich), **changes)))


@pytest.mark.parametrize(
    ("step", "outcome"),
    [(-1.0, "avoided"), (-0.2, "avoided"), (-50.0, "unknown"), (-1e7, "violated"), (-1e-7, "violated")],
)
def test_norms_are_checked_by_what_a_step_along_the_gradient_does(said, step, outcome):
    """h = 10, g = 10, η = .01: to first order the loss changes by −1."""
    found, evidence = said(questions.norm_of_samples, sites={"h_norm": 10, "g_norm": 10, "nudge_bp": step}, **STEP)
    assert found == outcome and "at site 0" in evidence


def test_the_site_that_fits_worst_is_named_beside_the_one_that_fits_best(said):
    step = [-1.0, -0.5, -0.001, -1.0, -1.0]
    _, evidence = said(questions.norm_of_samples, sites={"h_norm": 10, "g_norm": 10, "nudge_bp": step}, **STEP)
    assert "1.0 times what ‖h‖·‖g‖ foretell at site 0, which fits best, and 0.0010 times at site 2" in evidence


def test_norms_without_such_a_step_or_measured_again(said):
    assert said(questions.norm_of_samples, sites={"nudge_bp": None}, **STEP)[0] == "unknown"
    assert said(questions.norm_of_samples, integrity="verified")[0] == "avoided"
    assert said(questions.norm_of_samples, integrity="mismatch", differing=("g_norm",)) == (
        "violated",
        "measured again with one L₂ norm a sample, other figures come out: g_norm[0]: logged 1e-09, recomputed 0.2",
    )


@pytest.mark.parametrize(
    ("gradient", "ratio", "outcome"), [(1e-3, 1, "avoided"), (1e-7, 1, "unknown"), (1e-3, 1e-5, "unknown")]
)
def test_a_clamp_tells_only_where_a_norm_is_near_it(said, gradient, ratio, outcome):
    found, evidence = said(questions.unclamped_cosine, sites={"g_norm": gradient, "norm_ratio": ratio}, **TRUSTED)
    assert found == outcome and "smallest median norm" in evidence
    assert ("at the median a clamp would have changed nothing" in evidence) == (outcome == "avoided")


def test_a_clamped_cosine_is_found_by_measuring_again(said):
    assert said(questions.unclamped_cosine, integrity="mismatch", differing=("gamma",))[0] == "violated"
    assert said(questions.unclamped_cosine, integrity="verified")[0] == "avoided"
    assert said(questions.unclamped_cosine, sites={"g_norm": None}, **TRUSTED)[0] == "unknown"


@pytest.mark.parametrize(
    ("precision", "gradient", "outcome"),
    [
        ("fp32", 1e-9, "avoided"),
        ("bf16", 1e-9, "avoided"),
        ("fp16", 1e-9, "violated"),
        ("fp16", 1e-3, "unknown"),
        ("odd", 1, "unknown"),
    ],
)
def test_fp16_underflows_and_others_do_not(said, precision, gradient, outcome):
    sites = {"g_norm_mean_ce": gradient}
    if precision == "odd":
        sites = {"g_norm_mean_ce": None}
    assert said(questions.no_underflow, sites=sites, spec={"precision": precision})[0] == outcome


def test_the_gradients_precision_is_shown_where_it_was_measured(said):
    assert "at least 0.998000" in said(questions.no_underflow, scalars={"fidelity_min": 0.998})[1]
    assert "exponents" in said(questions.no_underflow, scalars={"fidelity_min": None})[1]


@pytest.mark.parametrize(
    ("own", "mean", "conventions", "outcome"),
    [
        (0.128, 0.001, REDUCED, "avoided"),
        (0.001, 0.001, REDUCED, "violated"),
        (0.128, 0.001, {**REDUCED, "gradient_reduction": "mean"}, "violated"),
        (0.128, 0.001, {}, "unknown"),
        (0.128, None, REDUCED, "unknown"),
    ],
)
def test_the_two_gradients_differ_by_the_size_of_the_batch(said, own, mean, conventions, outcome):
    found, _ = said(
        questions.per_sample_gradients, sites={"g_norm": own, "g_norm_mean_ce": mean}, conventions=conventions
    )
    assert found == outcome


@pytest.mark.parametrize(
    ("accuracy", "changes", "outcome"),
    [
        (337 / 360, BOTH, "avoided"),
        (120 / 128, BOTH, "violated"),
        (0.5, BOTH, "unknown"),
        (0.5, {**BOTH, "integrity": "verified"}, "avoided"),
        (0.5, {"conventions": {"test_samples": 128, "eval_samples": 128}, **TRUSTED}, "avoided"),
        (0.5, TRUSTED, "unknown"),
        (None, BOTH, "unknown"),
    ],
)
def test_an_accuracy_of_the_whole_test_set_is_a_count_of_its_samples(said, accuracy, changes, outcome):
    if accuracy == 120 / 128:  # 0.9375 · 360 = 337.5
        assert accuracy * 360 != round(accuracy * 360)
    assert said(questions.accuracy_of_test_set, scalars={"accuracy": accuracy}, **changes)[0] == outcome


@pytest.mark.parametrize(
    ("state", "outcome"),
    [("verified", "avoided"), ("mismatch", "violated"), ("trusted", "unknown"), ("unverifiable", "unknown")],
)
def test_the_mode_of_the_layers_is_known_by_measuring_again(said, state, outcome):
    differing = ("rho",) if state == "mismatch" else ()
    assert said(questions.eval_mode, integrity=state, differing=differing)[0] == outcome
