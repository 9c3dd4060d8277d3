"""Seeds that are left out: chosen by a study file, an option, ids or an experiment, and the rest hidden in the store."""

from __future__ import annotations

from functools import partial

import pytest

from fa_registry.reporting.claims import claims
from fa_registry.reporting.pitfalls import pitfalls
from fa_registry.reporting.report_index import Sources
from tests.security.conftest import STUDY, call, judged

pytestmark = pytest.mark.long

SEEDS = 11
HIDDEN = 3  # the seed that is to be hidden


@pytest.fixture
def audit(audit):
    """Audits here trust what was logged: which runs an audit selects needs no recomputing."""
    return partial(audit, "--trust-logged")


def answer(report, method="dfa"):
    """What the form of the method states about pitfall 11: the outcome and the evidence."""
    sources = Sources.of(report)
    group = next(group for group, _ in sources.forms if group.runs[0].record.spec.method == method)
    (found,) = [pitfall for pitfall in pitfalls(group, sources) if pitfall.number == SEEDS]
    return found.outcome, found.answers[0].evidence


def left_out(report, method="dfa"):
    return [run for run in report.choice.unaudited if (run.spec.method, run.spec.control) == (method, "none")]


def two_seeds(store):
    """The study file asks for two of the three seeds that were trained."""
    path = store.folder / "tiny" / "study.toml"
    path.write_text(STUDY.replace("seeds = [1, 2, 3]", "seeds = [1, 2]"), encoding="utf-8")


def chosen_by_id(store):
    return [argument for seed in (1, 2) for run_id in store.run_ids(seed=seed) for argument in ("--run", run_id)]


def moved(store, run_ids):
    """The runs into another experiment, as MLflow's tables have it."""
    columns = ", ".join(row[1] for row in store.sql("PRAGMA table_info(experiments)")[2:])
    store.sql(
        f"INSERT INTO experiments (experiment_id, name, {columns}) "
        f"SELECT 77, 'elsewhere', {columns} FROM experiments WHERE name = 'fa_registry'"
    )
    for run_id in run_ids:
        store.sql("UPDATE runs SET experiment_id = 77 WHERE run_uuid = ?", run_id)


def test_the_whole_study_leaves_nothing_out(audit):
    _, report = audit()
    assert report.choice.unaudited == () and answer(report)[0] == "avoided"


