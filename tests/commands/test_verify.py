"""verify: of runs, and of an old report against the store as it is now."""

from __future__ import annotations

import json

import pytest
import torch

from fa_registry import jsonio
from fa_registry.evidence import run_passes
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import read_record
from fa_registry.training.checkpoint import load_tensors, save_tensors
from tests.commands.conftest import call
from tests.commands.test_audit import run_of, spoil

pytestmark = pytest.mark.long

VERIFY = ("verify", "--study", "tiny", "--device", "cpu", "--json")


def states(result):
    runs = [one for one in json.loads(result.stdout) if one["run_id"]]
    return {run["name"].split(" ")[0]: run["integrity"]["state"] for run in runs}


def details(result, method):
    """What verify found of the method's run, in one text."""
    (one,) = [one for one in json.loads(result.stdout) if one["name"].startswith(f"{method} ")]
    return "; ".join(one["integrity"]["details"])


def replace_feedback(method, tensors):
    """Put other tensors in the place of the run's feedback, with every digest forged to fit."""
    tracker, run = MlflowTracker(), run_of(method)
    found = save_tensors(tracker.artifact(run.run_id, schema.FEEDBACK), tensors)
    proof = tracker.artifact(run.run_id, schema.PROVENANCE)
    provenance = json.loads(proof.read_text())
    provenance["digests"][schema.FEEDBACK] = found
    proof.write_text(json.dumps(provenance))
    whole = {**provenance["digests"], schema.PROVENANCE: jsonio.file_digest(proof)}
    tracker.log(run.run_id, tags={schema.TAG_ARTIFACTS: jsonio.digest_of(whole)})


def feedback_of(method):
    return load_tensors(MlflowTracker().artifact(run_of(method).run_id, schema.FEEDBACK))


def test_untouched_runs_are_verified_bit_equal(trained):
    result = trained(*VERIFY)
    assert result.exit_code == 0
    assert states(result) == dict.fromkeys(["bp", "fa", "dfa", "frozen"], "verified")
    assert all("bit-equal" in one["integrity"]["details"][0] for one in json.loads(result.stdout))


def test_verify_shows_how_far_it_replayed_each_training_itself(audited_copy):
    """The audit trusted the logged values, and its verdicts stay `stated`."""

    def levels(*more: str) -> set[str]:
        return {one["proof"] for one in json.loads(call(*VERIFY, *more).stdout) if one["run_id"]}

    assert levels("--replay", "all") == {"replayed"} and levels("--replay", "off") == {"stated"}
    assert levels("--replay", "8") == {"started"}
    others = [one["proof"] for one in json.loads(call(*VERIFY, "--replay", "off").stdout) if not one["run_id"]]
    assert others and set(others) == {""}  # of the audit's verdicts and pages


def test_a_changed_checkpoint_is_a_mismatch_of_that_run_alone(trained):
    spoil("fa", schema.FINAL, lambda path: path.write_bytes(path.read_bytes() + b" "))
    result = trained(*VERIFY)
    assert result.exit_code == 3
    assert states(result) == {"bp": "verified", "fa": "mismatch", "dfa": "verified", "frozen": "verified"}
    assert "expected SHA-256" in details(result, "fa") and "gamma" not in details(result, "fa")


def test_jobs_reach_what_measures(trained, monkeypatch):
    """That several processes give the same figures is tested with the audit, which measures by the same function."""
    asked = []

    def stopped(jobs, work, processes, stop, tell):
        asked.append(processes)

    monkeypatch.setattr(run_passes, "run_jobs", stopped)
    assert trained(*VERIFY, "--jobs", "2").exit_code == 130 and asked == [2]


def test_a_feedback_of_another_shape_gives_a_reason_and_no_number(trained):
    replace_feedback("dfa", {name: value[:, :7] for name, value in feedback_of("dfa").items()})
    result = trained(*VERIFY)
    assert result.exit_code == 3
    assert states(result) == {"bp": "verified", "fa": "verified", "dfa": "mismatch", "frozen": "verified"}
    assert "do not fit: " in details(result, "dfa") and "gamma" not in details(result, "dfa")


