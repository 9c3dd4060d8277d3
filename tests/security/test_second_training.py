"""On another machine an audit judges its own training: no honest store is accused for it, and no report gains by it."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from fa_registry.audits import promote
from fa_registry.errors import IntegrityError
from fa_registry.evidence import replayer
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport, Reading
from fa_registry.training.trainer import Trainer
from tests.builders import measurements, over_seeds
from tests.security.conftest import call, judged
from tests.security.test_middle import claims_another_processor
from tests.security.test_settings_beside import train


class RoundedOtherwise(Trainer):
    """Training on a machine that rounds otherwise: after 20 steps, the weights have drifted by 2 %."""

    taken = 0

    def step(self, images, labels):
        sums = super().step(images, labels)
        self.taken += 1
        if self.taken == 20:
            with torch.no_grad():
                for parameter in self.parameters:
                    parameter *= 1.02
        return sums


@pytest.mark.long
def test_no_honest_store_is_accused_where_a_second_training_differs(store, audit, monkeypatch):
    train("--method", "bp", "--control", "frozen", "--seed", "1", "--force")  # the control of a seed, trained twice
    for run_id in store.run_ids():
        claims_another_processor(store, run_id)
    before = {run.record.spec.identity: run.verdict.label for run in audit("--replay", "8")[1].runs}
    monkeypatch.setattr(replayer, "Trainer", RoundedOtherwise)
    _, report = audit("--experiment", "fa_registry", "--replay", "auto", published=True)
    assert not report.excluded
    second = [run for run in report.runs if run.record.recorded_result]
    assert len(second) == 12 and len(report.runs) == 13
    assert any(run.record.recorded_result != run.record.measurements.scalars["accuracy"] for run in second)
    for run in judged(report, control="none"):
        assert run.frozen_run_id and not run.frozen_doubt
        assert run.verdict.label == before[run.record.spec.identity]
    monkeypatch.undo()
    monkeypatch.chdir(store.folder)
    result = call("verify", "--study", "tiny", "--replay", "off", "--json")
    assert result.stdout, result.output
    found = json.loads(result.stdout)
    assert "mismatch" not in {one["integrity"]["state"] for one in found}


@pytest.mark.parametrize(("accuracy", "is_refused"), [(0.2, True), (0.49, False)])
def test_a_model_is_promoted_only_if_the_recorded_weights_have_the_outcome_of_the_second_training(
    monkeypatch, accuracy, is_refused
):
    """A report that claims a second training can claim any metric, and no file contradicts it."""
    edition = load_edition("2026-12")
    runs = over_seeds(dict.fromkeys(range(3), 0.5), dict.fromkeys(range(3), 0.3))
    claimed = [
        run if run.spec.control == "frozen" else dataclasses.replace(run, recorded_result=Reading(accuracy))
        for run in runs
    ]
    report = AuditReport("an audit", "three seeds", edition.reference, judge_all(claimed, edition))
    assert report.runs[0].verdict.outcome == "pass"

    def read_record(tracker, run):
        (claim,) = [one for one in claimed if one.run_id == run]
        recorded = measurements(accuracy=accuracy)
        answers = dataclasses.replace(recorded, conventions=claim.measurements.conventions, sample_scores={})
        return dataclasses.replace(claim, measurements=answers, recorded_result=None)

    monkeypatch.setattr(promote, "read_record", read_record)
    tracker = type("Tracker", (), {"get": staticmethod(lambda run_id: run_id)})
    if is_refused:
        with pytest.raises(IntegrityError, match="second training"):
            promote.check_second_training(tracker, report, 0, "audit")
    else:
        promote.check_second_training(tracker, report, 0, "audit")
