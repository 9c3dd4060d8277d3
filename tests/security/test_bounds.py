"""Numbers that ask for more than any run may: each costs its own run alone, with a sentence that names the number."""

from __future__ import annotations

from fa_registry import jsonio, process_ownership
from fa_registry.audits.dataframes import runs as runs_frame
from fa_registry.tracking import schema
from tests.security.conftest import call, integrity_of

HUGE = 2**62


def conventions(**changes):
    return schema.MEASUREMENTS, lambda held: held["conventions"].update(changes)


def provenance(**changes):
    return schema.PROVENANCE, lambda held: held.update(changes)


def spec(**changes):
    return schema.SPEC, lambda held: held.update(changes)


def batch(size):
    return schema.SPEC, lambda held: held["recipe"].update(batch_size=size)


ATTACKS = [
    (conventions(gamma_null_draws=10**6), "conventions.gamma_null_draws:"),
    (conventions(threads=0), "conventions.threads:"),
    (conventions(threads="many"), "conventions.threads:"),
    (conventions(eval_samples=-1), "conventions.eval_samples:"),
    (provenance(epochs_run=HUGE), "epochs_run:"),
    (provenance(points=HUGE), "points:"),
    (spec(epochs=HUGE), "epochs:"),
    (batch(HUGE), "recipe.batch_size:"),
]


def attack(store, run_id, name, change):
    """Change one number of a run and record everything again, the tag of its specification included."""
    store.change_json(run_id, name, change)
    store.write_manifest(run_id)
    if name == schema.SPEC:
        store.set_tag(run_id, schema.TAG_SPEC, jsonio.digest_of(store.json(run_id, name)))


def test_a_number_without_bounds_costs_its_own_run_alone(store, audit):
    """`threads = 100000` ended the audit of all runs with a MemoryError, as the library of threads had no room for them."""
    *honest, threads = store.run_ids(method="bp", control="none") + store.run_ids(control="frozen", seed=1)
    attacked = [run_id for run_id in store.run_ids() if run_id not in (*honest, threads)][: len(ATTACKS)]
    attack(store, threads, *conventions(threads=100_000))
    for run_id, (change, _) in zip(attacked, ATTACKS, strict=True):
        attack(store, run_id, *change)
    code, report = audit("--experiment", "fa_registry")
    assert code == 3  # a run whose integrity fails
    excluded = {one.run_id: one for one in report.excluded}
    assert set(excluded) == set(attacked)
    for run_id, (_, text) in zip(attacked, ATTACKS, strict=True):
        assert text in excluded[run_id].reason and excluded[run_id].kind == "integrity"
    judged = {run.record.run_id: run for run in report.runs}
    assert set(judged) == {*honest, threads}
    for run_id in honest:
        assert integrity_of(report, run_id).state == "verified"
    refused = integrity_of(report, threads)
    assert refused.state == "unverifiable" and "100,000 threads" in refused.details[0]


def test_a_seed_that_none_can_be_ends_no_list_and_no_view_of_all_runs(store):
    seeds = dict(zip(store.run_ids(), ("9" * 5000, str(2**63), "-" * 3, "²"), strict=False))
    for run_id, seed in seeds.items():
        store.sql("UPDATE params SET value = ? WHERE key = 'cfg/seed' AND run_uuid = ?", seed, run_id)
        store.sql("UPDATE runs SET start_time = ? WHERE run_uuid = ?", 2**62, run_id)
    listed = call("list", "runs", "--json")
    assert listed.exit_code == 0 and all(run_id in listed.stdout for run_id in seeds)
    frame = runs_frame().set_index("run_id")
    assert len(frame) == 12 and set(frame.index[frame["seed"].isna()]) == set(seeds)


def test_a_process_that_none_can_be_is_not_looked_for(store):
    host, _, _, namespace = process_ownership.process_tag().split(":")
    for run_id, pid in zip(store.run_ids(), ("9" * 4500, "4294967296", "-1"), strict=False):
        store.set_tag(run_id, schema.TAG_PROCESS, f"{host}:{pid}:{'7' * 300}:{namespace}")
        store.sql("UPDATE runs SET status = 'RUNNING' WHERE run_uuid = ?", run_id)
    assert "Traceback" not in call("doctor").output
    assert call("list", "runs").exit_code == 0
