"""junit.xml: every finding a case, the outcomes as JUnit knows them, valid for any name."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

import pytest

from fa_registry.protocol.grouping import groups
from fa_registry.records import OUTCOMES, Integrity, Reading
from fa_registry.reporting.files.junit import suites, write_junit
from fa_registry.text_safety import escape_control
from tests.reporting.sample_reports import a_finding

CHILDREN = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase"],
    "properties": ["property"],
    "testcase": ["skipped", "error", "failure", "system-out"],
}
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"name", "classname"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}


def tree(report, folder) -> ElementTree.Element:
    write_junit(report, folder / "junit.xml")
    return ElementTree.parse(folder / "junit.xml").getroot()


def with_findings(report, *findings, **record):
    """The first run alone with these findings. record: fields that replace its record's."""
    first = report.runs[0]
    run = dataclasses.replace(first, findings=findings, record=dataclasses.replace(first.record, **record))
    return dataclasses.replace(report, runs=(run,), excluded=())


def case_of(report, **fields):
    """The case of the one finding of a report."""
    (suite,) = suites(with_findings(report, a_finding("D1", **fields)))
    return suite.find("testcase")


@pytest.mark.parametrize("which", ["report", "rich"])
def test_it_is_built_as_the_readers_of_junit_expect(which, request, tmp_path):
    root = tree(request.getfixturevalue(which), tmp_path)
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        assert [child.tag for child in element] == sorted(
            (child.tag for child in element), key=CHILDREN.get(element.tag, []).index
        )


@pytest.mark.parametrize("which", ["report", "rich"])
def test_the_counts_are_those_of_the_cases(which, request, tmp_path):
    root = tree(request.getfixturevalue(which), tmp_path)
    for element in (root, *root.findall("testsuite")):
        assert int(element.get("tests")) == len(element.findall(".//testcase"))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.get(name)) == len(element.findall(f".//{tag}"))


def test_every_run_and_rule_is_a_case_and_every_run_has_its_integrity(rich, tmp_path):
    names = [case.get("name") for case in tree(rich, tmp_path).iter("testcase")]
    assert len(names) == len(set(names)) == sum(len(run.findings) + 1 for run in rich.runs)
    for run in rich.runs:
        for finding in run.findings:
            whose = f"seed {run.record.spec.seed} · run {run.record.run_id}"
            assert f"{finding.rule} {finding.title} · {whose}" in names


SHOWN = dict(
    zip(OUTCOMES, ("system-out", "system-out", "failure", "error", "skipped", "skipped", "skipped"), strict=True)
)


@pytest.mark.parametrize(("outcome", "tag"), list(SHOWN.items()))
def test_seven_outcomes_become_four(outcome, tag, report):
    (child,) = case_of(report, outcome=outcome)
    assert child.tag == tag and "required: at most 50" in child.text and "observed: growth 1.0" in child.text


def test_a_rule_that_the_verdict_does_not_look_at_fails_nothing(report):
    (child,) = case_of(report, outcome="fail", gating=False)
    assert child.tag == "system-out" and "the verdict: no" in child.text


def test_what_a_finding_knows_is_shown(report):
    (child,) = case_of(report, site=3, first_fire=12, detail="waived by A", observed=Reading(None, "lost"))
    for text in ("site: 3", "first fires at epoch: 12", "detail: waived by A", "observed: growth N/A (lost)"):
        assert text in child.text


@pytest.mark.parametrize(
    ("state", "tags"), [("verified", []), ("trusted", []), ("unverifiable", ["skipped"]), ("mismatch", ["error"])]
)
def test_a_run_that_is_not_intact_is_seen(state, tags, report):
    (suite,) = suites(with_findings(report, integrity=Integrity(state, ("a file changed",))))
    (case,) = suite.findall("testcase")
    assert [child.tag for child in case] == tags and all("a file changed" in child.text for child in case)


def test_a_run_that_was_not_judged_is_an_error(report, tmp_path):
    last = tree(report, tmp_path).findall("testsuite")[-1]
    assert last.get("name") == "not judged" and last.get("errors") == str(len(report.excluded))
    assert "still running" in last.find("testcase/error").get("message")


def test_the_suite_names_the_edition_and_what_was_overridden(report):
    edition = dataclasses.replace(report.edition, overrides={"D1.threshold": 7.0})
    suite = next(suites(dataclasses.replace(report, edition=edition)))
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert properties["edition digest"] == edition.digest and properties["override D1.threshold"] == "7.0"


def test_a_suite_has_the_verdict_of_its_group_and_the_level_of_proof(report):
    for suite, group in zip(suites(report), groups(report), strict=False):
        properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
        assert (properties["verdict"], properties["proof"]) == (group.verdict.label, group.verdict.proof)


@pytest.mark.parametrize("name", ["\x00\x1b[31m", "\udc80", "\ufffe", "<&\"'>]]>", "\U0001f600\r\n\t"])
def test_any_name_is_valid(name, report, tmp_path):
    audit = with_findings(report, a_finding("D1", sentence=name, detail=name), setting=name)
    root = tree(dataclasses.replace(audit, title=name), tmp_path)
    assert root.get("name") == escape_control(name)
    assert root.find(".//testcase").get("classname") == f"bp · {escape_control(name)}"


def test_an_audit_without_runs_is_valid(report, tmp_path):
    root = tree(dataclasses.replace(report, runs=(), excluded=()), tmp_path)
    assert root.get("tests") == "0" and len(root) == 0
