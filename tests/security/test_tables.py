"""Attacks on the database: what it records about a run is an index, and the recorded files are what counts."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from fa_registry import bundled_files
from fa_registry.tracking import schema
from tests.security.conftest import STUDY, call, judged

pytestmark = pytest.mark.long


def excluded(report, run_id):
    (one,) = [exclusion for exclusion in report.excluded if exclusion.run_id == run_id]
    return one


def caught(report, run_id, *text):
    """The run is not judged for its integrity, with these words in the reason."""
    one = excluded(report, run_id)
    assert one.kind == "integrity" and one.integrity.state == "mismatch"
    for word in text:
        assert word in one.reason, one.reason
    assert run_id not in {run.record.run_id for run in report.runs}


@pytest.fixture
def stopped(store):
    """Three bp runs that a rule ended before their last epoch, in a separate study."""
    text = STUDY.replace('"tiny"', '"short"', 1).replace('["bp", "fa", "dfa"]', '["bp"]')
    text = text.replace("epochs = 4", "epochs = 5")
    (store.folder / "short").mkdir()
    (store.folder / "short" / "study.toml").write_text(text, encoding="utf-8")
    edition = (bundled_files.editions() / "2026-05.toml").read_text(encoding="utf-8")
    early = edition.replace('name = "2026-05"', 'name = "early"').replace("threshold = 50.0", "threshold = 1.015")
    (store.folder / "early.toml").write_text(early, encoding="utf-8")
    asked = ("--jobs", "1", "--device", "cpu", "--edition", "early.toml", "--stop-on", "D1")
    result = call("study", "short", *asked)
    ids = store.run_ids(method="bp", epochs=5, control="none")
    assert {store.tags(run_id)[schema.TAG_STATUS] for run_id in ids} == {"stopped_early"}, result.output
    return ids


def test_stopped_runs_called_complete_are_not_judged(store, audit, stopped):
    store.sql("UPDATE tags SET value = 'complete' WHERE key = 'fa.status'")
    code, report = audit("--study", "short")
    assert code == 3
    for run_id in stopped:
        caught(report, run_id, "tag fa.status is 'complete'", "'stopped_early'")
    assert judged(report, method="bp", control="none") == []
    assert call("promote", stopped[0]).exit_code != 0


def test_stopped_runs_whose_manifest_was_forged_too_do_not_agree_with_their_series(store, audit, stopped):
    for run_id in stopped:
        store.set_tag(run_id, schema.TAG_STATUS, "complete")
        store.change_json(run_id, schema.PROVENANCE, lambda held: held.update(status="complete", epochs_run=5))
        store.write_manifest(run_id)
    code, report = audit("--study", "short")
    assert code == 3
    for run_id in stopped:
        caught(report, run_id, "provenance.json", "series.parquet")


def test_a_verdict_does_not_outlive_a_status_that_was_edited(store, audit):
    run_id = store.run_id(method="dfa", seed=2)
    audit(published=True)
    store.set_tag(run_id, schema.TAG_STATUS, "running")
    audit(published=True)
    verdicts = {name: value for name, value in store.tags(run_id).items() if name.startswith("fa.verdict")}
    assert set(verdicts.values()) == {"NOT JUDGED (integrity failure)"}


def test_an_earlier_point_edited_is_named_by_verify_with_its_epoch(store):
    run_id = store.run_id(method="fa", seed=1)
    store.sql("UPDATE metrics SET value = 1e9 WHERE key = 'h_L' AND step = 2 AND run_uuid = ?", run_id)
    store.sql("DELETE FROM metrics WHERE key = 'g_L' AND step = 1 AND run_uuid = ?", run_id)
    result = call("verify", "--study", "tiny", "--replay", "off", "--json")
    (found,) = [one for one in json.loads(result.stdout) if one["integrity"]["state"] != "verified"]
    assert result.exit_code == 3 and found["run_id"] == run_id
    text = " ".join(found["integrity"]["details"])
    assert all(point in text for point in ("h_L at epoch 2", "g_L at epoch 1"))


def tag(name, value):
    return lambda store, run_id: store.set_tag(run_id, name, value), (f"tag {name} is {value!r}",)


def edit_accuracy(store, run_id):
    for table in ("metrics", "latest_metrics"):
        store.sql(f"UPDATE {table} SET value = 0.99 WHERE key = 'accuracy/test' AND step = 4 AND run_uuid = ?", run_id)


def edit_parameters(store, run_id):
    store.sql("UPDATE params SET value = '30' WHERE key = 'cfg/epochs' AND run_uuid = ?", run_id)
    store.sql("DELETE FROM params WHERE key = 'cfg/recipe/learning_rate' AND run_uuid = ?", run_id)
    store.sql("INSERT INTO params (key, value, run_uuid) VALUES ('cfg/penalty_too', '1', ?)", run_id)


def keep_epochs(*epochs):
    def cut(store, run_id):
        path = store.artifacts(run_id) / schema.SERIES
        table = pq.ParquetFile(path).read()
        pq.write_table(table.filter([epoch in epochs for epoch in table["epoch"].to_pylist()]), path)
        store.write_manifest(run_id)

    return cut


TAGS = [
    tag(schema.TAG_METHOD, "fa"),
    tag(schema.TAG_STUDY, "another"),
    tag(schema.TAG_SETTING, "resmlp-1x1 · mnist"),
    tag(schema.TAG_ADOPTED, "true"),
    tag(schema.TAG_STOP_ON, "D1"),
    tag(schema.TAG_STOPPED_ON, "D1 at epoch 2"),
    tag(schema.TAG_WEIGHTS, "0" * 64),
]
TABLES_AND_SERIES = [
    tag(schema.TAG_STATUS, "failed"),
    (edit_accuracy, ("metric accuracy/test is 0.99",)),
    (edit_parameters, ("cfg/epochs is '30'", "cfg/recipe/learning_rate is None", "cfg/penalty_too is '1'")),
    (keep_epochs(0, 1, 2), ("series.parquet", "epoch 2")),
    (keep_epochs(0, 1, 3, 4), ("series.parquet", "epoch 2")),
]


@pytest.mark.parametrize("attacks", [TAGS, TABLES_AND_SERIES], ids=["tags", "tables and series"])
def test_each_attack_is_found_in_its_run_and_in_no_other(store, audit, attacks):
    others = store.run_id(method="bp", control="none", seed=1)
    attacked = [*store.run_ids(method="dfa"), *store.run_ids(method="fa"), others][: len(attacks)]
    for run_id, (attack, _) in zip(attacked, attacks, strict=True):
        attack(store, run_id)
    code, report = audit()
    assert code == 3 and {one.run_id for one in report.excluded} == set(attacked)
    for run_id, (_, text) in zip(attacked, attacks, strict=True):
        caught(report, run_id, *text)
    assert len(report.runs) == 12 - len(attacked)
