"""check_method on the methods of the catalog, its command, and the credit reproduced in a new process."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from fa_registry import architectures, diagnostics, jsonio, methods
from fa_registry.architectures.causal_transformer import CausalTransformer
from fa_registry.architectures.resmlp import PLUGIN as RESMLP
from fa_registry.conformance import PropertyResult, assert_method, check_method
from fa_registry.conformance.__main__ import main
from fa_registry.conformance.contract_checks import not_secretly_bp
from fa_registry.conformance.declared_checks import DECLARED
from fa_registry.conformance.outcomes import cosine, relative_error, within
from fa_registry.conformance.small_networks import Setting, forms, variants
from fa_registry.conformance.suite import SIGN, UNIVERSAL
from fa_registry.errors import UnknownName, UsageError
from fa_registry.methods.dfa import DirectFeedbackAlignment
from fa_registry.methods.ep import EquilibriumPropagation
from fa_registry.records import RunSpec
from fa_registry.training.checkpoint import load_tensors, save_tensors
from fa_registry.training.probe_context import credits_under
from fa_registry.training.run_setup import RunSetup
from fa_registry.training.trainer import Trainer
from tests.conformance import fakes, position_fakes
from tests.helpers.tiny_tasks import supported, tiny_task

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

IN_A_NEW_PROCESS = """
import sys
from pathlib import Path
from tests.conformance.test_suite import credits_of, read_spec
from fa_registry.training.checkpoint import load_into, save_tensors
from fa_registry.training.run_setup import build_setup
import torch

torch.set_num_threads(1)
for folder in map(Path, sys.argv[1:]):
    task = build_setup(read_spec(folder), torch.device("cpu"))
    for tensor in task.feedback.state_dict().values():
        tensor.zero_()  # the seed alone must not bring them back: the file does
    for name in ("network", "feedback"):
        load_into(getattr(task, name), folder / f"{name}.safetensors")
    save_tensors(folder / "credits.safetensors", credits_of(task))
