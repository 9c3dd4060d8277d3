"""The suite can fail: every fake is caught, by the property that is about what it does."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

from fa_registry import architectures
from fa_registry.testing import assert_method, check_method
from fa_registry.training.trainer import Trainer
from tests.helpers.small import tiny_task
from tests.testing import fakes, position_fakes

CAUGHT = [
    (fakes.TrainedByBp, {"not_secretly_bp"}),
    (fakes.CallsAutograd, {"not_secretly_bp"}),
    (fakes.BpDressedAsFa, {"not_secretly_bp"}),
    (fakes.BpDressedAsWeightFa, {"not_secretly_bp"}),
    (fakes.WeightFaMeasuredAsBp, {"not_secretly_bp", "objective_gradient"}),
    (fakes.BpDressedAsDrtp, {"not_secretly_bp", "drtp_ignores_error"}),
    (fakes.BpDressedAsForwardForward, {"not_secretly_bp", "credit_ignores_blocks_above"}),
    (fakes.ReadsTheReference, {"credit_ignores_reference", "not_secretly_bp"}),
    (fakes.OneSiteTooEarly, {"output_jacobian_gives_bp"}),
    (fakes.DfaAtTheInput, {"output_jacobian_gives_bp"}),
    (fakes.FaAtTheInput, {"exact_sites_are_exact", "block_jacobian_gives_bp"}),
    (fakes.WeightFaAtTheInput, {"transposed_weights_give_bp", "objective_gradient"}),
    (fakes.DrtpAtTheInput, {"output_jacobian_gives_target_slope"}),
    (fakes.PepitaAtTheInput, {"modulation_gives_bp_at_the_input"}),
    (fakes.ExactOneSiteTooEarly, {"exact", "exact_sites_are_exact"}),
    (fakes.WrongSign, {"output_jacobian_gives_bp"}),
    (fakes.WrongSignBelow, {"block_jacobian_gives_bp"}),
    (fakes.WrongSignOnTop, {"exact_sites_are_exact", "block_jacobian_gives_bp"}),
    (fakes.WeightFaWrongSign, {"transposed_weights_give_bp", "objective_gradient"}),
    (fakes.WeightFaWrongSignOfB, {"transposed_weights_give_bp"}),
    (fakes.DrtpWrongSign, {"output_jacobian_gives_target_slope"}),
    (fakes.DrtpSeesTheError, {"drtp_ignores_error"}),
    (fakes.PepitaWrongSign, {"modulation_gives_bp_at_the_input"}),
    (fakes.PepitaSubtractsTheError, {"modulation_gives_bp_at_the_input"}),
    (fakes.Untransposed, {"block_jacobian_gives_bp"}),
    (fakes.KeepsItsMatricesElsewhere, {"post_hoc_equals_in_training"}),
    (fakes.RedrawsWhileTraining, {"credit_is_pure", "feedback_fixed"}),
    (fakes.DividesByTheBatch, {"batch_size_invariance", "output_jacobian_gives_bp"}),
    (fakes.CentresOverTheBatch, {"batch_size_invariance", "output_jacobian_gives_bp"}),
    (fakes.WrongShape, {"credit_fits_state"}),
    (fakes.NotFinite, {"credit_fits_state"}),
    (fakes.UsesTheGlobalGenerator, {"feedback_is_drawn_from_the_seed"}),
    (fakes.IgnoresItsSeed, {"feedback_is_drawn_from_the_seed"}),
    (fakes.DrawsAFreshCredit, {"credit_is_pure"}),
    (fakes.DeclaresTheUnheardOf, {"feedback_fixd"}),
]


@cache
def failed_by(fake: type) -> dict[str, str]:
    """Property → detail of what the fake fails where all sites are of one width, so that a shifted credit still fits."""
    return {result.property: result.detail for result in check_method(fake(), ["resmlp"]) if result.outcome == "fail"}


@pytest.mark.parametrize(("fake", "properties"), CAUGHT, ids=lambda value: getattr(value, "__name__", ""))
def test_the_fake_is_caught_by_name(fake, properties):
    assert properties <= set(failed_by(fake))


@pytest.mark.parametrize(
    ("fake", "only"),
    [
        (fakes.TrainedByBp, "not_secretly_bp"),
        (fakes.BpDressedAsFa, "not_secretly_bp"),
        (fakes.BpDressedAsWeightFa, "not_secretly_bp"),
        (fakes.OneSiteTooEarly, "output_jacobian_gives_bp"),
        (fakes.DfaAtTheInput, "output_jacobian_gives_bp"),
        (fakes.DrtpAtTheInput, "output_jacobian_gives_target_slope"),
        (fakes.PepitaAtTheInput, "modulation_gives_bp_at_the_input"),
        (fakes.WrongSign, "output_jacobian_gives_bp"),
        (fakes.WrongSignBelow, "block_jacobian_gives_bp"),
        (fakes.WeightFaWrongSignOfB, "transposed_weights_give_bp"),
        (fakes.DrtpWrongSign, "output_jacobian_gives_target_slope"),
        (fakes.PepitaWrongSign, "modulation_gives_bp_at_the_input"),
        (fakes.UsesTheGlobalGenerator, "feedback_is_drawn_from_the_seed"),
    ],
)
def test_these_faults_are_invisible_to_every_other_property(fake, only):
    """Why the property exists: without it the fake would pass."""
    assert list(failed_by(fake)) == [only]


@pytest.mark.parametrize("architecture", ["vit_mini", "small_resnet"])
@pytest.mark.parametrize(
    ("fake", "caught"),
    [
        (position_fakes.ForgetsPositions, "output_jacobian_gives_bp"),
        (position_fakes.PositionsForgottenBelow, "block_jacobian_gives_bp"),
    ],
)
def test_a_forgotten_number_of_positions_shows_where_there_are_positions_alone(fake, caught, architecture):
    failed = {result.property for result in check_method(fake(), [architecture]) if result.outcome == "fail"}
    assert failed == {caught}
    assert not [result for result in check_method(fake(), ["resmlp"]) if result.outcome == "fail"]


@pytest.mark.parametrize(
    ("architecture", "spread"),
    [
        ("vit_mini", position_fakes.without_the_share),
        ("small_resnet", position_fakes.without_the_share),
        ("small_resnet", position_fakes.along_the_wrong_axis),
    ],
)
def test_a_network_that_spreads_a_row_wrongly_is_caught(architecture, spread):
    honest = architectures.CATALOG.get(architecture)
    with pytest.raises(AssertionError, match="rows_keep_their_sum"):
        assert_method("dfa", [position_fakes.Misspread(honest, spread)])


def test_a_wrong_sign_is_reported_with_its_figure_case_and_seed():
    with pytest.raises(AssertionError) as caught:
        assert_method(fakes.WrongSign(), ["resmlp"], seed=5)
    headline, line = str(caught.value).splitlines()
    assert headline == "method 'dfa' fails 1 of its properties:"
    assert line.startswith("  output_jacobian_gives_bp: resmlp(d_hidden=16, num_blocks=3, w2_std=0.5), seed 5: ")
    assert "relative error 2.0e+00 at site" in line


def test_an_unknown_declaration_fails_with_the_nearest_name():
    details = {result.property: result.detail for result in check_method(fakes.DeclaresTheUnheardOf(), ["resmlp"])}
    assert details["feedback_fixd"].startswith(
        "unknown property 'feedback_fixd' (did you mean 'feedback_fixed'?); known: "
    )


def test_an_exception_of_the_method_is_a_failure_that_says_so():
    class Raises(fakes.WrongSign):
        def credits(self, feedback, inputs):
            raise ZeroDivisionError("by design")

    failed = {
        result.property: result.detail for result in check_method(Raises(), ["resmlp"]) if result.outcome == "fail"
    }
    assert failed["batch_size_invariance"].endswith("raised ZeroDivisionError: by design")


def test_a_wrong_sign_trains_like_the_honest_method():
    """No training curve would have shown it: B and −B are equally likely."""
    for method in (fakes.DirectFeedbackAlignment(), fakes.WrongSign()):
        trainer = Trainer(dataclasses.replace(tiny_task(learning_rate=0.01), method=method))
        first, second = (trainer.run_epoch()["loss_train"].value for _ in range(2))
        assert second < first
