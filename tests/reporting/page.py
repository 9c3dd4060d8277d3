"""Reading a written page: its tags, references and words."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from contextlib import nullcontext
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fa_registry.audits.audit_command import AuditResult
from fa_registry.cli.audit import audited
from fa_registry.records import AuditReport
from fa_registry.reporting.render import render_report
from tests.helpers.pictures import blank_pictures

REFERENCES = {"src", "href", "srcset", "action", "data", "poster", "xlink:href", "formaction"}
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags, references, ids and text of a page; fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self.ids, self.handlers, self.open, self.words = [], [], [], [], [], []
        self.attributes = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attributes)))
        self.references += [value for name, value in attributes if name in REFERENCES]
        self.ids += [value for name, value in attributes if name == "id"]
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def written(audit: AuditReport, folder: Path, drawn: bool = False) -> dict[str, str]:
    """Every page of an audit by its name, in the order they were written; what is no text, as a PDF, as far as it is.

    drawn: with its pictures; else they stay blank.
    """
    with nullcontext() if drawn else blank_pictures():
        paths = render_report(audit, folder)
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8", "replace") for path in paths}


@lru_cache(maxsize=8)
def text_of(text: str) -> str:
    """What a reader sees, with single spaces."""
    return " ".join("".join(Page(text).words).split())


BLOCK = re.compile(
    r"</?(?:p|li|tr|h\d|d[tdl]|[uo]l|div|section|table|caption|summary|details|pre|nav|main|header|footer|figure|figcaption)\b[^>]*>"
)


def lines_of(page: str) -> str:
    """What a page says, one line for each block of text, without its pictures."""
    body = re.sub(r"<svg.*?</svg>|\s+", " ", page[page.index("</style>") :], flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", "", BLOCK.sub("\n", re.sub(r"</t[dh]>", " | ", body)))
    lines = (" ".join(line.split()) for line in html.unescape(text).split("\n"))
    return "\n".join(line for line in lines if line.strip(" |")) + "\n"


def of_kind(pages: Mapping[str, str], suffix: str) -> dict[str, str]:
    return {name: text for name, text in pages.items() if name.endswith(suffix)}


def terminal_rows(report: AuditReport) -> dict[str, dict[str, str]]:
    """Method → heading → cell of the table that `audit` prints."""
    with pytest.MonkeyPatch.context() as patch:
        tables: list[tuple] = []
        patch.setattr("fa_registry.cli.audit.table", lambda *given: tables.append(given))
        audited(AuditResult(report, (Path("index.html"),), "", 0), False)
    headings, rows, _ = tables[0]
    return {cells[0].replace(", ", ","): dict(zip(headings, cells, strict=True)) for cells in rows}


def section(text: str, name: str) -> str:
    """One section of a page, by the id of its heading."""
    return re.search(rf'<section[^>]* aria-labelledby="{name}">.*?</section>', text, re.DOTALL).group()