"""


def read_spec(folder: Path) -> RunSpec:
    return jsonio.decode(RunSpec, json.loads((folder / "spec.json").read_text()))


def credits_of(task: RunSetup) -> dict[str, torch.Tensor]:
    """c_0, c_1, … of a task on its eval batch."""
    credits = credits_under(
        task, task.feedback, diagnostics.run_forward_backward(task.network, *task.eval_batch, double=False)
    )
    return {f"c_{site}": credit.clone() for site, credit in enumerate(credits)}


def test_assert_method_accepts_a_name_an_object_and_architecture_objects():
    assert assert_method(DirectFeedbackAlignment(), ["resmlp"]) is None
    with pytest.raises(AssertionError, match="seed 5"):
        assert_method(fakes.WrongSign(), [RESMLP], seed=5)


def test_the_outcome_does_not_depend_on_the_global_generator():
    torch.manual_seed(1)
    first = check_method("fa", ["small_cnn"])
    torch.manual_seed(2)
    assert check_method("fa", ["small_cnn"]) == first
    assert isinstance(first[0], PropertyResult)


def test_unknown_names_are_refused():
    for given, error in ((("dfaa",), UnknownName), (("dfa", ["resmpl"]), UnknownName), (("dfa", []), UsageError)):
        with pytest.raises(error):  # no architecture at all is no silent pass
            check_method(*given)
    assert main(["dfaa"]) == 2


def test_variants_cover_depths_and_every_flag():
    settings = [Setting(DirectFeedbackAlignment(), RESMLP, options, 0) for options in variants(RESMLP)]
    labels = {setting.label for setting in settings}
    assert len(labels) == len(settings) == 4
    assert any("terminal_ln=False" in label for label in labels)
    assert any("residual=False" in label for label in labels)
    assert {setting.case().blocks for setting in settings} == {1, 3}


class WrongByChoice(EquilibriumPropagation):
    """Right at its default, and with contrast=state a step the wrong way."""

    def credits_and_states(self, feedback, inputs):
        credited = super().credits_and_states(feedback, inputs)
        wrong = [-credit for credit in credited.credits]
        return dataclasses.replace(credited, credits=wrong) if feedback.contrast == "state" else credited


def test_every_word_of_a_choice_is_measured():
    assert list(forms(methods.CATALOG.get("ep"))) == [{"contrast": "state"}]
    assert list(forms(methods.CATALOG.get("dfa"))) == []
    failed = {one.property: one.detail for one in check_method(WrongByChoice(), ["mlp"]) if one.outcome == "fail"}
    assert failed.keys() == {"approaches_bp", "prediction_errors_give_bp"}
    assert all(detail.startswith("contrast=state, mlp(") for detail in failed.values())


class AskedForBoth(EquilibriumPropagation):
    """Its `credits` could show anything: credits are never requested without the states, in training and while measuring."""

    def credits(self, feedback, inputs):
        raise AssertionError("a method that moves states is never asked for credits alone")


def test_what_is_measured_of_a_method_that_moves_states_is_what_trained_it():
    case = Setting(AskedForBoth(), RESMLP, {"d_hidden": 8, "num_blocks": 2}, 0).case()
    expected = case.method.credits_and_states(case.feedback, case.inputs())
    assert all(map(torch.equal, case.credits(case.inputs()), expected.credits))


def test_the_command_prints_a_line_a_property(capsys):
    assert main(["dfa", "--architecture", "resmlp"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [*(check.__name__ for check in UNIVERSAL), *DECLARED, SIGN]
    assert any(line.startswith("pass") and "not_secretly_bp" in line for line in lines)


def test_the_command_fails_when_a_property_does(capsys, monkeypatch):
    failing = [PropertyResult("exact", "fail", "by 1e-3")]
    monkeypatch.setattr("fa_registry.conformance.__main__.check_method", lambda *arguments, **options: failing)
    assert main(["dfa"]) == 1
    assert "fail" in capsys.readouterr().out


@pytest.mark.long
def test_a_new_process_recomputes_bit_equal_credits(tmp_path):
    """credit.md §5.7: spec, weights and feedback state are all it takes."""
    tasks = {method: tiny_task(**supported(method)) for method in methods.CATALOG.names()}
    for method, task in tasks.items():
        trainer = Trainer(task)
        for batch in range(0, 96, 32):
            trainer.step(task.splits.test_images[batch : batch + 32], task.splits.test_labels[batch : batch + 32])
        (tmp_path / method).mkdir()
        (tmp_path / method / "spec.json").write_text(jsonio.canonical(task.spec))
        save_tensors(tmp_path / method / "network.safetensors", task.network.state_dict())
        save_tensors(tmp_path / method / "feedback.safetensors", task.feedback.state_dict())
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IN_A_NEW_PROCESS, *(str(tmp_path / method) for method in tasks)]
    subprocess.run(command, check=True, env=environment, timeout=120)
    for method, task in tasks.items():
        found, expected = load_tensors(tmp_path / method / "credits.safetensors"), credits_of(task)
        assert found.keys() == expected.keys() == {"c_0", "c_1", "c_2"}
        assert all(torch.equal(found[name], expected[name]) for name in expected), method
        assert all(credit.abs().max() > 0 for credit in expected.values()), method


ONE = torch.tensor([1.0, 2.0, -4.0], dtype=torch.float64)


def test_relative_error_is_of_the_largest_entry():
    assert relative_error(ONE + torch.tensor([0.0, 0.4, 0.0]), ONE) == pytest.approx(0.1)
    assert relative_error(-ONE, ONE) == 2.0
    assert relative_error(ONE, ONE) == 0.0
    assert relative_error(ONE, torch.zeros(3)) == 4.0


@pytest.mark.parametrize("found", [ONE[:2], ONE * float("nan"), ONE * float("inf")])
def test_what_cannot_be_compared_is_infinitely_wrong(found):
    assert relative_error(found, ONE) == math.inf


def test_within_names_the_worst_and_its_figure():
    outcome = within(["a", "b"], [ONE, ONE * 1.5], [ONE, ONE], 1e-3)
    assert outcome.outcome == "fail" and "5.0e-01 at b" in outcome.detail
    assert within(["a"], [ONE], [ONE], 0.0).outcome == "pass"


def test_cosine_reads_several_tensors_as_one_vector():
    left, right = ([torch.tensor([first]), torch.tensor([[second]])] for first, second in ((3.0, 4.0), (4.0, 3.0)))
    assert cosine(left, right) == pytest.approx(0.96)
    assert math.isnan(cosine([torch.zeros(2)], [torch.ones(2)]))


variant = partial(pytest.param, marks=pytest.mark.long)  # what it shows, another row of the list shows too
CAUGHT = [
    (fakes.TrainedByBp, {"not_secretly_bp"}),
    variant(fakes.CallsAutograd, {"not_secretly_bp"}),
    variant(fakes.BpDressedAsFa, {"not_secretly_bp"}),
    variant(fakes.BpDressedAsWeightFa, {"not_secretly_bp"}),
    variant(fakes.WeightFaMeasuredAsBp, {"not_secretly_bp", "objective_gradient"}),
    variant(fakes.BpDressedAsDrtp, {"not_secretly_bp", "drtp_ignores_error"}),
    (fakes.BpDressedAsForwardForward, {"not_secretly_bp", "credit_ignores_blocks_above"}),
    (fakes.ReadsTheReference, {"credit_ignores_reference", "not_secretly_bp"}),
    (fakes.OneSiteTooEarly, {"output_jacobian_gives_bp"}),
    variant(fakes.DfaAtTheInput, {"output_jacobian_gives_bp"}),
    (fakes.FaAtTheInput, {"exact_sites_are_exact", "block_jacobian_gives_bp"}),
    (fakes.WeightFaAtTheInput, {"transposed_weights_give_bp", "objective_gradient"}),
    (fakes.DrtpAtTheInput, {"output_jacobian_gives_target_slope"}),
    (fakes.PepitaAtTheInput, {"modulation_gives_bp_at_the_input"}),
    (fakes.ExactOneSiteTooEarly, {"exact", "exact_sites_are_exact"}),
    variant(fakes.WrongSign, {"output_jacobian_gives_bp"}),
    variant(fakes.WrongSignBelow, {"block_jacobian_gives_bp"}),
    variant(fakes.WrongSignOnTop, {"exact_sites_are_exact", "block_jacobian_gives_bp"}),
    variant(fakes.WeightFaWrongSign, {"transposed_weights_give_bp", "objective_gradient"}),
    variant(fakes.WeightFaWrongSignOfB, {"transposed_weights_give_bp"}),
    variant(fakes.DrtpWrongSign, {"output_jacobian_gives_target_slope"}),
    (fakes.DrtpSeesTheError, {"drtp_ignores_error"}),
    variant(fakes.PepitaWrongSign, {"modulation_gives_bp_at_the_input"}),
    variant(fakes.PepitaSubtractsTheError, {"modulation_gives_bp_at_the_input"}),
    variant(fakes.Untransposed, {"block_jacobian_gives_bp"}),
    (fakes.KeepsItsMatricesElsewhere, {"post_hoc_equals_in_training"}),
    (fakes.RedrawsWhileTraining, {"credit_is_pure", "feedback_fixed"}),
    (fakes.DividesByTheBatch, {"batch_size_invariance", "output_jacobian_gives_bp"}),
    variant(fakes.CentresOverTheBatch, {"batch_size_invariance", "output_jacobian_gives_bp"}),
    (fakes.WrongShape, {"credit_fits_state"}),
    (fakes.NotFinite, {"credit_fits_state"}),
    (fakes.UsesTheGlobalGenerator, {"feedback_is_drawn_from_the_seed"}),
    variant(fakes.IgnoresItsSeed, {"feedback_is_drawn_from_the_seed"}),
    variant(fakes.DrawsAFreshCredit, {"credit_is_pure"}),
    (fakes.DeclaresTheUnheardOf, {"feedback_fixd"}),
]


@pytest.mark.parametrize(
    ("method", "outcome"),
    [(methods.CATALOG.get("dtp"), "pass"), (methods.CATALOG.get("frsf"), "pass"), (fakes.TrainedByBp(), "fail")],
    ids=["dtp", "frsf", "bp"],
)
def test_a_tied_head_neither_accuses_an_honest_method_nor_hides_backpropagation(method, outcome):
    """The embedding's update contains the exact gradient of the head, because both have one weight."""
    tied = {**next(variants(CausalTransformer())), "tied": True}
    assert not_secretly_bp(Setting(method, CausalTransformer(), tied, 0)).outcome == outcome


