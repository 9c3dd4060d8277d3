"""The audit verb on real small runs: exit codes, missing and tampered files, what is written back to the store."""

from __future__ import annotations

import json

import pytest

from fa_registry.commands.selection import select
from fa_registry.errors import StoreError
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.training.recompute import NO_FEEDBACK

AUDIT = ("audit", "--study", "tiny", "--device", "cpu")


def audited(registry, *more):
    result = registry(*AUDIT, "--json", *more)
    return result.exit_code, json.loads(result.stdout)


def run_of(method):
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run", "fa.method": method})
    return run


def spoil(method, name, change):
    """Change one artifact of the method's run."""
    path = MlflowTracker().artifact(run_of(method).run_id, name)
    change(path)


def entry(report, method):
    return next(
        run
        for run in report["report"]["runs"]
        if run["record"]["spec"]["method"] == method and run["record"]["spec"]["control"] == "none"
    )


def test_every_figure_is_recomputed_and_judged_against_the_frozen_control(trained):
    code, result = audited(trained)
    runs = result["report"]["runs"]
    assert {run["record"]["integrity"]["state"] for run in runs} == {"verified"}
    frozen = next(run for run in runs if run["record"]["spec"]["control"] == "frozen")
    assert frozen["verdict"]["label"] == "CONTROL"
    for run in runs:
        if run is not frozen:
            assert run["frozen_run_id"] == frozen["record"]["run_id"]
    labels = [run["verdict"]["outcome"] for run in runs if run is not frozen]
    assert code == (1 if "fail" in labels else 0)


def test_verdict_note_and_report_are_written_back_without_reopening_the_run(trained):
    _, result = audited(trained)
    run = run_of("dfa")
    assert run.state == "FINISHED"
    assert run.tags["fa.verdict.2026-05"] == entry(result, "dfa")["verdict"]["label"]
    assert run.tags[schema.TAG_REPORT] == result["audit_run_id"]
    assert run.tags["fa.verdict.2026-05"] in run.tags[schema.TAG_NOTE]
    tracker = MlflowTracker()
    assert tracker.artifact(result["audit_run_id"], "index.html")
    assert tracker.artifact(result["audit_run_id"], "audit.json")


def test_a_lost_feedback_file_makes_gamma_na_and_leaves_the_verdict(trained):
    before = entry(audited(trained)[1], "dfa")["verdict"]
    spoil("dfa", schema.FEEDBACK, lambda path: path.unlink())
    for trust in ((), ("--trust-logged",)):
        _, result = audited(trained, *trust)
        run = entry(result, "dfa")
        assert run["verdict"] == before
        assert set(map(str, run["record"]["measurements"]["sites"]["gamma"])) == {str({"na": NO_FEEDBACK})}
        assert run["record"]["measurements"]["scalars"]["gamma_deep_mean"] == {"na": NO_FEEDBACK}
        assert run["record"]["integrity"]["state"] == "unverifiable"


@pytest.mark.parametrize("name", [schema.FINAL, schema.FEEDBACK, schema.MEASUREMENTS])
def test_a_file_that_was_changed_is_an_integrity_failure(trained, name):
    def flip_last_byte(path):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(bytes(content))

    spoil("dfa", name, flip_last_byte)
    code, result = audited(trained)
    assert code == 3
    (excluded,) = result["report"]["excluded"]
    assert "integrity failure" in excluded["reason"] and "SHA-256" in excluded["reason"]


def test_a_feedback_file_of_another_run_is_an_integrity_failure(trained):
    other = MlflowTracker().artifact(run_of("fa").run_id, schema.FEEDBACK).read_bytes()
    spoil("dfa", schema.FEEDBACK, lambda path: path.write_bytes(other))
    assert audited(trained)[0] == 3


def test_without_the_frozen_control_nothing_passes(trained):
    ids = [run_of(method).run_id for method in ("bp", "fa", "dfa")]
    result = trained("audit", *(part for run_id in ids for part in ("--run", run_id)), "--json")
    report = json.loads(result.stdout)["report"]
    assert result.exit_code == 3
    assert all(run["verdict"]["label"].startswith("INCOMPLETE") for run in report["runs"])


def test_a_study_that_is_half_trained_is_incomplete_and_says_what_is_missing(trained, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace("seeds = [1]", "seeds = [1, 2]"))
    code, result = audited(trained)
    assert code == 3
    assert {one["reason"] for one in result["report"]["excluded"]} == {"no run of this specification yet"}


def test_a_half_written_run_is_refused_visibly(trained):
    tracker = MlflowTracker()
    tracker.log(run_of("dfa").run_id, tags={schema.TAG_STATUS: "running"})
    code, result = audited(trained)
    assert code == 3
    assert [one["reason"] for one in result["report"]["excluded"]] == ["half-written: fa.status is running"]


def test_a_diverged_run_is_audited_as_such(registry, workplace):
    path = workplace / "tiny" / "study.toml"
    path.write_text(path.read_text().replace("epochs = 2", "epochs = 2\nlearning_rate = 1e30"))
    registry("study", "tiny", "--device", "cpu", "--jobs", "1")
    _, result = audited(registry)
    label = entry(result, "dfa")["verdict"]["label"]
    assert label.startswith("DIVERGED") and "D1" in label


def test_runs_of_an_older_specification_are_counted_not_hidden(trained):
    trained("study", "tiny", "--device", "cpu", "--epochs", "1", "--jobs", "1")
    _, result = audited(trained)
    assert len(result["report"]["runs"]) == 4
    assert any(
        remark.startswith("4 runs carry the tag of study tiny with other specifications")
        for remark in result["report"]["remarks"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (AUDIT, "no finished run among study tiny"),
        (("audit",), "choose runs by one of --study, --experiment or --run; found none"),
        (("audit", "--study", "tiny", "--run", "x"), "found --study, --run"),
        (("audit", "--study", "tinny"), "unknown study 'tinny'"),
        (("audit", "--run", "nowhere"), "no run 'nowhere'"),
        (("audit", "--experiment", "nowhere"), "no experiment 'nowhere'"),
    ],
)
def test_an_audit_of_nothing_is_a_usage_error(registry, workplace, arguments, message):
    result = registry(*arguments)
    assert result.exit_code == 2 and message in result.stderr
    assert not (workplace / "reports").exists()


def test_asking_for_an_unknown_experiment_creates_none(registry):
    registry("audit", "--experiment", "nowhere")
    with pytest.raises(StoreError, match="known: Default$"):
        select(MlflowTracker(), experiment="nowhere")


def test_exit_zero_is_for_notebooks(trained):
    assert trained(*AUDIT, "--exit-zero").exit_code == 0


def test_an_experiment_can_be_audited_whole(trained):
    result = trained("audit", "--experiment", "fa_registry", "--json")
    assert len(json.loads(result.stdout)["report"]["runs"]) == 4
