"""The notes of runs and of audits: the verdict and the links first, short, and harmless."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fa_registry.metrics import label_of
from fa_registry.reporting.pages.notes import CUT, MAX_NOTE, Notes, bounded, not_judged_text

FORM, AUDIT = "#/experiments/1/runs/ab_c/artifacts/report/form.html", "#/experiments/1/runs/de/artifacts/index.html"


def links_of(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]*)\)", text)


@pytest.fixture(scope="module")
def notes(report):
    return Notes(report)


def test_the_note_of_one_of_several_seeds_says_nothing_of_one_seed(notes, rich):
    assert "only one seed" not in notes.of_run(notes.sources.report.runs[0])
    written = Notes(rich)
    dfa, alone = (next(run for run in rich.runs if run.record.spec.method == name) for name in ("dfa", "drtp"))
    assert "only one seed" not in written.of_run(dfa) and "interval" in written.of_run(dfa)
    assert "only one seed" in written.of_run(alone)


def test_a_note_begins_with_the_verdict_and_its_level_of_proof(notes, report):
    for run in report.runs:
        assert notes.of_run(run).startswith(f"**{run.verdict.full_label}**")
    verdicts = {group.verdict.full_label for group, _ in notes.sources.forms}
    assert verdicts == set(re.findall(r": \*\*(.*)\*\*$", notes.of_audit("#/a/"), re.MULTILINE))


def test_a_note_is_short_harmless_and_always_the_same(report, notes, hostile):
    note = notes.of_run(report.runs[3])
    assert f"| {label_of('accuracy')} | 79.0\u00a0% |" in note and "not finite (inf)" in note
    assert len(note) <= MAX_NOTE and "<script" not in note and hostile not in note
    assert Notes(report).of_run(report.runs[3]) == note


def test_a_long_note_ends_with_a_whole_line_and_says_that_it_was_cut():
    note = bounded("\n".join(f"line {number}" for number in range(1000)))
    assert len(note) <= MAX_NOTE and note.endswith(CUT)
    last = note.removesuffix(CUT).rsplit("\n", 1)[1]
    assert last in {f"line {number}" for number in range(1000)}
    assert bounded("as it is\n") == "as it is\n"


def test_an_audit_of_hostile_names_is_harmless(report, hostile):
    renamed = dataclasses.replace(report, selection=hostile)
    note = Notes(renamed).of_audit("#/a/")
    assert hostile not in note and "<script" not in note


def test_the_margin_is_that_of_the_forms(notes, report):
    for run in report.runs:
        value = notes.sources.values.margin(run).reading.value
        assert notes.margin(run) == (None if value is None else ("margin_pp", value))
    assert any(notes.margin(run) is not None for run in report.runs)


def test_controls_have_no_form(notes, report):
    controls = {run.record.run_id for run in report.runs if run.record.spec.control != "none"}
    assert controls and not controls & set(notes.forms)
    assert {run.record.run_id for run in report.runs} == controls | set(notes.forms)


def test_a_run_that_was_not_judged_says_so_first_with_the_reason(notes, report, hostile):
    running, broken = report.excluded
    note = notes.of_excluded(dataclasses.replace(broken, kind="broken"), AUDIT)
    assert note.startswith("**NOT JUDGED (broken)** ·") and links_of(note) == [AUDIT]
    assert "half-written: the run broke" in note and broken.run_id in note
    named = dataclasses.replace(broken, reason="integrity failure: at epoch 3", kind="ended early")
    assert (
        not_judged_text(named) == "NOT JUDGED (ended early)"
    )  # by its kind, regardless of the first words of the reason
    assert not_judged_text(dataclasses.replace(named, kind="")) == "NOT JUDGED"
    assert "](" not in notes.of_excluded(dataclasses.replace(running, reason=hostile)) and hostile not in note