@cache
def failed_by(fake: type) -> dict[str, str]:
    """Property → detail of what the fake fails where all sites are of one width, so that a shifted credit still fits."""
    return {result.property: result.detail for result in check_method(fake(), ["resmlp"]) if result.outcome == "fail"}


@pytest.mark.parametrize(("fake", "properties"), CAUGHT, ids=lambda value: getattr(value, "__name__", ""))
def test_the_fake_is_caught_by_name(fake, properties):
    failed = failed_by(fake)
    assert properties <= set(failed) and (fake not in ONLY or properties == set(failed))


ONLY = (  # faults that are invisible to every other property, which is why the property exists
    *(fakes.TrainedByBp, fakes.BpDressedAsFa, fakes.BpDressedAsWeightFa, fakes.OneSiteTooEarly, fakes.DfaAtTheInput),
    *(fakes.DrtpAtTheInput, fakes.PepitaAtTheInput, fakes.WrongSign, fakes.WrongSignBelow, fakes.WeightFaWrongSignOfB),
    *(fakes.DrtpWrongSign, fakes.PepitaWrongSign, fakes.UsesTheGlobalGenerator),
)


@pytest.mark.parametrize(
    ("architecture", "fake", "caught"),
    [
        ("vit_mini", position_fakes.ForgetsPositions, "output_jacobian_gives_bp"),
        variant("small_resnet", position_fakes.PositionsForgottenBelow, "block_jacobian_gives_bp"),
        variant("small_resnet", position_fakes.ForgetsPositions, "output_jacobian_gives_bp"),
        variant("vit_mini", position_fakes.PositionsForgottenBelow, "block_jacobian_gives_bp"),
    ],
)
def test_a_forgotten_number_of_positions_shows_where_there_are_positions_alone(fake, caught, architecture):
    failed = {result.property for result in check_method(fake(), [architecture]) if result.outcome == "fail"}
    assert failed == {caught}
    assert not failed_by(fake)


