"""Published figures go JSON → object → JSON unchanged."""

from __future__ import annotations

from fa_registry import jsonio
from fa_registry.records import (
    FigureVerdict,
    Margin,
    Measured,
    Published,
    PublishedFigure,
    Reading,
    ReferenceSetting,
    Reproduction,
)

FIGURE = PublishedFigure(
    "growth_max",
    "dfa",
    Published(values=(2.9, 11.0)),
    Margin(0.5, "log10", "a factor of three"),
    ReferenceSetting("resmlp", "cifar10", 100, {"terminal_ln": False}, {"batch_size": 256}),
    "A Paper",
    penalty=0.01,
)


def test_both_ways():
    rows = (
        FigureVerdict(FIGURE, "differs", "why", (Measured(42, "r", Reading(1.0)),), interval_90=(0.1, 0.2)),
        FigureVerdict(PublishedFigure("x", "bp", Published(never=True), Margin(0.0), None, "s"), "not measured", "why"),
    )
    found = Reproduction("study", "title", "digest", rows, ("remark",))
    text = jsonio.canonical(found)
    again = jsonio.decode(Reproduction, jsonio.encode(found))
    assert again == found and jsonio.canonical(again) == text


def test_the_label_is_that_of_runs():
    assert FIGURE.label == "dfa+pen λ=0.01"
    assert PublishedFigure("x", "bp", Published(value=1.0), Margin(1.0), None, "s", control="frozen").label == "frozen"
