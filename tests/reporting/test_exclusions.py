"""Runs that were not judged stand in the form of their method, and in no other."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry import jsonio
from fa_registry.records import Exclusion
from fa_registry.reporting.claims import exclusion_claim
from fa_registry.reporting.pages.form import form_context
from fa_registry.reporting.sources import Excluded, Sources
from fa_registry.reporting.text.environment import Pages, variables

BESIDE = "in none of these figures"


def missing(report, method, **changes):
    """An exclusion of a further seed of the method."""
    spec = next(run.record.spec for run in report.runs if run.record.spec.method == method)
    setting = report.runs[0].record.setting
    given = {"method": method, "setting": setting, "spec": dataclasses.replace(spec, seed=9), **changes}
    return Exclusion("d" * 32, f"{method} s9", "integrity failure: feedback: expected SHA-256 1, found 2", **given)


def pages(report):
    """method → its form as HTML, Markdown and LaTeX, when these exclusions belong to the report."""
    sources, written = Sources.of(report), Pages()
    return {
        group.method: [
            written.render(f"form.{kind}.j2", variables(form_context(group, link, sources, {})))
            for kind in ("html", "md", "tex")
        ]
        for group, link in sources.forms
    }


@pytest.mark.parametrize("changes", [{}, {"spec": None}])
def test_a_run_that_was_not_judged_stands_beside_the_headline_and_opens_a_claim(report, changes):
    made = pages(dataclasses.replace(report, excluded=(missing(report, "dfa", **changes),)))
    for text in made["dfa"]:
        assert BESIDE in text and "feedback: expected SHA-256 1, found 2" in text
        assert "One selected run was not judged" in text
        assert ("seed 9" in text) == (not changes)
    assert all(BESIDE not in text for text in made["bp"])


def test_another_variant_of_the_method_is_not_meant_where_the_specification_is_known(report):
    one = missing(report, "dfa")
    other = dataclasses.replace(one, spec=dataclasses.replace(one.spec, method_options={"scale": 2.0}))
    group = next(group for group in Sources.of(report).groups if group.method == "dfa")
    changed = dataclasses.replace(report, excluded=(one, other, dataclasses.replace(other, spec=None)))
    assert [found.spec for found in Excluded.of(changed).of_group(group)] == [one.spec, None]


def test_names_are_foreign_text(report, hostile):
    made = pages(dataclasses.replace(report, excluded=(dataclasses.replace(missing(report, "dfa"), name=hostile),)))
    assert all("<script" not in text for text in made["dfa"][:2])


def test_the_claim_counts_and_names_the_seeds(report):
    one = missing(report, "dfa")
    claim = exclusion_claim([one, dataclasses.replace(one, run_id="", spec=None)])
    assert claim.kind == "open" and claim.run_ids == (one.run_id,)
    assert claim.text.startswith(
        "2 selected runs were not judged (seed 9, 1 whose seed is not known): nothing may be said of them"
    )


def test_an_exclusion_of_an_older_release_is_read_and_belongs_to_no_form(report):
    old = jsonio.decode(Exclusion, {"run_id": "a", "name": "b", "reason": "c", "failure": ""})
    assert old.spec is None and Excluded.of(dataclasses.replace(report, excluded=(old,))).by_name == {}
