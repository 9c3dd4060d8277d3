"""The middle of a training, and the values by epoch: honest at its start and at its end, and something else between."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fa_registry import methods
from fa_registry.evidence import remeasure
from fa_registry.evidence.replay_plan import PlannedReplay
from fa_registry.evidence.replay_record import drawn_nonce, ranked
from fa_registry.studies import training_job as workflow
from fa_registry.tracking import schema
from fa_registry.training.trainer import Trainer
from tests.security.conftest import call
from tests.security.test_replay import SIZES
from tests.security.test_replay_from_seed import audited_seeds, checks, decoded, detail, nonce, only_mismatch

pytestmark = pytest.mark.long


class TurnsToBackpropagation(Trainer):
    """The method's own first eight steps, then backpropagation; every file is then written by the registry itself."""

    taken = 0

    def step(self, images, labels):
        self.taken += 1
        if self.taken > 8:
            self.setup = dataclasses.replace(self.setup, method=methods.CATALOG.get("bp"))
        return super().step(images, labels)


class TurnsAndHurries(TurnsToBackpropagation):
    """Takes ten larger steps by backpropagation for each, so that four epochs gain something."""

    def step(self, images, labels):
        for group in self.optimizer.param_groups if self.taken >= 8 else ():
            group["lr"] = 1e-2
        for _ in range(9 if self.taken >= 8 else 0):
            super().step(images, labels)
        return super().step(images, labels)


class Stops(Trainer):
    """Trains eight steps and pretends to take the rest."""

    taken = 0

    def step(self, images, labels):
        self.taken += 1
        if self.taken == 9:
            self.optimizer.step = lambda credited: None
        return super().step(images, labels)


@pytest.fixture
def forged(store, monkeypatch):
    """forged(trainer, method=…, …): trains a seed (2) of the tiny study by that trainer; returns the run's id.

    The new run takes the place of the honest ones, which are deleted, unless it is to be `beside` them.
    """

    def train(trainer: type[Trainer], beside: bool = False, **spec: str) -> str:
        honest = {"method": spec["method"], "control": spec.get("control", "none"), "seed": int(spec.get("seed", "2"))}
        for run_id in () if beside else store.run_ids(**honest):
            store.sql("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", run_id)
        monkeypatch.setattr(workflow, "Trainer", trainer)
        options = [text for name, value in {"seed": "2", **spec}.items() for text in (f"--{name}", value)]
        result = call("train", *options, "--epochs", "4", *SIZES, "--study", "tiny", "--force", "--json")
        assert result.exit_code == 0, result.output
        monkeypatch.undo()
        monkeypatch.chdir(store.folder)
        return json.loads(result.stdout)["run_id"]

    return train


def form_of(report, run_id: str) -> str:
    """The Markdown form of the run's group, as it was written."""
    spec = next(run.record.spec for run in report.runs if run.record.run_id == run_id)
    (page,) = Path("pages/forms").glob(f"{spec.method}*.md")
    return page.read_text(encoding="utf-8")


# Attack 6.


@pytest.fixture
def bp_after_eight_steps(forged) -> str:
    return forged(TurnsToBackpropagation, method="dfa")


def claims_another_processor(store, run_id: str) -> None:
    """Write another processor into a run's files, so that no audit here can demand its bits."""
    store.change_json(run_id, schema.MEASUREMENTS, lambda held: held["conventions"].update(processor="Other CPU, AVX2"))
    store.write_manifest(run_id)


@pytest.mark.long
def test_a_claimed_other_processor_does_not_hide_the_middle(store, audit, forged):
    """No digest can show it elsewhere; the audit judges what its own training of the specification gives."""
    honest = figure(audit()[1], store.run_id(method="dfa", seed=2))
    run_id = forged(TurnsAndHurries, method="dfa")
    claims_another_processor(store, run_id)
    _, report = audit("--replay", "auto")
    (run,) = (run for run in report.runs if run.record.run_id == run_id)
    assert run.record.recorded_result.value > honest + 0.1
    assert figure(report, run_id) == honest


def figure(report, run_id: str) -> float:
    """The judged accuracy of a run."""
    (record,) = (run.record for run in report.runs if run.record.run_id == run_id)
    return record.measurements.scalars["accuracy"].value


@pytest.mark.long
def test_an_honest_run_of_another_processor_keeps_its_verdict(store, audit):
    audited = audit("--replay", "auto")[1].runs
    before = {run.record.run_id: run.verdict.label for run in audited}
    for run_id in store.run_ids():
        claims_another_processor(store, run_id)
    _, report = audit("--replay", "auto")
    assert {run.record.run_id: run.verdict.label for run in report.runs} == before and not report.excluded
    assert {run.verdict.proof for run in (*audited, *report.runs)} == {"replayed"}
    assert {run.outcome for run in report.replay.runs} == {"agrees"} and len(report.replay.runs) == 12
    for run in report.runs:
        assert run.record.recorded_result == run.record.measurements.scalars["accuracy"]


