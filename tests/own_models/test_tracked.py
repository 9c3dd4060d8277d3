"""A loop of the author's own over models whose backward pass is not their gradient: nothing unchecked is written down."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.nn import functional

import fa_registry
from fa_registry.evidence import user_loops
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from tests.own_models.models import CLASSES, Case, build
from tests.own_models.test_reference import ON_GRADIENT, drawn_credits, figures

pytestmark = pytest.mark.long


def factory() -> torch.nn.Module:
    """Build the model of `tracked`, for an audit."""
    return build("custom", 32, 3).model


def follow(case: Case, gradient: str, epochs: int = 3, **more):
    """Track a loop of this many epochs; return the run and the epochs' measurements."""
    optimizer = torch.optim.SGD(case.model.parameters(), lr=0.01)
    credits = drawn_credits(case)
    options = {"sites": case.sites, "eval": (case.x, case.y), "method": "mine", "credit": lambda *_: credits}
    measured = []
    with fa_registry.track(case.model, **options, gradient=gradient, **more) as run:
        for _ in range(run.done, epochs):
            optimizer.zero_grad()
            functional.cross_entropy(case.model(case.x), case.y).backward()
            optimizer.step()
            measured.append(run.epoch(test_accuracy=1 / CLASSES))
    return run, measured


def rows(measurements, name: str) -> list[float | None]:
    return [reading.value for reading in measurements.sites[name]]


def test_no_epoch_shows_a_gradient_that_is_none(workplace, caplog):
    case = build("custom", 32, 3)
    with caplog.at_level(logging.WARNING):
        _, measured = follow(case, "backward")
    for epoch in measured:
        assert "reference_check" not in epoch.sites  # epochs 1, 2 and 3 rest on the check of epoch 0
        for name in ON_GRADIENT:
            assert set(rows(epoch, name)) == {None}, name
    # the end is checked again, and may find other numbers, but each sentence is logged once
    warnings = [record.message for record in caplog.records if "backward pass is not its gradient" in record.message]
    assert warnings and len(warnings) == len(set(warnings))


def test_the_last_epoch_has_the_true_gradient_of_the_model_as_it_is_then(workplace):
    case = build("custom", 32, 3)
    credits = drawn_credits(case)
    last = follow(case, "forward")[1][-1]
    norms, cosines = figures(case, credits)
    assert rows(last, "g_norm") == pytest.approx(norms, rel=1e-5)
    assert rows(last, "gamma") == pytest.approx(cosines, rel=1e-5)


def test_a_loop_that_is_resumed_checks_at_once(workplace):
    """Its first epoch is none of 0, 10, 20: what the earlier part found is not known any more."""
    case = build("custom", 32, 3)
    with pytest.raises(KeyboardInterrupt), fa_registry.track(case.model, case.sites, (case.x, case.y), "mine") as run:
        run.epoch()
        raise KeyboardInterrupt
    with fa_registry.track(case.model, case.sites, (case.x, case.y), "mine", resume=True) as run:
        assert run.done == 1
        epoch = run.epoch()
    assert set(rows(epoch, "g_norm")) == {None} and rows(epoch, "reference_check")[0] > 0.1


@pytest.mark.parametrize("gradient", ["backward", "forward"])
def test_an_audit_recomputes_what_was_tracked(workplace, gradient):
    case, path = build("custom", 32, 3), f"{__name__}:factory"
    run, _ = follow(case, gradient, factory=path)
    tracker = MlflowTracker()
    record = read_record(tracker, tracker.get(run.run_id))
    assert user_loops.of_own_loop(tracker, record, [path]).integrity.state == "verified"
