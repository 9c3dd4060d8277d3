"""BibTeX entries for the sources of a reporting form.

A form cites the sources of its method, architecture, data set, diagnostics and editions. A form also cites this software.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fa_registry.protocol.builtin_editions import describe_edition
from fa_registry.records import AuditReport, Finding, RunAudit

SOFTWARE = "fa_registry"
OURS = re.compile(r"\b(this project|fa_registry)\b")
ARXIV = re.compile(r"\barXiv[ :]?(\d{4}\.\d{4,5})")
ENTRY = re.compile(r"^\s*@\w+\s*\{\s*([^,\s]+)\s*,", re.MULTILINE)
UNSAFE, SPECIAL, ESCAPED = re.compile(r"[{}\\]"), re.compile(r"([&%#_$])"), r"\\\1"


@dataclass(frozen=True)
class Citation:
    """One BibTeX entry.

    Args:
        uses: One text for each part of the form that cites this entry.
    """

    key: str
    bibtex: str
    uses: tuple[str, ...]


@dataclass(frozen=True)
class Bibliography:
    """BibTeX entries of one reporting form, without duplicates, in order of first use.

    Args:
        uncited: One text for every part of the form that has no source.
    """

    entries: tuple[Citation, ...]
    uncited: tuple[str, ...]

    @property
    def bibtex(self) -> str:
        """Text of a BibTeX file with all entries."""
        return "\n\n".join(entry.bibtex for entry in self.entries)


def bibliography(runs: Sequence[RunAudit], findings: Sequence[Finding], report: AuditReport) -> Bibliography:
    """Return the entries that a form about one method in one setting must cite.

    The findings are those of all editions that judged the runs. The report contains the plug-in cards and the editions.
    """
    spec = runs[0].record.spec
    cited_parts = [
        (f"method {spec.method}", f"methods/{spec.method}"),
        (f"architecture {spec.architecture}", f"architectures/{spec.architecture}"),
        (f"data set {spec.dataset}", f"datasets/{spec.dataset}"),
        *((f"diagnostic {key.partition('/')[2]}", key) for key in _judging(findings, report.cards)),
    ]
    gathered = _Gathered(_software(runs))
    for part, key in cited_parts:
        gathered.card(part, report.cards.get(key))
    for edition in (report.edition, *(opinion.edition for opinion in report.opinions)):
        key = "edition-" + re.sub(r"[^a-z0-9]+", "-", edition.name.lower()).strip("-")
        gathered.description(f"edition {describe_edition(edition)}", edition.source, key)
    gathered.entry(SOFTWARE, gathered.software, "this registry and its reports")
    return Bibliography(gathered.citations(), tuple(gathered.uncited))


class _Gathered:
    """Collection of BibTeX entries; a key that is already used gets a numeric suffix."""

    def __init__(self, software: str):
        self.software = software
        self.uncited: list[str] = []
        self._entries: dict[str, tuple[str, dict[str, None]]] = {}

    def card(self, what: str, card: Mapping[str, Any] | None) -> None:
        """Add the sources that a plug-in card names, or a remark that the card names none."""
        if card is None:
            self.uncited.append(f"the report has no card of {what}, so there is no citation")
        elif bibtex := str(card.get("bibtex", "")).strip():
            for key, text in entries_of(bibtex):
                self.entry(key, text, what)
            source = str(card.get("source", ""))
            for number in dict.fromkeys(ARXIV.findall(source)):
                if number not in bibtex:
                    self.entry(f"arxiv{number}", _arxiv(number), f"{what}: {source}")
        elif source := str(card.get("citation") or card.get("source") or "").strip():
            self.description(what, source, what.replace(" ", "-"))
        else:
            self.uncited.append(f"the card of {what} has no citation")

    def description(self, what: str, source: str, key: str) -> None:
        """Add the arXiv papers and this software if `source` names them; otherwise add the text of `source`."""
        use = f"{what}: {source}"
        numbers = dict.fromkeys(ARXIV.findall(source))
        for number in numbers:
            self.entry(f"arxiv{number}", _arxiv(number), use)
        if OURS.search(source):
            self.entry(SOFTWARE, self.software, use)
        elif not numbers:
            self.entry(key, _in_text(key, source), use)

    def entry(self, key: str, text: str, use: str) -> None:
        name, number = key, 1
        while name in self._entries and self._entries[name][0] != text:
            number += 1
            name = f"{key}-{number}"
        self._entries.setdefault(name, (text, {}))[1][use] = None

    def citations(self) -> tuple[Citation, ...]:
        return tuple(Citation(name, _called(name, text), tuple(uses)) for name, (text, uses) in self._entries.items())


def entries_of(bibtex: str) -> Iterator[tuple[str, str]]:
    """Yield (key, text) of each BibTeX entry; a text without an entry becomes the note of one @misc entry."""
    starts = list(ENTRY.finditer(bibtex))
    if not starts:
        key = re.sub(r"[^a-z0-9]+", "-", bibtex.lower()).strip("-")[:40]
        yield key, _in_text(key, bibtex)
        return
    ends = [*(start.start() for start in starts[1:]), len(bibtex)]
    for start, end in zip(starts, ends, strict=True):
        yield start[1], bibtex[start.start() : end].strip()


def _judging(findings: Iterable[Finding], cards: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the card key of each diagnostic that measures the metric of a finding."""
    judged_metrics = {quantity for finding in findings for quantity in finding.quantities}
    for key, card in cards.items():
        if key.startswith("diagnostics/") and judged_metrics & set(map(str, card.get("quantities", ()))):
            yield key


def _called(name: str, text: str) -> str:
    key = ENTRY.search(text)[1]
    return text if key == name else text.replace(key, name, 1)


def _in_text(key: str, source: str) -> str:
    """Return a @misc entry whose note is the source.

    BibTeX styles sort entries without an author by the field `key`.
    """
    text = SPECIAL.sub(ESCAPED, UNSAFE.sub("", source))
    return f"@misc{{{key},\n  key={{{key}}},\n  note={{{text}}}\n}}"


def _arxiv(number: str) -> str:
    return (
        f"@misc{{arxiv{number},\n  key={{arXiv {number}}},\n  howpublished={{arXiv preprint arXiv:{number}}},\n"
        f"  year={{20{number[:2]}}},\n  eprint={{{number}}}, archivePrefix={{arXiv}}\n}}"
    )


def _software(runs: Sequence[RunAudit]) -> str:
    """Return the @misc entry of this software with the recorded versions.

    Plain BibTeX styles do not support @software.
    """
    origins = [run.record.provenance for run in runs]
    recorded = ((origin.get("versions") or {}).get(SOFTWARE) or origin.get(SOFTWARE) for origin in origins)
    versions = dict.fromkeys(map(str, filter(None, recorded)))
    version = f", version {', '.join(versions)}" if versions else ""
    title = "{fa\\_registry}: an {MLflow}-tracked registry of feedback-alignment experiments with audit reports"
    return (
        f"@misc{{{SOFTWARE},\n  title={{{title}}},\n  author={{{{The fa\\_registry maintainers}}}},\n"
        f"  howpublished={{Software{SPECIAL.sub(ESCAPED, UNSAFE.sub('', version))}}}\n}}"
    )