@pytest.mark.long
def test_the_verdict_says_that_the_run_was_not_chosen(store, audit, bp_after_eight_steps):
    given = nonce(store, bp_after_eight_steps, chosen=False)
    code, report = audit(*given, published=True)
    assert not report.excluded and report.replay.nonce == given[1]
    assert bp_after_eight_steps not in {run.run_id for run in report.replay.runs}
    assert "whole training" not in checks(report, bp_after_eight_steps)
    for text in (form_of(report, bp_after_eight_steps), Path("pages/index.html").read_text(encoding="utf-8")):
        assert "all of it for 1 of 3 seeds" in text
    assert "the first 8 steps" in store.tags(bp_after_eight_steps)[schema.TAG_NOTE]


@pytest.mark.long
def test_verify_takes_the_same_choice(store, bp_after_eight_steps):
    chosen, other = (nonce(store, bp_after_eight_steps, chosen) for chosen in (True, False))
    assert call("verify", "--study", "tiny", "--nonce", "mine").exit_code == 2  # no hexadecimal digits
    for options, states in ((chosen, ["mismatch"]), (other, []), (("--replay", "all"), ["mismatch"])):
        found = json.loads(call("verify", "--study", "tiny", *options, "--json").stdout)
        assert [one["integrity"]["state"] for one in found if one["integrity"]["state"] != "verified"] == states


# A5: a control that is its own first steps.


@pytest.mark.long
def test_a_control_that_stopped_after_eight_steps_is_found_whatever_the_nonce(store, audit, forged):
    run_id = forged(Stops, method="bp", control="frozen")
    code, report = audit(*nonce(store, run_id, chosen=False))
    assert code == 3 and only_mismatch(report) == run_id
    assert "step 8" in detail(report, run_id, "first steps")


@pytest.mark.long
def test_such_a_control_is_found_where_a_whole_replay_is_too_much(audit, forged):
    run_id = forged(Stops, method="bp", control="frozen")
    code, report = audit("--replay", "auto", "--replay-budget", "0.000001s")
    assert code == 3 and only_mismatch(report) == run_id
    assert "step 8" in detail(report, run_id, "first steps")
    assert "whole training" not in checks(report, run_id) and not report.replay.runs


# Attack 7: every row of the series but the last.


@pytest.fixture
def invented_curves(store) -> str:
    """A run whose accuracy is .97 and whose growth is 200 at every epoch but the last one."""
    run_id = store.run_id(method="dfa", seed=1)
    invented = {"accuracy": 0.97, "growth": 200.0, "growth_max": 200.0}
    store.change_series(run_id, lambda epoch, name: invented.get(name) if epoch < 4 else None)
    return run_id


SERIES_AS_LOGGED = " are as logged"  # the end of a sentence about values by epoch


@pytest.mark.long
def test_curves_that_were_not_recomputed_are_labelled_everywhere(store, audit, invented_curves):
    _, report = audit(*nonce(store, invented_curves, chosen=False), published=True)
    run = next(run for run in report.runs if run.record.run_id == invented_curves)
    assert run.record.integrity.state == "verified" and run.record.trajectory["accuracy"][1].value == 0.97
    page = Path("pages/index.html").read_text(encoding="utf-8")
    for text in (form_of(report, invented_curves), store.tags(invented_curves)[schema.TAG_NOTE], page):
        assert SERIES_AS_LOGGED in text


