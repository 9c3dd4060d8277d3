"""Writer of junit.xml: the audit as a test report for a build server.

A test suite is a method in a setting. A test case is the finding of a rule on a run. JUnit has four outcomes, but rules have
seven:

- pass: passed
- warn: passed, with the sentence in system-out
- fail: failure; passed if the rule does not gate
- error: error
- not_applicable, skipped, waived: skipped

Every run also has a test case `integrity`. A run that could not be judged is an error, so missing runs never make the test report
pass. The file contains no times. Therefore the same audit gives the same bytes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from fa_registry.protocol.builtin_editions import describe_edition
from fa_registry.protocol.grouping import Group, groups
from fa_registry.records import AuditReport, Exclusion, Finding, RunAudit
from fa_registry.reporting.labels import group_label
from fa_registry.reporting.view_models import ReportFile
from fa_registry.statistics import CONFIDENCE, level_text
from fa_registry.text_safety import escape_control

Element = ElementTree.Element
ELEMENTS = {"fail": "failure", "error": "error", "not_applicable": "skipped", "skipped": "skipped", "waived": "skipped"}
# state of integrity → outcome of its test case; the states verified and trusted pass
STATES = {"mismatch": "error", "unverifiable": "skipped"}
COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}  # attribute → the element it counts


def write_junit(report: AuditReport, path: Path) -> None:
    """Write junit.xml: first the total counts, then the suites."""
    total = Counter(dict.fromkeys(("tests", *COUNTS), 0))
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", dir=path.parent) as body,
        path.open("w", encoding="utf-8", newline="\n") as stream,
    ):
        for suite in suites(report):
            total.update({name: int(suite.get(name)) for name in ("tests", *COUNTS)})
            _write(suite, body)
        attributes = "".join(f' {name}="{count}"' for name, count in total.items())
        stream.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        stream.write(f"<testsuites name={quoteattr(escape_control(report.title))}{attributes}>\n")
        body.seek(0)
        shutil.copyfileobj(body, stream)
        stream.write("</testsuites>\n")


def suites(report: AuditReport) -> Iterator[Element]:
    """Yield one suite per method and setting, in the order of the pages, and one of the runs not judged."""
    for group in groups(report):
        name = f"{group_label(group)} · {group.setting}"
        verdict = {"verdict": group.verdict.label, "proof": group.verdict.proof}
        yield _suite(name, report, [case for run in group.every_run for case in _cases(run, group)], verdict)
    if report.excluded:
        yield _suite("not judged", report, [_excluded(exclusion) for exclusion in report.excluded], {})


def _suite(name: str, report: AuditReport, cases: list[Element], verdict: Mapping[str, str]) -> Element:
    counts = {attribute: sum(case.find(tag) is not None for case in cases) for attribute, tag in COUNTS.items()}
    suite = _element("testsuite", name=name, tests=len(cases), **counts)
    properties = ElementTree.SubElement(suite, "properties")
    edition = report.edition
    context = {**verdict, "selection": report.selection}
    context |= {"edition": describe_edition(edition), "edition digest": edition.digest}
    context |= {f"override {limit}": value for limit, value in sorted(edition.overrides.items())}
    properties.extend(_element("property", name=key, value=value) for key, value in context.items())
    suite.extend(cases)
    return suite


def _cases(run: RunAudit, group: Group) -> Iterator[Element]:
    class_name = f"{group_label(group)} · {group.setting}"
    run_label = f"seed {run.record.spec.seed} · run {run.record.run_id}"
    for finding in run.findings:
        name = f"{finding.rule} {finding.title} · {run_label}"
        yield _finding(_element("testcase", classname=class_name, name=name), finding)
    integrity = run.record.integrity
    case = _element("testcase", classname=class_name, name=f"integrity · {run_label}")
    if integrity.state in STATES:
        _outcome(case, STATES[integrity.state], integrity.state, "\n".join(integrity.details))
    yield case


def _finding(case: Element, finding: Finding) -> Element:
    text = "\n".join(_lines(finding))
    if finding.outcome in ELEMENTS and (finding.gating or finding.outcome != "fail"):
        _outcome(case, ELEMENTS[finding.outcome], finding.outcome, text, finding.sentence)
    else:
        output = ElementTree.SubElement(case, "system-out")
        output.text = escape_control(f"{finding.outcome}\n{text}")
    return case


def _lines(finding: Finding) -> Iterator[str]:
    observed = finding.observed
    yield finding.sentence
    yield f"required: {finding.required}"
    yield f"observed: {finding.quantity} {f'N/A ({observed.reason})' if observed.value is None else repr(observed.value)}"
    yield f"run: {finding.run_id}"
    details = {
        "state": finding.state_text,
        "counts for the verdict": "" if finding.gating else "no",
        "site": finding.site,
        f"{level_text(finding.confidence or CONFIDENCE)} interval": finding.interval,
        "first fires at epoch": finding.first_fire,
        "reference run": finding.reference_run_id,
        "detail": finding.detail,
    }
    yield from (f"{name}: {value}" for name, value in details.items() if value not in ("", None))


def _outcome(case: Element, tag: str, kind: str, text: str, message: str = "") -> None:
    """Add the outcome to the test case; in JUnit, `skipped` has no type attribute."""
    typed = tag != "skipped"
    element = _element(tag, message=message or text, **({"type": kind} if typed else {}))
    element.text = escape_control(text if typed else f"{kind}\n{text}")
    case.append(element)


def _excluded(run: Exclusion) -> Element:
    case = _element("testcase", classname="not judged", name=f"{run.name} · run {run.run_id}")
    _outcome(case, "error", "excluded", run.failure or run.reason, run.reason)
    return case


def _element(tag: str, **attributes: object) -> Element:
    return Element(tag, {name: escape_control(str(value)) for name, value in attributes.items()})


def _write(suite: Element, stream: TextIO) -> None:
    ElementTree.indent(suite, " ")
    stream.write(ElementTree.tostring(suite, encoding="unicode") + "\n")


FILE = ReportFile("junit.xml", "every finding as a test case, for a build server", write_junit)
