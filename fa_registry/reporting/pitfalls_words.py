"""What an answer to a pitfall is, and what all questions share: the run, the report around it, looking figures up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fa_registry.protocol.integrity import difference_words
from fa_registry.records import Reading, RunAudit, RunSpec
from fa_registry.reporting.readings import scalar, site_row
from fa_registry.reporting.sources import Sources

AVOIDED, VIOLATED, UNKNOWN, NOT_APPLICABLE = "avoided", "violated", "unknown", "not applicable"
WORST_FIRST = (VIOLATED, UNKNOWN, AVOIDED, NOT_APPLICABLE)
TRUSTED = "the figures are as logged and were not measured again: audit without --trust-logged to know"
Said = tuple[str, str]  # one of the outcomes, and the evidence or why there is none


@dataclass(frozen=True)
class Answer:
    """What the records of some runs say. outcome: one of WORST_FIRST; evidence: figures, or why nothing can be known."""

    outcome: str
    evidence: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Pitfall:
    """One item of the checklist with its answers, worst first. lint: the rule that finds it in code, where there is one."""

    number: int
    title: str
    lint: str
    answers: tuple[Answer, ...]

    @property
    def outcome(self) -> str:
        """The worst of all runs."""
        return self.answers[0].outcome


@dataclass(frozen=True)
class Asked:
    """One run of a form and where it stands: its method's runs, and the whole report."""

    run: RunAudit
    group: Sequence[RunAudit]
    sources: Sources

    @property
    def spec(self) -> RunSpec:
        return self.run.record.spec

    @property
    def card(self) -> dict[str, object]:
        """The method's card; empty where the report carries none."""
        return dict(self.sources.report.cards.get(f"methods/{self.spec.method}", {}))

    @property
    def verified(self) -> bool:
        return self.run.record.integrity.state == "verified"

    def row(self, name: str) -> tuple[Reading, ...]:
        return site_row(self.run.record, name)

    def scalar(self, name: str) -> Reading:
        return scalar(self.run.record, name)

    def convention(self, name: str) -> object:
        """How it was measured, as the run wrote it down; None where it did not."""
        return self.run.record.measurements.conventions.get(name)

    def mismatch(self, *families: str) -> str:
        """The logged figures that do not come out when they are measured again, in words; empty where none is among them.

        families: how the names of the quantities asked for begin (`gamma`: gamma_null_p too); all where none is given.
        """
        differences = self.run.record.integrity.differences
        return "; ".join(difference_words([one for one in differences if one.quantity.startswith(families or "")]))


def known_sites(*rows: Sequence[Reading]) -> Iterator[tuple[int, tuple[float, ...]]]:
    """(site, one value a row) for every site where all rows have one."""
    for site, readings in enumerate(zip(*rows, strict=False)):
        if all(reading.value is not None for reading in readings):
            yield site, tuple(reading.value for reading in readings)


def absence(name: str, row: Iterable[Reading]) -> str:
    """Why a quantity has no value at any site."""
    reasons = dict.fromkeys(reading.reason for reading in row if reading.reason)
    return f"{name}: {'; '.join(reasons)}" if reasons else f"{name} was not measured"