@pytest.mark.parametrize(
    ("architecture", "spread"),
    [
        ("vit_mini", position_fakes.without_the_share),
        variant("small_resnet", position_fakes.without_the_share),
        ("small_resnet", position_fakes.along_the_wrong_axis),
    ],
)
def test_a_network_that_spreads_a_row_wrongly_is_caught(architecture, spread):
    honest = architectures.CATALOG.get(architecture)
    with pytest.raises(AssertionError, match="rows_keep_their_sum"):
        assert_method("dfa", [position_fakes.Misspread(honest, spread)])


def test_an_exception_of_the_method_is_a_failure_that_says_so():
    class Raises(fakes.WrongSign):
        def credits(self, feedback, inputs):
            raise ZeroDivisionError("by design")

    results = {result.property: result for result in check_method(Raises(), ["resmlp"])}
    assert results["batch_size_invariance"].outcome == "fail" and "by design" in results["batch_size_invariance"].detail


def test_a_wrong_sign_trains_like_the_honest_method():
    """No training curve would have shown it: B and −B are equally likely."""
    for method in (fakes.DirectFeedbackAlignment(), fakes.WrongSign()):
        trainer = Trainer(dataclasses.replace(tiny_task(learning_rate=0.01), method=method))
        first, second = (trainer.run_epoch()["loss_train"].value for _ in range(2))
        assert second < first
