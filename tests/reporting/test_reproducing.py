"""How to reproduce a form: every line that is needed, in its order, and what no line can give again."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.provenance import NOT_A_CHECKOUT
from fa_registry.records import Choice
from fa_registry.reporting.labels import command
from fa_registry.reporting.lookups import Frozen
from fa_registry.reporting.pages.form import lines

DIRTY = "  # the tree was DIRTY: what was changed after this commit was not recorded"


@pytest.fixture
def made(rich):
    """The lines of dfa's form; changes: to the report. provenance: of every run instead of its own."""

    def of(provenance=None, **changes):
        report = dataclasses.replace(rich, **changes)
        if provenance is not None:
            runs = [
                dataclasses.replace(run, record=dataclasses.replace(run.record, provenance=provenance))
                for run in report.runs
            ]
            report = dataclasses.replace(report, runs=tuple(runs))
        runs = [run for run in report.runs if run.record.spec.method == "dfa"]
        return runs, lines(runs, report, Frozen.of(report))

    return of


def test_runs_and_controls_stand_under_the_commit_they_were_trained_from(made, rich):
    runs, found = made()
    commit = runs[0].record.provenance["commit"]
    controls = {run.record.spec.seed: run.record.spec for run in rich.runs if run.record.spec.control == "frozen"}
    first, second = (run.record.spec for run in runs)
    assert (first.seed, second.seed) == (42, 123)
    assert found[:-1] == (
        f"git checkout {commit}",
        command(first),
        f"{command(controls[42])}  # the frozen control",
        f"git checkout {commit}{DIRTY}",
        command(second),
        f"{command(controls[123])}  # the frozen control",
    )
    assert "control=frozen" in found[2]


def test_the_audit_is_the_one_that_was_asked_for(made, rich):
    choice = Choice("digits", {"seeds": "42, 123", "scale": "0.02"})
    modified = dataclasses.replace(rich.edition, overrides={"D1.threshold": 100.0})
    _, found = made(choice=choice, edition=modified, waivers=())
    assert found[-1] == (
        "fa-registry audit --study digits --seeds 42,123 --scale 0.02 --device cpu --editions 2026-11,2026-05,2026-04"
        " --threshold D1.threshold=100.0"
    )


def test_without_a_study_the_new_runs_are_audited_and_waivers_are_said(made):
    line = made(opinions=())[1][-1]
    assert line.startswith("fa-registry audit --run RUN --edition 2026-11  # RUN: the id of each run that the lines")
    assert line.endswith("; with the waivers.toml whose waivers this report names")


@pytest.mark.parametrize(
    ("provenance", "line"),
    [
        ({"commit": "0123abc"}, "git checkout 0123abc  # whether the tree was clean is not known"),
        ({"commit": "a; rm -rf b", "dirty": False}, "git checkout 'a; rm -rf b'"),
        ({"commit": NOT_A_CHECKOUT, "fa_registry": "0.1.0"}, f"# commit: {NOT_A_CHECKOUT}; fa_registry 0.1.0"),
        (
            {"commit": "unknown: git\nrm -rf b"},
            "# commit: unknown: git rm -rf b; fa_registry of a version not recorded",
        ),
        ({}, "# commit: not recorded; fa_registry of a version not recorded"),
    ],
)
def test_what_is_known_of_the_commit_is_said_in_one_line(made, provenance, line):
    assert made(provenance)[1][0] == line


def test_a_control_that_the_report_lacks_is_said(made, rich):
    runs = tuple(run for run in rich.runs if run.record.spec.control == "none")
    found = made(runs=runs, opinions=())[1]
    assert sum(line.endswith("not part of this report") for line in found) == 2