def test_all_runs_replayed_whole_leave_no_middle(store, audit, forged, bp_after_eight_steps, invented_curves):
    """Five attacks in one store: each is named with its first wrong epoch; the other runs agree."""
    honest = store.run_id(method="dfa", seed=3)
    chain = store.json(honest, schema.PROVENANCE)[schema.EPOCH_CHAIN]
    with_honest_digests = forged(TurnsToBackpropagation, method="dfa", seed="3")
    assert chain != store.json(with_honest_digests, schema.PROVENANCE)[schema.EPOCH_CHAIN]
    other_digest, other_losses = store.run_id(method="fa", seed=1), store.run_id(method="fa", seed=2)
    for run_id, change in (
        (with_honest_digests, lambda held: held.update({schema.EPOCH_CHAIN: chain})),
        (other_digest, lambda held: held[schema.EPOCH_CHAIN].__setitem__(3, "0" * 64)),
    ):
        store.change_json(run_id, schema.PROVENANCE, change)
        store.write_manifest(run_id)
    store.change_series(other_losses, lambda *key: {(2, "loss_train"): 0.1}.get(key))
    code, report = audit("--replay", "all")
    expected = {  # the first epoch that differs, and in what
        bp_after_eight_steps: ("epoch 1 ", "state differs"),
        with_honest_digests: ("epoch 1 ", "measurements differ"),
        other_digest: ("epoch 3 ", "state differs"),
        other_losses: ("epoch 2 ", "loss_train: logged 0.1"),
        invented_curves: ("epoch 0 ", "200.0"),
    }
    assert code == 3 and {one.run_id for one in report.excluded} == set(expected)
    for run_id, texts in expected.items():
        assert all(text in detail(report, run_id, "whole training") for text in texts)
    found = checks(report, bp_after_eight_steps)
    assert found.pop("whole training") == "differs" and set(found.values()) == {"agrees"}
    (replayed,) = (run for run in report.replay.runs if run.run_id == bp_after_eight_steps)
    assert (replayed.outcome, replayed.detail) == ("differs", detail(report, bp_after_eight_steps, "whole training"))
    outcomes = [run.outcome for run in report.replay.runs]
    assert report.replay.asked == "all" and (len(outcomes), outcomes.count("agrees")) == (12, 7)


@pytest.mark.long
def test_where_all_runs_are_replayed_whole_nothing_is_as_logged(store, audit):
    _, report = audit("--replay", "all", published=True)
    assert {run.outcome for run in report.replay.runs} == {"agrees"}
    form = form_of(report, store.run_id(method="dfa", seed=1))
    assert SERIES_AS_LOGGED not in form and SERIES_AS_LOGGED not in Path("pages/index.html").read_text(encoding="utf-8")


# Without an attack.


def test_by_default_one_run_of_every_group_and_every_control_is_replayed_whole(store, audit):
    _, report = audit("--replay", "auto")
    specs = [decoded(store, run.run_id) for run in report.replay.runs]
    assert {run.outcome for run in report.replay.runs} == {"agrees"} and len(report.replay.nonce) == 16
    assert sorted((spec.method, spec.control) for spec in specs) == sorted(
        [("bp", "none"), ("fa", "none"), ("dfa", "none"), *[("bp", "frozen")] * 3]
    )
    again = audit("--nonce", report.replay.nonce)[1]
    assert again.replay == dataclasses.replace(report.replay, typed=True) and not report.replay.typed


def test_the_author_cannot_choose_which_run_is_replayed(store):
    ids = audited_seeds(store, store.run_id(method="dfa", seed=2))
    chosen = [min(ids, key=lambda run_id: ranked(f"{number:x}", run_id)) for number in range(300)]
    assert all(chosen.count(run_id) > 40 for run_id in ids)
    assert len({drawn_nonce() for _ in range(20)}) == 20


def test_a_number_of_steps_or_off_replays_no_run_whole(store, audit):
    run_id = store.run_id(method="dfa", seed=1)
    for replay in ("8", "off"):
        _, report = audit("--run", run_id, "--replay", replay)
        assert report.replay.runs == () and "whole training" not in checks(report, run_id)
    assert audit("--run", run_id, "--trust-logged")[1].replay is None


@pytest.mark.long
def test_states_that_a_study_keeps_are_replayed_one_epoch_further(store, audit, monkeypatch):
    def too_long(outcomes, measuring):
        """No training fits into the budget, but some of its epochs do."""
        return {each.run.run_id: PlannedReplay(fits=False) for each in outcomes if not each.whole}

    monkeypatch.setattr(remeasure, "planned_replays", too_long)
    study = store.folder / "tiny" / "study.toml"
    study.write_text(study.read_text().replace("cost =", "keep_states = 2\ncost ="), encoding="utf-8")
    assert call("study", "tiny", "--seeds", "7", "--jobs", "1", "--device", "cpu").exit_code == 0
    run_id = store.run_id(method="dfa", seed=7)
    assert store.json(run_id, schema.PROVENANCE)[schema.KEPT_STATES] == [1, 2]
    _, report = audit("--seeds", "7", "--replay", "auto")
    assert checks(report, run_id)["kept states"] == "agrees"
    path = store.artifacts(run_id) / schema.after_kept_state(2)
    path.write_bytes((store.artifacts(run_id) / schema.after_kept_state(1)).read_bytes())
    store.write_manifest(run_id)
    code, report = audit("--seeds", "7", "--replay", "auto")
    assert code == 3 and only_mismatch(report) == run_id
    assert "epoch 3 " in detail(report, run_id, "kept states")
