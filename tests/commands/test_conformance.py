"""What is kept of a conformance: what was measured, and no accident of the process that was to measure it."""

from __future__ import annotations

import pytest

from fa_registry.studies import method_conformance
from fa_registry.studies.executors.base import JobEvent
from fa_registry.tracking.stores import registry_folder
from tests.builders import spec
from tests.helpers.plugins import NAME, installed


@pytest.fixture
def stated(tmp_path, tmp_path_factory, monkeypatch):
    """stated(end): what training would record where the suite's process ends so, and the files that are kept."""
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"

    def call(end):
        plugin.forget()
        monkeypatch.setattr(method_conformance, "run_in_subprocess", lambda suite, seconds: end)
        recorded = method_conformance.cached_conformance(spec(method=NAME), store)
        return recorded, list((registry_folder(store) / "conformance").glob("*.json"))

    with installed(tmp_path_factory.mktemp("package")) as plugin:
        yield call


def test_a_suite_whose_process_was_killed_has_measured_nothing(stated):
    recorded, kept = stated(JobEvent(0, "failed", "its process ended with signal SIGKILL", lost=True))
    assert recorded["state"] == "unchecked" and "SIGKILL" in recorded["failures"][0] and kept == []
    recorded, kept = stated(JobEvent(0, "done", ()))
    assert recorded["state"] == "passed" and len(kept) == 1  # measured as soon as it can be


def test_a_method_that_ends_the_suite_fails(stated):
    recorded, kept = stated(JobEvent(0, "failed", "its process ended with exit code 3"))
    assert recorded["state"] == "failed" and len(kept) == 1


def test_another_suite_measures_again(stated, monkeypatch):
    """By its source: a release's number stays the same while it is worked on."""
    stated(JobEvent(0, "done", ()))
    monkeypatch.setattr(method_conformance, "source_digest", lambda *given, **named: "edited")
    assert len(stated(JobEvent(0, "done", ()))[1]) == 2
