"""Re-initialisation and replay: no false alarm for any method, and on another machine tolerance where bits cannot agree."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fa_registry.conformance import credit_check
from fa_registry.errors import IntegrityError
from fa_registry.evidence.replay import RecordedEpochs
from fa_registry.evidence.replay_from_seed import (
    ADOPTED,
    RecordedTraining,
    asked_steps,
    credit_in_training,
    replay_first_steps,
)
from fa_registry.records.configurations import is_undecidable
from fa_registry.training.checkpoint import save_tensors
from fa_registry.training.trainer import Trainer
from tests.helpers.covering import every_method
from tests.helpers.nets import of
from tests.helpers.tiny_tasks import supported, tiny_task

ELSEWHERE = "trained with AVX512, measured with AVX2"


def recorded_epoch(folder, **changes) -> tuple[RecordedTraining, Trainer]:
    """What an honest run of one epoch records."""
    task = tiny_task(**changes, epochs=1)
    paths = {role: folder / f"{role}.safetensors" for role in ("initial", "early", "feedback")}
    digests = {"initial": save_tensors(paths["initial"], task.network.state_dict())}
    trainer = Trainer(task)
    trainer.run_epoch()
    digests["early"] = save_tensors(paths["early"], trainer.early.tensors)
    digests["feedback"] = save_tensors(paths["feedback"], task.feedback.state_dict())
    recorded = RecordedEpochs(trainer.chain.digests)
    return RecordedTraining(
        **paths, early_step=trainer.early.step, digests=digests, epochs=1, recorded=recorded
    ), trainer


def outcomes(found) -> dict[str, str]:
    return {check.subject: check.outcome for check in found.checks}


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, id="wide"), pytest.param({"w2_std": 0.01}, id="branches all but zero", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("method", every_method())
def test_no_shipped_method_raises_an_alarm(tmp_path, method, options):
    where = supported(method)
    architecture = where.setdefault("architecture_options", {"d_hidden": 16, "num_blocks": 2})
    if where.get("architecture", "resmlp") == "resmlp":
        where = {**where, "architecture_options": {**architecture, **options}}
    training, trainer = recorded_epoch(tmp_path, **where, penalty=0.01)
    found = replay_first_steps(tiny_task(**where, penalty=0.01, epochs=1), training)
    assert "differs" not in outcomes(found).values(), found.checks
    assert outcomes(found)["initial weights"] == outcomes(found)["first steps"] == "agrees"
    assert (found.steps, found.all_steps) == (8, 12)
    assert credit_in_training(trainer.setup).outcome == "agrees"


def test_a_gradient_that_is_small_relative_to_the_states_raises_no_alarm(tmp_path, monkeypatch):
    """dtp subtracts what its inverses make of two states that nearly agree: after 100 epochs of digits the last bit of a gradient
    was 8e-3 of its credit, and two honest runs of three were a mismatch. So both sides take the gradient by the same products.
    """
    _, trainer = recorded_epoch(tmp_path, method="dtp")
    monkeypatch.setattr(
        credit_check, "SAME_CREDIT", 1e-6
    )  # 4e-5 where the gradient was taken of the summed loss instead
    with torch.no_grad():
        trainer.setup.network.embed.weight.mul_(10)
    assert credit_in_training(trainer.setup).outcome == "agrees"


@pytest.mark.parametrize(
    "changes",
    [
        of("small_resnet", method="weight_fa"),
        of("vit_mini", method="dfa"),
        of("linear_lq", method="dfa", dataset="lq"),
        {"method": "dfa", "control": "ladder_1"},
        {"method": "dfa", "precision": "bf16"},
        {"method": "fa", "batch_size": 1437},
    ],
    ids=["maps and BatchNorm", "tokens", "process noise", "a ladder", "bf16", "one step an epoch"],
)
def test_no_kind_of_network_or_training_raises_an_alarm(tmp_path, changes):
    if changes.get("architecture") == "linear_lq":
        changes = {**changes, "architecture_options": {"num_blocks": 2, "learn": True, "sigma": 0.3}}
    training, trainer = recorded_epoch(tmp_path, **changes)
    found = replay_first_steps(tiny_task(**changes, epochs=1), training)
    assert set(outcomes(found).values()) == {"agrees"}, found.checks
    assert credit_in_training(trainer.setup).outcome == "agrees"


def test_the_task_stays_as_it_was_drawn(tmp_path):
    training, _ = recorded_epoch(tmp_path)
    task, fresh = tiny_task(epochs=1), tiny_task(epochs=1)
    replay_first_steps(task, training)
    for module in ("network", "feedback"):
        states = [getattr(one, module).state_dict() for one in (task, fresh)]
        assert all(torch.equal(states[0][name], tensor) for name, tensor in states[1].items())
    assert all(weight.grad is None for weight in task.network.parameters())


@pytest.mark.parametrize(
    ("shift", "elsewhere", "outcome"),
    [
        (1e-7, "", "differs"),
        (1e-7, ELSEWHERE, "agrees"),
        (1e-5, ELSEWHERE, "not possible"),
        (0.1, ELSEWHERE, "differs"),
    ],
)
def test_on_another_machine_a_draw_may_differ_in_its_last_bits_alone(tmp_path, shift, elsewhere, outcome):
    training, _ = recorded_epoch(tmp_path)
    shifted = {name: tensor * (1 + shift) for name, tensor in tiny_task().feedback.state_dict().items()}
    digest = save_tensors(training.feedback, shifted)
    digests = {**training.digests, "feedback": digest}
    training = dataclasses.replace(training, digests=digests, exact=not elsewhere, elsewhere=elsewhere)
    found = {check.subject: check for check in replay_first_steps(tiny_task(epochs=1), training).checks}["feedback"]
    assert found.outcome == outcome
    assert is_undecidable(found) == (outcome == "not possible")
    assert outcome != "not possible" or ELSEWHERE in found.detail


@pytest.mark.parametrize(
    ("share", "elsewhere", "outcome"),
    [
        (0.05, "", "differs"),
        (0.05, ELSEWHERE, "agrees"),
        (0.3, ELSEWHERE, "not possible"),
        (0.7, ELSEWHERE, "differs"),
    ],
)
def test_on_another_machine_the_first_steps_may_end_a_share_of_the_way_apart(tmp_path, share, elsewhere, outcome):
    """Each recorded weight is this share of its way beyond the value that the replay reaches."""
    training, trainer = recorded_epoch(tmp_path)
    start = Trainer(tiny_task(epochs=1)).state()
    moved = {name: tensor + share * (tensor - start[name]) for name, tensor in trainer.early.tensors.items()}
    digests = {**training.digests, "early": save_tensors(training.early, moved)}
    training = dataclasses.replace(training, digests=digests, exact=not elsewhere, elsewhere=elsewhere)
    found = {check.subject: check for check in replay_first_steps(tiny_task(epochs=1), training).checks}["first steps"]
    assert found.outcome == outcome
    assert is_undecidable(found) == (outcome == "not possible")


@pytest.mark.parametrize(("shift", "outcome"), [(1e-7, "agrees"), (1e-5, "not possible"), (0.1, "differs")])
def test_feedback_that_rests_is_compared_by_its_own_size(tmp_path, shift, outcome):
    """It has no way; divided by it, the last bit of a draw on another processor ended `inf of the way`."""
    training, trainer = recorded_epoch(tmp_path)
    shifted = {
        name: tensor * (1 + shift) if name.startswith("feedback.") else tensor
        for name, tensor in trainer.early.tensors.items()
    }
    digests = {**training.digests, "early": save_tensors(training.early, shifted)}
    training = dataclasses.replace(training, digests=digests, exact=False, elsewhere=ELSEWHERE)
    assert outcomes(replay_first_steps(tiny_task(epochs=1), training))["first steps"] == outcome


def test_a_digest_of_another_draw_is_concluded_by_the_replay(tmp_path):
    """Only the digest of the initial weights is recorded: the first steps show whether they are those of the seed."""
    training, _ = recorded_epoch(tmp_path)
    digest = dataclasses.replace(training, initial=None, initial_content="0" * 64, exact=False, elsewhere=ELSEWHERE)
    assert outcomes(replay_first_steps(tiny_task(epochs=1), digest))["initial weights"] == "agrees"
    unasked = replay_first_steps(tiny_task(epochs=1), digest, "off").checks[0]
    assert is_undecidable(unasked) and ELSEWHERE in unasked.detail
    other = replay_first_steps(tiny_task(epochs=1, seed=4), digest)
    assert outcomes(other)["first steps"] == "differs" and is_undecidable(other.checks[0])
    same = dataclasses.replace(digest, exact=True, elsewhere="")
    assert outcomes(replay_first_steps(tiny_task(epochs=1), same))["initial weights"] == "differs"


@pytest.mark.parametrize("method", ["dfa", "bp", "fa", "weight_fa"])
def test_on_another_machine_the_first_steps_go_the_same_way(tmp_path, method):
    """Another machine is weights that differ by rounding; another way is another method's."""
    training, _ = recorded_epoch(tmp_path, method=method)
    elsewhere = dataclasses.replace(training, exact=False, elsewhere=ELSEWHERE)
    task = tiny_task(method=method, epochs=1)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in task.network.parameters():
            weight.mul_(1 + 1e-7 * torch.randn(weight.shape, generator=draw))
    assert outcomes(replay_first_steps(task, elsewhere))["first steps"] == "agrees"
    assert outcomes(replay_first_steps(task, training))["first steps"] == "differs"
    (tmp_path / "other").mkdir()
    other, _ = recorded_epoch(tmp_path / "other", method="drtp")
    held = {**other.digests, "early": other.digests["early"]}
    swapped = dataclasses.replace(elsewhere, early=other.early, digests={**elsewhere.digests, "early": held["early"]})
    assert outcomes(replay_first_steps(task, swapped))["first steps"] == "differs"


def test_a_changed_file_is_an_integrity_error(tmp_path):
    training, _ = recorded_epoch(tmp_path)
    training.early.write_bytes(training.early.read_bytes()[:-1] + b"\x01")
    with pytest.raises(IntegrityError, match=r"early\.safetensors: expected SHA-256"):
        replay_first_steps(tiny_task(epochs=1), training)


def test_what_was_trained_elsewhere_cannot_be_drawn_again():
    task = tiny_task()
    adopted = dataclasses.replace(task, spec=dataclasses.replace(task.spec, weights="0" * 64))
    assert {check.detail for check in replay_first_steps(adopted, RecordedTraining()).checks} == {ADOPTED}
    assert set(outcomes(replay_first_steps(adopted, RecordedTraining())).values()) == {"not possible"}


@pytest.mark.parametrize(("value", "steps"), [("auto", "auto"), ("all", "all"), ("off", "off"), ("12", 12), (1, 1)])
def test_what_may_be_asked_for(value, steps):
    assert asked_steps(value) == steps
