"""A forged run that lacks what every run records cannot claim to be old: its files are a mismatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fa_registry.evidence.remeasure import RemeasureOptions, remeasure_one
from fa_registry.records import manifest_checks
from fa_registry.tracking import schema
from fa_registry.tracking.integrity_checks import FILES
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from tests.helpers.stores import copy_store, working_in
from tests.security.attacks import Store

STEP = schema.step_checkpoint(8)
LACKING = {  # a recorded file, and the path of the entry that the forged file lacks
    **{name: (schema.PROVENANCE, name) for name in (*manifest_checks.RECORDED, *manifest_checks.TRAINED)},
    **{name: (schema.MEASUREMENTS, "conventions", name) for name in manifest_checks.MEASURED},
    **{name: (schema.MEASUREMENTS, "conventions", name) for name in manifest_checks.MEASURED_HERE},
    **{name: (schema.SPEC, name) for name in ("penalty", "control", "recipe", "weights")},
    "batch_size": (schema.SPEC, "recipe", "batch_size"),
    **{name: (schema.PROVENANCE, "code", name) for name in ("methods/dfa", "architectures/resmlp", "datasets/digits")},
    **{name: (schema.PROVENANCE, "digests", name) for name in (STEP, schema.FINAL)},
}
del LACKING["digests"]  # without any digest nothing of the run can be read


@pytest.fixture(scope="module")
def forgery(honest, tmp_path_factory) -> Store:
    """One copy of the honest store for all attacks: each attack writes the files of its run back."""
    folder = tmp_path_factory.mktemp("missing") / "store"
    copy_store(honest, folder)
    return Store(folder)


def changed(store: Store, run_id: str, name: str, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Read the run after a change of one file under a new manifest; then write the file back. Return (record, recomputed run)."""
    path = store.artifacts(run_id) / name
    genuine = path.read_bytes()
    recorded = (store.artifacts(run_id) / schema.PROVENANCE).read_bytes()
    try:
        store.change_json(run_id, name, change)
        store.write_manifest(run_id)
        with working_in(store.folder):
            tracker = MlflowTracker()
            run = tracker.get(run_id)
            return read_record(tracker, run), remeasure_one(tracker, run, RemeasureOptions(trust_logged=True), None)
    finally:
        path.write_bytes(genuine)
        (store.artifacts(run_id) / schema.PROVENANCE).write_bytes(recorded)
        store.write_manifest(run_id)


def without(*path: str) -> Callable[[dict[str, Any]], Any]:
    def change(held: dict[str, Any]) -> None:
        *tables, last = path
        for table in tables:
            held = held[table]
        del held[last]

    return change


@pytest.mark.parametrize("name", LACKING)
def test_a_run_that_lacks_what_every_run_records_is_a_mismatch(forgery, name):
    file, *path = LACKING[name]
    record, recomputed = changed(forgery, forgery.run_id(method="dfa", seed=1), file, without(*path))
    (check,) = [check for check in record.integrity.checks if check.subject == FILES]
    assert check.outcome == "differs" and path[-1].split("/")[-1].split("_")[0] in check.detail
    assert recomputed.record.integrity.state == "mismatch"  # with trusted values too


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_chain_with_fewer_digests_than_states_is_a_mismatch(forgery, count):
    def cut(held: dict[str, Any]) -> None:
        held[schema.EPOCH_CHAIN] = held[schema.EPOCH_CHAIN][:count]

    record, _ = changed(forgery, forgery.run_id(method="dfa", seed=1), schema.PROVENANCE, cut)
    assert [check.outcome for check in record.integrity.checks if check.subject == FILES] == ["differs"]


def test_every_run_records_exactly_these_fields(forgery):
    """A field that the writer adds must be listed as recorded by every run, or as optional."""
    with working_in(forgery.folder):
        runs = MlflowTracker().search({schema.TAG_KIND: "run"})
        checks = [check for run in runs for check in read_record(MlflowTracker(), run).integrity.checks]
    assert {check.outcome for check in checks} == {"agrees"}
    for run_id in forgery.run_ids():
        fields = forgery.json(run_id, schema.PROVENANCE).keys() - set(manifest_checks.OPTIONAL)
        assert fields == {*manifest_checks.RECORDED, *manifest_checks.TRAINED}
        conventions = forgery.json(run_id, schema.MEASUREMENTS)["conventions"]
        assert {*manifest_checks.MEASURED, *manifest_checks.MEASURED_HERE} <= conventions.keys()


@pytest.mark.long
def test_an_audit_judges_no_run_that_claims_to_be_old(store, audit):
    """A commit, the digests of the epochs, the start, the feedback: each is one run, and none has a verdict."""
    old = {
        store.run_id(method="bp", seed=1, control="none"): ("commit",),
        store.run_id(method="bp", seed=2, control="none"): ("epoch_chain",),
        store.run_id(method="fa", seed=1): ("initial_weights",),
        store.run_id(method="fa", seed=2): ("digests", schema.FEEDBACK),
        store.run_id(control="frozen", seed=3): ("digests", STEP),
    }
    for run_id, path in old.items():
        store.change_json(run_id, schema.PROVENANCE, without(*path))
        store.write_manifest(run_id)
    code, report = audit()
    assert code == 3 and {one.run_id for one in report.excluded if one.kind == "integrity"} == old.keys()
    assert not {run.record.run_id for run in report.runs} & old.keys()
    assert {run.frozen_run_id for run in report.runs if run.record.spec.seed == 3} == {""}
