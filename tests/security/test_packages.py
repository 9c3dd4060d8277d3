"""Packages that change what is measured: by a diagnostic that patches on import, or by a rule outside of the Python files."""

from __future__ import annotations

import pytest

from fa_registry.plugin_registry import source_digest
from fa_registry.tracking import schema
from fa_registry.training import measuring
from fa_registry.training.code_fingerprint import fingerprint, fingerprint_changes
from tests.helpers.plugins import NAME, PACKAGE, installed, installed_member
from tests.helpers.tiny_tasks import tiny_spec
from tests.security.conftest import integrity_of

pytestmark = pytest.mark.long

EVIL = """
from fa_registry.diagnostics.base import Diagnostic, DiagnosticCard, Measured
from fa_registry.records import Reading
from fa_registry.training import measuring

measuring.test_metrics = lambda task: {"accuracy": Reading(0.999)}


class Evil(Diagnostic):
    card = DiagnosticCard("evil", "e", "a number", ("evil_number",), "none", "any", "anything", "a test", when="final")

    def measure(self, observation):
        scalars = {"evil_number": Reading(7.0), "accuracy": Reading(0.999), "gamma_deep_mean": Reading(0.999)}
        return Measured({"gamma": (Reading(0.999),) * observation.sites}, scalars)


PLUGIN = Evil()
"""
TYPED = 0.999


@pytest.fixture
def evil(tmp_path):
    """A package whose diagnostic replaces the function that measures accuracy, and gives built-in metrics other values."""
    genuine = measuring.test_metrics
    with installed_member(tmp_path / "site-packages", "diagnostics", "evil", EVIL):
        yield
    assert measuring.test_metrics is genuine  # the package was not imported in the process that audits


def typed(store, run_id):
    """Write another accuracy wherever the run states it, and record all of it again."""
    store.change_json(run_id, schema.MEASUREMENTS, lambda held: held["scalars"].update(accuracy=TYPED))
    store.retell(run_id)


def test_a_diagnostic_that_patches_on_import_verifies_no_typed_accuracy(store, audit, evil):
    run_id = store.run_id(method="fa", seed=1, control="none")
    typed(store, run_id)
    code, report = audit()
    integrity = integrity_of(report, run_id)
    assert (code, integrity.state) == (3, "mismatch")
    assert any(detail.startswith(f"accuracy: logged {TYPED},") for detail in integrity.details)
    others = [run.record.integrity.state for run in report.runs]
    assert others == ["verified"] * 11


@pytest.mark.long
def test_third_party_metrics_are_added_replace_none_of_ours_and_their_package_is_named(store, audit, evil):
    _, report = audit(published=True)
    assert len(report.runs) == 12
    for run in report.runs:
        record = run.record
        assert record.integrity.state == "verified"
        assert record.measurements.scalars["evil_number"].value == 7.0
        assert record.measurements.scalars["accuracy"].value == logged(store, record.run_id, "accuracy") < 0.999
        assert record.measurements.sites["gamma"][1].value != 0.999
    assert report.cards["diagnostics/evil"]["name"] == "evil"
    digest = source_digest("evil", all_files=True)
    (line,) = [remark for remark in report.remarks if digest in remark]
    assert "evil 1.0" in line and digest in (store.folder / "pages" / "index.html").read_text(encoding="utf-8")


def logged(store, run_id, name):
    return store.json(run_id, schema.MEASUREMENTS)["scalars"][name]


def test_a_logged_third_party_metric_is_recomputed(store, audit, tmp_path):
    """Two packages of the same name: the second measures another number than the run logged."""
    run_id = store.run_id(method="fa", seed=1, control="none")
    store.change_json(run_id, schema.MEASUREMENTS, lambda held: held["scalars"].update(evil_number=8.0))
    store.write_manifest(run_id)
    with installed_member(tmp_path / "site-packages", "diagnostics", "evil", EVIL):
        code, report = audit()
    integrity = integrity_of(report, run_id)
    assert (code, integrity.state) == (3, "mismatch")
    (check,) = [check for check in integrity.checks if check.subject == "third-party metrics"]
    assert check.outcome == "differs" and "evil_number" in check.detail


@pytest.mark.long
def test_a_diagnostic_that_ends_its_process_costs_its_own_metrics_alone(store, audit, tmp_path):
    ends = "import os\nos.kill(os.getpid(), 9)\n"
    with installed_member(tmp_path / "site-packages", "diagnostics", "deadly", ends):
        _, report = audit()
    assert len(report.runs) == 12
    for run in report.runs:
        assert run.record.measurements.scalars["accuracy"].value == logged(store, run.record.run_id, "accuracy")
        assert "SIGKILL" in run.record.measurements.failures["deadly"]


def test_a_rule_in_a_file_that_is_not_python_is_in_the_digest(tmp_path):
    with installed(tmp_path) as plugin:
        rule = tmp_path / PACKAGE / "rule.json"
        rule.write_text('{"scale": 1}')
        plugin.forget()
        before = fingerprint(tiny_spec(method=NAME))
        rule.write_text('{"scale": 5}')
        plugin.forget()
        (line,) = fingerprint_changes(before, fingerprint(tiny_spec(method=NAME)))
        assert line.startswith(f"method {NAME}: ")


def test_what_python_writes_and_what_a_link_names_is_not_in_the_digest(tmp_path):
    with installed(tmp_path / "site") as plugin:
        folder = tmp_path / "site" / PACKAGE
        module = f"{PACKAGE}.{NAME}"
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "data.bin").write_bytes(b"1")
        (folder / "linked").symlink_to(outside)
        plugin.forget()
        before = source_digest(module, all_files=True)
        (folder / "__pycache__").mkdir(exist_ok=True)
        (folder / "__pycache__" / "x.pyc").write_bytes(b"1")
        (outside / "data.bin").write_bytes(b"2")
        source_digest.cache_clear()
        assert source_digest(module, all_files=True) == before
        (folder / "linked").unlink()
        (folder / "linked").symlink_to(tmp_path)
        source_digest.cache_clear()
        assert source_digest(module, all_files=True) != before
