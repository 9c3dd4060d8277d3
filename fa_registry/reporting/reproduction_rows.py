"""The rows of a reproduction's table: a study's published figures beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from fa_registry.reporting.parts import EntryValue


@dataclass(frozen=True)
class ReproductionRow:
    """A published figure, in words. look: the verdict outcome whose colour it has. each: one a run it was compared with."""

    outcome: str
    look: str
    quantity: str
    method: str
    setting: str
    published: str
    measured: str
    each: tuple[EntryValue, ...]
    reason: str
    source: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class ReproductionTable:
    """A study's published figures. counts: (outcome, figures), zeros too; tested, untested: rows, what differs first.

    digest: of the reference.toml they were read from.
    """

    study: str
    title: str
    digest: str
    counts: tuple[tuple[str, int], ...]
    tested: tuple[ReproductionRow, ...]
    untested: tuple[ReproductionRow, ...]
    remarks: tuple[str, ...]
