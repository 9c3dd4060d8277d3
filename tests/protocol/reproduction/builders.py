"""A published value, runs to compare with it, and the one row that results."""

from __future__ import annotations

import dataclasses
from typing import Any

from fa_registry.protocol.reproduction import reproduction
from fa_registry.protocol.rules import load_edition
from fa_registry.records import (
    FigureVerdict,
    Margin,
    Published,
    PublishedFigure,
    Reference,
    ReferenceSetting,
    RunRecord,
)
from tests.analyses.builders import CARDS, SEEDS, report_of, run

SETTING = ReferenceSetting("resmlp", "digits", 3, {"d_hidden": 16, "num_blocks": 2})


def figure(published: Published | float, margin: float = 0.02, **changes: Any) -> PublishedFigure:
    """Of bp's accuracy on the tests' own setting. changes: fields, and `scale` of the margin, `setting` fields."""
    made = published if isinstance(published, Published) else Published(value=published)
    setting = dataclasses.replace(SETTING, **changes.pop("setting", {}))
    size = Margin(margin, changes.pop("scale", "linear"), "because")
    return dataclasses.replace(PublishedFigure("accuracy", "bp", made, size, setting, "A Paper; table 1"), **changes)


def seeds(*accuracies: Any, **given: Any) -> list[RunRecord]:
    """A run of bp for every accuracy."""
    return [run("bp", seed, accuracy=value, **given) for seed, value in zip(SEEDS, accuracies, strict=False)]


def row(one: PublishedFigure, records: list[RunRecord], cards: Any = CARDS) -> FigureVerdict:
    report = report_of(records, load_edition("2026-12"), cards=cards)
    (found,) = reproduction(Reference("study", "title", "digest", (one,)), report).rows
    return found
