"""Choosing runs: exactly one way, ids by their beginning, and what is not finished is shown, never dropped."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shlex
import sqlite3
import time

import pytest

from fa_registry import jsonio
from fa_registry.audits.selection import (
    MOST_SEED_SETS,
    add_unaudited_runs,
    never_trained,
    previous_seed_sets,
    select_runs,
)
from fa_registry.errors import NothingSelected, UsageError
from fa_registry.evidence.exclusions import make_exclusion, own_spec
from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.grouping import seeds_key
from fa_registry.protocol.rules import load_edition
from fa_registry.records import AuditReport
from fa_registry.studies.options import RunSelector
from fa_registry.studies.training_plan import newest_finished
from fa_registry.tracking import schema
from fa_registry.tracking.memory import MemoryTracker
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.reader import expand_run_id
from tests.builders import frozen, record
from tests.commands.test_audit import audited, run_of, spoil
from tests.helpers.audits import unpublished

OURS = load_edition("2026-12")


@pytest.mark.parametrize("given", [{}, {"study": "tiny", "experiment": "x"}, {"experiment": "x", "run_ids": ["a"]}])
def test_runs_are_chosen_in_one_way(given):
    with pytest.raises(UsageError):
        select_runs(None, RunSelector(**given))


def test_a_run_is_found_by_the_beginning_of_its_id_and_never_guessed(trained, monkeypatch):
    tracker, run = MlflowTracker(), run_of("dfa")
    assert expand_run_id(tracker, run.run_id[:8]) == run.run_id
    for start in ("", " "):  # not even the only run of a store
        with pytest.raises(UsageError):
            expand_run_id(tracker, start)
    same_start = [dataclasses.replace(run, run_id=f"a{index}") for index in range(7)]
    monkeypatch.setattr(MlflowTracker, "search", lambda self, tags, start="": same_start)
    with pytest.raises(UsageError, match="a0, a1"):
        expand_run_id(tracker, "a")


def test_what_is_not_finished_is_excluded_with_its_status_and_nothing_else_is_an_error(trained):
    tracker, run = MlflowTracker(), run_of("dfa")
    tracker.log(run.run_id, tags={schema.TAG_STATUS: "running"})
    found = select_runs(tracker, RunSelector(run_ids=(run.run_id, run_of("bp").run_id)))
    assert [run.run_id for run in found.runs] == [run_of("bp").run_id]
    assert [(exclusion.run_id, exclusion.kind) for exclusion in found.excluded] == [(run.run_id, "integrity")]
    with pytest.raises(NothingSelected, match="fa.status"):
        select_runs(tracker, RunSelector(run_ids=(run.run_id,)))


@dataclasses.dataclass(frozen=True)
class Stored:
    """As much of a stored run as looks are read from."""

    run_id: str
    tags: dict[str, str]


class Study:
    """Audits of one method's seeds, one after another: each leaves its tags for the next."""

    def __init__(self):
        self.tags: dict[str, dict[str, str]] = {}

    def audit(self, *seeds: int, **changes) -> int | None:
        records = [record(f"r{seed}", seed=seed, **changes) for seed in seeds]
        stored = [Stored(record.run_id, self.tags.get(record.run_id, {})) for record in records]
        looks, tags = previous_seed_sets(records, stored)
        for run_id, tag in tags.items():
            self.tags[run_id] = {schema.TAG_INTERIM_ANALYSES: tag}
        return looks.get(seeds_key(records[0].spec))


@pytest.mark.parametrize(
    ("audits", "looks"),
    [
        ("123 321 1234 12345 1234 123", [1, 1, 2, 3, 2, 1]),  # a further set is a further look, the same set none
        ("123 12 124", [1, 2, 3]),  # leaving a seed out or swapping one is a look too
        ("1 123 789", [None, 1, 1]),  # seeds that no audit has seen are a first look, and one seed is none
    ],
)
def test_every_further_set_of_seeds_is_a_further_look(audits, looks):
    study = Study()
    assert [study.audit(*map(int, seeds)) for seeds in audits.split()] == looks


def test_what_one_run_remembers_is_enough():
    """The tags of all but one of the runs were deleted."""
    study = Study()
    study.audit(1, 2, 3)
    study.tags = {"r2": study.tags["r2"]}
    assert study.audit(1, 2, 3, 4) == 2


@pytest.mark.parametrize("change", [{"status": "failed"}, {"control": "frozen", "method": "bp"}])
def test_runs_that_no_margin_counts_are_no_look(change):
    assert Study().audit(1, 2, 3, **change) is None


def test_a_diverged_seed_counts_as_in_the_margin():
    members = [record("r1", seed=1), record("r2", seed=2, status="diverged"), frozen("f1", seed=1)]
    assert list(previous_seed_sets(members, [])[0].values()) == [1]


def test_a_tag_stays_as_long_as_mlflow_takes():
    study = Study()
    for last in range(2, MOST_SEED_SETS + 30):
        study.audit(1, last)
    assert len(study.tags["r1"][schema.TAG_INTERIM_ANALYSES]) < 5000
    assert study.audit(1, MOST_SEED_SETS + 40) == MOST_SEED_SETS + 1


