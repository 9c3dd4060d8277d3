"""Names that others chose, on every page and in every file of an audit: no raw escape, no executable cell, no command, no tag."""

from __future__ import annotations

import csv
import dataclasses
import re
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from fa_registry.records import AuditReport
from fa_registry.reporting.files.csv import CALCULATED
from fa_registry.reporting.render import render_report
from fa_registry.text_safety import CATEGORIES
from tests.reporting.report_changes import with_record
from tests.reporting.sample_reports import small_report

pytestmark = pytest.mark.long

ESCAPES = "\x1b[2J\x9b31m\u202eevil\u2066\x7f\r\n\ufffe\x00"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'`|*_[x](javascript:alert(1)){{7*7}}{%x%}"
COMMANDS = r"\input{/etc/passwd}\write18{id}$\immediate$%^^5cinput "
STARTS = ("=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1")
NAMES = [start + ESCAPES + MARKUP + COMMANDS for start in STARTS]


def renamed(report: AuditReport) -> AuditReport:
    """Every text that comes from a store, a study file or a package is hostile."""
    runs = []
    for place, run in enumerate(report.runs):
        name = NAMES[place % len(NAMES)]
        spec = dataclasses.replace(run.record.spec, method=run.record.spec.method + name)
        provenance = {**run.record.provenance, "git_commit": f"{name}\udc80"}  # no typed field takes half a sign
        fields = {"name": name, "setting": name, "provenance": provenance, "spec": spec}
        runs.append(with_record(run, **fields))
    excluded = [
        dataclasses.replace(run, name=name, reason=name, failure=name, method=name, setting=name)
        for run, name in zip(report.excluded, NAMES, strict=False)
    ]
    edition = dataclasses.replace(report.edition, name=NAMES[1], overrides={NAMES[2]: 1.0})
    return dataclasses.replace(
        report,
        runs=tuple(runs),
        title=NAMES[0],
        selection=NAMES[3],
        remarks=tuple(NAMES),
        excluded=tuple(excluded),
        edition=edition,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, bytes]:
    """Relative path → bytes of everything that an audit writes."""
    out = tmp_path_factory.mktemp("hostile")
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in render_report(renamed(small_report()), out)}


def texts(files: dict[str, bytes], *suffixes: str) -> dict[str, str]:
    chosen = {name: data.decode("utf-8") for name, data in files.items() if Path(name).suffix in suffixes}
    assert chosen, f"no file ends in {suffixes}"
    return chosen


def test_no_file_holds_a_sign_that_is_not_seen(files):
    for name, text in texts(files, ".html", ".md", ".tex", ".csv", ".xml", ".svg", ".json").items():
        hidden = {char for char in text if unicodedata.category(char) in CATEGORIES} - {"\n", "\r", "\t"}
        assert not hidden, (name, sorted(map(ascii, hidden)))


def test_no_page_holds_a_tag_of_a_name(files):
    pages = {name: MarkdownIt().render(text) for name, text in texts(files, ".md").items()}  # its code blocks are text
    for name, text in {**texts(files, ".html"), **pages}.items():
        assert "<script>alert" not in text and "<img src=x" not in text and 'href="javascript' not in text, name


def test_no_cell_is_calculated(files):
    for name, text in texts(files, ".csv").items():
        for row in csv.reader(text.splitlines()):
            for cell in row:
                assert not CALCULATED.match(cell) or cell.startswith("'") or re.fullmatch(r"-?[\d.e+-]+", cell), (
                    name,
                    cell,
                )


def test_no_page_holds_a_command_of_a_name(files):
    for name, text in texts(files, ".tex").items():
        text = re.sub(r"(?<!\\)%.*", "", text)  # TeX does not read what is in a comment
        assert not re.search(r"\\(input|write18|immediate)\b", text) and "^^5c" not in text, name


def test_what_is_xml_is_well_formed(files):
    for name, text in texts(files, ".xml", ".svg").items():
        assert len(ElementTree.fromstring(text)), name
