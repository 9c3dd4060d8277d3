"""A seed that is trained again is no further sample: its newest complete run counts, and the others are listed."""

from __future__ import annotations

import json

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.reporting.claims import claims
from fa_registry.tracking import schema
from fa_registry.training.checkpoint import load_tensors
from tests.security.conftest import call, judged
from tests.security.test_controls import EDITIONS, SIZES, depth_of, form, negate_head, opinions, promoted_aliases
from tests.security.test_middle import claims_another_processor
from tests.security.test_replay_from_seed import measure_again_and_record


def train_again(seed: int, control: str = "none") -> str:
    """Train the bp run of a seed once more; returns the new run's id."""
    spec = ("--method", "bp", "--control", control, "--seed", str(seed), "--epochs", "4", "--set", SIZES)
    result = call("train", *spec, "--device", "cpu", "--force", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["run_id"]


def bp_group(report):
    return next(group for group in groups(report) if group.method == "bp")


@pytest.mark.long
def test_a_seed_that_was_trained_four_times_is_one_seed_in_figures_forms_and_claims(store, audit):
    alone = bp_group(audit()[1])
    again = [train_again(1), train_again(1), train_again(1)]
    code, report = audit("--experiment", "fa_registry", published=True)
    assert code in (0, 1)
    group = bp_group(report)
    assert [run.record.run_id for run in group.runs] == [again[-1], *(run.record.run_id for run in alone.runs[1:])]
    assert [run.record.run_id for run in group.duplicates] == [alone.runs[0].record.run_id, *again[:2]]
    # the repetitions have equal weights: they are judged as the run that counts, and the margin is that of three seeds
    for run in judged(report, method="bp", control="none"):
        finding, before = depth_of(run), depth_of(alone.runs[0])
        assert (finding.observed, finding.interval, finding.seeds) == (before.observed, before.interval, 3)
        assert run.verdict == alone.runs[0].verdict
    texts = [claim.text for claim in claims(group.runs)] + [form(store, "bp")]
    assert not any(" of 6 seeds" in text or "seeds: 1, 1" in text for text in texts)
    (remark,) = [one for one in report.remarks if one.startswith("Seed 1 of bp")]
    assert all(run_id in remark for run_id in [alone.runs[0].record.run_id, *again])


@pytest.fixture
def retouched(store) -> str:
    """A second run of seed 1 whose final weights were changed afterwards, measured and recorded consistently.

    It claims another processor. Otherwise it would contradict the other runs of its specification, see test_repetitions.
    """
    run_id = train_again(1)
    tensors = load_tensors(store.artifacts(run_id) / schema.FINAL)
    store.reweigh(run_id, {name: tensor * 1.05 for name, tensor in tensors.items()})
    measure_again_and_record(store, run_id)
    store.retell(run_id)
    claims_another_processor(store, run_id)
    return run_id


@pytest.mark.long
def test_the_better_of_two_runs_of_a_seed_that_is_older_is_never_a_pass(store, audit, retouched):
    newest = train_again(1)
    ordered = dict.fromkeys([newest, *store.run_ids()])  # the order of the ids on the command line decides nothing
    chosen = [argument for run_id in ordered for argument in ("--run", run_id)]
    _, report = audit(*chosen, "--editions", ",".join(EDITIONS), published=True)
    group = bp_group(report)
    assert group.runs[0].record.run_id == newest
    for judgement in opinions(report, retouched):
        (finding,) = [one for one in judgement.findings if one.rule == "duplicate"]
        assert (finding.outcome, finding.state) == ("warn", "SUPERSEDED")
        assert newest in finding.sentence
        assert judgement.verdict.outcome != "pass"
    leading = opinions(report, retouched)[0]
    assert depth_of(leading).outcome == "skipped" and leading.verdict.label == "WARN(duplicate superseded)"
    assert promoted_aliases(retouched) == ["warn"]


def test_the_control_of_a_seed_trained_twice_is_the_newest_and_one_that_differs_decides_nothing(store, audit):
    newest = train_again(1, "frozen")
    _, report = audit("--experiment", "fa_registry")
    runs = [run for run in judged(report, control="none") if run.record.spec.seed == 1]
    assert {(run.frozen_run_id, run.frozen_doubt) for run in runs} == {(newest, "")}
    negate_head(store, newest)
    claims_another_processor(store, newest)  # otherwise both controls would be a mismatch
    code, report = audit("--experiment", "fa_registry")
    runs = [run for run in judged(report, control="none") if run.record.spec.seed == 1]
    assert code == 3 and {run.verdict.outcome for run in runs} == {"incomplete"}
    assert all(newest in run.frozen_doubt and run.frozen_run_id == "" for run in runs)