def test_a_run_that_was_deleted_in_mlflow_is_found_and_reported(store, audit):
    two_seeds(store)
    for run_id in store.run_ids(seed=HIDDEN):
        store.sql("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", run_id)
    _, report = audit(published=True)
    assert answer(report)[0] == "violated" and {(one.status, one.deleted) for one in left_out(report)} == {
        ("complete", True)
    }
    assert "deleted in MLflow" in (store.folder / "pages" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kept", ["parameters", "files", "setting"])
def test_edited_tags_and_parameters_hide_no_run(store, audit, kept):
    two_seeds(store)
    (run_id,) = store.run_ids(method="dfa", seed=HIDDEN)
    if kept == "setting":
        store.sql("UPDATE params SET value = 'x' WHERE run_uuid = ?", run_id)
        assert [one.run_id for one in left_out(audit()[1])] == [run_id]
        return
    for name in ("fa.setting", "fa.method", "fa.study", "fa.spec"):
        store.set_tag(run_id, name, "another")
    store.set_tag(run_id, "fa.status", "failed")
    store.set_tag(run_id, "fa.kind", "scratch")
    if kept == "parameters":
        (store.artifacts(run_id) / "spec.json").unlink()
    else:
        store.sql("UPDATE params SET value = '7' WHERE run_uuid = ? AND key = 'cfg/method'", run_id)
    _, report = audit()
    (found,) = left_out(report)
    assert (found.run_id, found.finished) == (run_id, True)


def test_the_better_of_two_trials_of_a_seed_is_no_trial(store, audit):
    again = ("--epochs", "4", "--seed", "1", "--set", "architecture.d_hidden=16,architecture.num_blocks=2")
    assert call("train", "--method", "dfa", *again, "--device", "cpu", "--force").exit_code == 0
    first, second = sorted(
        store.run_ids(method="dfa", seed=1),
        key=lambda run_id: store.sql("SELECT start_time FROM runs WHERE run_uuid = ?", run_id),
    )
    others = [run_id for run_id in store.run_ids() if run_id not in (first, second)]

    def audited(chosen):
        return audit(*(argument for run_id in (*others, chosen) for argument in ("--run", run_id)))[1]

    for chosen, expected, text in ((first, "violated", "newer"), (second, "unknown", "older")):
        outcome, evidence = answer(audited(chosen))
        assert outcome == expected and text in evidence
    store.sql("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", second)
    assert answer(audit()[1])[0] == "violated"  # the study takes the newest that is left


def test_a_control_of_a_seed_that_was_trained_is_not_left_out(store, audit):
    frozen = store.run_id(control="frozen", seed=2)
    chosen = [run_id for run_id in store.run_ids() if run_id != frozen]
    _, report = audit(*(argument for run_id in chosen for argument in ("--run", run_id)))
    assert answer(report)[0] == "violated" and [one.run_id for one in report.choice.unaudited] == [frozen]


def test_a_control_of_a_seed_that_the_method_never_had_is_reported(store, audit):
    for run_id in store.run_ids(seed=HIDDEN, control="none"):  # as if they had never been trained
        for table in ("params", "tags", "metrics", "latest_metrics", "runs"):
            store.sql(f"DELETE FROM {table} WHERE run_uuid = ?", run_id)
    two_seeds(store)
    assert answer(audit()[1])[0] == "unknown"


def test_a_run_that_broke_off_is_reported_and_no_violation(store, audit):
    two_seeds(store)
    for run_id in store.run_ids(seed=HIDDEN):
        store.set_tag(run_id, "fa.status", "failed")
        (store.artifacts(run_id) / "provenance.json").unlink()
    report = audit()[1]
    assert answer(report)[0] == "unknown" and report.choice.left_out == () and len(left_out(report)) == 1


def verdict_tags(store):
    rows = store.sql("SELECT run_uuid, key, value FROM tags WHERE key LIKE 'fa.verdict%' OR key = 'fa.report'")
    kinds = dict(store.sql("SELECT run_uuid, value FROM tags WHERE key = 'fa.kind'"))
    return {row for row in rows if kinds[row[0]] == "run"}


def kinds_of_claims(report, method="dfa"):
    sources = Sources.of(report)
    group = next(group for group, _ in sources.forms if group.runs[0].record.spec.method == method)
    return {claim.key: claim.kind for claim in claims(group.runs, left_out=sources.left_out(group))}


@pytest.mark.parametrize("way", ["study file", "--seeds", "--run", "--experiment"])
def test_fewer_seeds_replace_no_verdict_allow_no_claim_and_exit_3(store, audit, way):
    audit(published=True)
    before, seeds = verdict_tags(store), dict.fromkeys(store.run_ids(seed=HIDDEN))
    arguments = {"study file": (), "--seeds": ("--seeds", "1,2"), "--run": chosen_by_id(store)}
    if way == "study file":
        two_seeds(store)
    if way == "--experiment":
        moved(store, seeds)
    code, report = audit(*arguments.get(way, ("--experiment", "fa_registry")), published=True)
    assert code == 3 and set(report.choice.left_out) == set(seeds)
    assert verdict_tags(store) == before != set()
    found = kinds_of_claims(report)
    assert found["left out"] == "open" and "may" not in found.values()
    assert answer(report)[0] == "violated" and len(judged(report, method="dfa")) == 2


def test_a_selection_of_seeds_opens_no_promotion_even_if_a_tag_names_its_audit(store, audit):
    audit("--seeds", "1", published=True)
    run_id = store.run_id(method="dfa", seed=1)
    assert verdict_tags(store) == set() and call("promote", run_id).exit_code == 2
    ((audit_id,),) = store.sql("SELECT run_uuid FROM tags WHERE key = 'fa.kind' AND value = 'audit'")
    store.set_tag(run_id, "fa.report", audit_id)
    store.set_tag(run_id, "fa.verdict", "WARN(D3 undecided)")
    result = call("promote", run_id)
    assert result.exit_code == 2 and store.run_id(method="dfa", seed=2) in result.stderr


def test_other_methods_may_be_left_out(store, audit):
    chosen = [run_id for method in ("dfa",) for run_id in store.run_ids(method=method)]
    chosen += store.run_ids(control="frozen")
    code, report = audit(*(argument for run_id in chosen for argument in ("--run", run_id)))
    assert report.choice.left_out == () and {run.record.spec.method for run in report.runs} == {"dfa", "bp"}
    assert code in (0, 1)  # 3 is the exit code if complete runs were left out
