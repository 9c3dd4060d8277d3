"""Frames: the very numbers of the files and pages, with their units."""

from __future__ import annotations

import math

import pandas as pd
import pytest

import fa_registry
from fa_registry.errors import IntegrityError
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record


def test_a_series_is_the_recorded_file(trained):
    (run,) = MlflowTracker().search({schema.TAG_KIND: "run", "fa.method": "dfa"})
    frame, record = fa_registry.series(run.run_id[:8]), read_record(MlflowTracker(), run)
    last = frame[frame.epoch == 2]
    gamma = last[last.quantity == "gamma"].sort_values("site")
    assert gamma["value"].tolist() == [reading.value for reading in record.measurements.sites["gamma"]]
    accuracy = frame[frame.quantity == "accuracy"]
    assert accuracy["value"].tolist() == [reading.value for reading in record.trajectory["accuracy"]]
    assert accuracy["site"].isna().all() and str(frame["site"].dtype) == "Int64"
    missing = frame[frame["value"].isna()]
    assert len(missing) and (missing["reason"] != "").all()
    assert frame.attrs["units"]["gamma"] and set(frame.attrs["words"]) == set(frame["quantity"])


def test_runs_are_those_of_the_study_with_what_the_store_shows(trained):
    frame = fa_registry.runs(study="tiny")
    assert sorted(frame["method"]) == ["bp", "dfa", "fa", "frozen"] and set(frame["status"]) == {"complete"}
    assert frame["seed"].tolist() == [1, 1, 1, 1] and str(frame["started"].dtype).endswith("UTC]")
    assert frame.attrs["units"]["accuracy"] and (frame["h_L"] > 0).all()
    assert fa_registry.runs(study="unknown").empty


def test_an_audit_is_a_frame_with_the_figures_of_its_table(trained):
    result = fa_registry.audit(study="tiny", device="cpu", trust_logged=True)
    frame = result.frame().set_index("run_id")
    for judged in result.report.runs:
        line = frame.loc[judged.record.run_id]
        assert line["verdict"] == judged.verdict.label and line["integrity"] == "trusted"
        assert line["proof"] == judged.verdict.proof == "stated"
        assert line["growth_max"] == judged.record.measurements.scalars["growth_max"].value
        assert line["h_L"] == judged.record.measurements.sites["h_norm"][-1].value
    control = frame[frame["control"] == "frozen"].iloc[0]
    dfa = frame[frame["method"] == "dfa"].iloc[0]
    assert dfa["margin_pp"] == pytest.approx(100 * (dfa["accuracy"] - control["accuracy"]))
    assert math.isnan(control["margin_pp"]) or pd.isna(control["margin_pp"])
    assert set(fa_registry.runs(study="tiny")["proof"]) == {"stated"}


def test_a_file_that_was_changed_is_not_read(trained):
    tracker = MlflowTracker()
    (run,) = tracker.search({schema.TAG_KIND: "run", "fa.method": "dfa"})
    path = tracker.artifact(run.run_id, schema.SERIES)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(IntegrityError, match=r"series\.parquet"):
        fa_registry.series(run.run_id)


def test_a_run_without_a_series_says_so(workplace):
    run_id = MlflowTracker().create("broken", {schema.TAG_KIND: "run"}, {})
    with pytest.raises(IntegrityError, match=run_id):
        fa_registry.series(run_id)