def test_a_stored_run_brings_its_specification_and_its_names(trained):
    run = run_of("fa")
    made = make_exclusion(MlflowTracker(), run, "why", "traceback")
    assert (made.run_id, made.name, made.reason, made.failure) == (run.run_id, run.name, "why", "traceback")
    assert (made.method, made.setting) == ("fa", run.tags[schema.TAG_SETTING])
    assert made.spec.identity == run.tags[schema.TAG_SPEC]
    untrained = never_trained(made.spec)
    assert (untrained.run_id, untrained.method, untrained.setting) == ("", made.method, made.setting)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("{}"),
        lambda path: path.write_text(path.read_text().replace('"seed": 1', '"seed": 2')),
    ],
)
def test_a_specification_that_is_gone_broken_or_another_is_not_used(trained, change):
    spoil("fa", schema.SPEC, change)
    assert own_spec(MlflowTracker(), run_of("fa")) is None
    assert make_exclusion(MlflowTracker(), run_of("fa"), "why").method == "fa"


@pytest.mark.long
def test_a_broken_seed_stands_in_its_methods_form_in_both_formats(trained, workplace):
    """The other seed is judged, so there is a form: it must not say `in 1 of 1 seeds` and nothing else."""
    again = trained("study", "tiny", "--seeds", "1,2", "--jobs", "1", "--device", "cpu")
    assert again.exit_code == 0, again.output
    runs = MlflowTracker().search({schema.TAG_KIND: "run", schema.TAG_METHOD: "fa"})
    broken = next(run for run in runs if own_spec(MlflowTracker(), run).seed == 2)
    path = MlflowTracker().artifact(broken.run_id, schema.FEEDBACK)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    code, result = audited(trained, "--seeds", "1,2", "--trust-logged")
    (excluded,) = result["report"]["excluded"]
    assert code == 3 and excluded["spec"]["seed"] == 2
    forms = {path.name: path.read_text() for path in (workplace / "reports" / "forms").iterdir()}
    assert {path.suffix for path in (workplace / "reports" / "forms").iterdir()} == {".html", ".md"}
    for name, text in forms.items():
        assert ("not judged (seed 2)" in text) == name.startswith("fa-"), name


def completing_lines(folder) -> list[str]:
    """The lines that the audit's page in `folder` prints for what is missing."""
    page = (folder / "reports" / "index.html").read_text("utf-8")
    (printed,) = re.findall(r'aria-label="Commands that complete it">(.*?)</pre>', page, re.DOTALL)
    return html.unescape(printed).strip().splitlines()


@pytest.mark.long
def test_the_lines_that_a_page_prints_for_what_is_missing_complete_it(trained, workplace):
    """Trained again by them, a changed run is judged: its study's audit finds the new one."""
    spoil("dfa", schema.FINAL, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x7f"))
    code, before = audited(trained)
    assert code == 3 and [one["kind"] for one in before["report"]["excluded"]] == ["integrity"]
    for line in completing_lines(workplace):
        command, *arguments = shlex.split(line, comments=True)
        assert command == "fa-registry" and trained(*arguments).exit_code in (0, 1), line
    with unpublished():
        code, after = audited(trained)
    assert after["report"]["excluded"] == [] and code in (0, 1)
    assert len(after["report"]["runs"]) == len(before["report"]["runs"]) + 1


@pytest.mark.long
def test_a_run_by_a_clock_two_days_ahead_does_not_stay_the_newest(trained):
    old = run_of("dfa")
    with sqlite3.connect("mlflow.db") as database:
        ahead = int((time.time() + 2 * 86_400) * 1000)
        database.execute("UPDATE runs SET start_time = ? WHERE run_uuid = ?", (ahead, old.run_id))
    database.close()
    tracker = MlflowTracker()
    spec, attempts = own_spec(tracker, old), {schema.TAG_SPEC: old.tags[schema.TAG_SPEC]}
    assert newest_finished(tracker.search(attempts), spec).run_id == old.run_id  # alone it counts
    assert trained("study", "tiny", "--jobs", "1", "--device", "cpu", "--force").exit_code == 0
    runs = tracker.search(attempts)
    assert [run.run_id == old.run_id for run in runs] == [True, False]  # MLflow's order
    assert newest_finished(runs, spec).run_id == runs[1].run_id
    selection = select_runs(tracker, RunSelector("tiny"))
    assert {run.run_id for run in selection.runs} & {run.run_id for run in runs} == {runs[1].run_id}
    assert any("future" in remark for remark in selection.remarks)


@pytest.mark.parametrize(
    ("setting", "epochs", "is_left_out"), [({}, 6, True), ({}, 8, False), ({"dataset": "digits_centred"}, 6, False)]
)
def test_a_longer_control_in_the_store_may_not_be_left_out(tmp_path, setting, epochs, is_left_out):
    """A selection by ids without frozen_long would turn "depends on the length of training" into a pass."""
    tracker = MemoryTracker(tmp_path)
    runs = [record(), frozen(), record(method="bp", control="frozen_long", epochs=epochs, **setting)]
    stored = []
    for run in runs:
        tags = {schema.TAG_KIND: "run", schema.TAG_STATUS: "complete", schema.TAG_SETTING: "hidden"}
        run_id = tracker.create("run", tags, schema.params(run.spec))
        (tmp_path / run_id).mkdir()
        (tmp_path / run_id / schema.SPEC).write_text(json.dumps(jsonio.encode(run.spec)), encoding="utf-8")
        stored.append(tracker.get(run_id))
    judged = judge_all(
        [dataclasses.replace(run, run_id=one.run_id) for run, one in zip(runs, stored, strict=True)][:2], OURS
    )
    report = AuditReport("audit", "runs", OURS.reference, judged)
    left_out = add_unaudited_runs(tracker, report, stored[:2]).choice.left_out
    assert left_out == ((stored[2].run_id,) if is_left_out else ())