def test_the_feedback_of_another_run_never_stands_in(trained):
    """Even with every digest forged: its Γ is another, and both numbers are shown."""
    replace_feedback("dfa", {name: torch.roll(value, 1, 0) for name, value in feedback_of("dfa").items()})
    result = trained(*VERIFY)
    assert states(result)["dfa"] == "mismatch" and list(states(result).values()).count("verified") == 3
    logged = read_record(MlflowTracker(), run_of("dfa")).measurements.sites["gamma"][0].value
    assert f"gamma[0]: logged {logged!r}, recomputed " in details(result, "dfa")
    table = trained(*VERIFY[:-1]).stdout
    assert "mismatch" in table and f"{logged!r}" in table.replace("\n", "")


def test_an_old_report_stands_until_an_artifact_changes(audited_copy):
    assert audited_copy("verify", "reports/audit.json").exit_code == 0
    spoil("dfa", schema.SERIES, lambda path: path.write_bytes(path.read_bytes() + b" "))
    result = audited_copy("verify", "reports/audit.json", "--json")
    assert result.exit_code == 3
    assert states(result) == {"bp": "verified", "fa": "verified", "dfa": "mismatch", "frozen": "verified"}


def test_a_report_whose_run_is_gone_is_unverifiable(audited_copy, workplace):
    path = workplace / "reports" / "audit.json"
    path.write_text(path.read_text().replace(run_of("bp").run_id, "0" * 32))
    assert states(audited_copy("verify", "reports/audit.json", "--json"))["bp"] == "unverifiable"


def test_each_file_that_was_checked_is_named_with_its_bytes(audited_copy):
    result = audited_copy(*VERIFY)
    (one,) = [one for one in json.loads(result.stdout) if one["name"].startswith("dfa ")]
    tracker, run = MlflowTracker(), run_of("dfa")
    names = {*read_record(tracker, run).digests, schema.PROVENANCE, schema.FORM, schema.SHORT_FORM}
    assert one["files"] == {name: tracker.artifact(run.run_id, name).stat().st_size for name in names}
    (audit,) = [one for one in json.loads(result.stdout) if one["name"].startswith("the pages of audit")]
    assert {"index.html", "audit.json", "junit.xml"} <= audit["files"].keys()
    sizes = [size for each in json.loads(result.stdout) for size in each["files"].values()]
    assert f"{sum(sizes):,} bytes" in audited_copy(*VERIFY[:-1]).stdout.splitlines()[-1]
    report = json.loads(audited_copy("verify", "reports/audit.json", "--json").stdout)
    assert all(schema.PROVENANCE in one["files"] for one in report if one["run_id"])


def test_a_changed_provenance_is_found_by_an_old_report(audited_copy):
    spoil("dfa", schema.PROVENANCE, lambda path: path.write_bytes(path.read_bytes() + b" "))
    assert states(audited_copy("verify", "reports/audit.json", "--json"))["dfa"] == "mismatch"


def test_an_audit_without_the_digests_of_its_pages_is_a_mismatch(audited_copy):
    tracker = MlflowTracker()
    (audit,) = tracker.search({schema.TAG_KIND: "audit"})
    tracker.remove_tags(audit.run_id, [schema.TAG_PAGES])
    result = audited_copy(*VERIFY)
    pages = [one for one in json.loads(result.stdout) if one["name"].startswith("the pages of audit")]
    assert result.exit_code == 3 and [one["integrity"]["state"] for one in pages] == ["mismatch"]
    assert audited_copy("report", "--study", "tiny").exit_code == 3


def test_a_changed_tag_with_the_digests_of_attached_pages_is_found(audited_copy):
    MlflowTracker().log(run_of("dfa").run_id, tags={schema.TAG_PAGES: "[1"})
    assert "fa.pages" in details(audited_copy(*VERIFY), "dfa")


@pytest.mark.parametrize(
    "arguments",
    [
        *(("reports/audit.json", "--study", "digits"), ("--study", "digits", "--run", "ab"), (), ("notes.json",)),
        *(("none.json",), ("--study", "tiny", "--jobs", "all")),
    ],
)
def test_exactly_one_thing_that_is_there_is_verified(registry, workplace, arguments):
    (workplace / "notes.json").write_text('{"title": "notes"}')
    assert registry("verify", *arguments).exit_code == 2 and MlflowTracker().search({}) == []
