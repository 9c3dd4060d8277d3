"""What all claims share: whom they are about, how a figure is looked up for them, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fa_registry.records import Finding, Reading, RunAudit
from fa_registry.reporting.filters import KINDS
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.readings import scalar


def claim(kind: str, text: str, runs: Sequence[RunAudit], touched: Sequence[RunAudit]) -> Claim:
    """One claim about the runs it touches, with their seeds and ids."""
    seeds = ", ".join(str(run.record.spec.seed) for run in touched)
    where = f"in {len(touched)} of {len(runs)} seeds: {seeds}" if len(runs) > 1 else f"seed {seeds}"
    return Claim(kind, f"{text} ({where}).", tuple(run.record.run_id for run in touched))


def has_gamma(run: RunAudit) -> bool:
    """Whether the headline Γ has a value; exact credit has none."""
    return scalar(run.record, "gamma_deep_mean").value is not None


def passes(run: RunAudit) -> bool:
    """Whether every rule that the verdict rests on passes by itself: what was waived still holds."""
    return run.verdict.outcome == "pass" and not any(one.gating and one.outcome == "waived" for one in run.findings)


def by_author(runs: Iterable[RunAudit], quantities: Sequence[str]) -> str:
    """How a claim ends that rests on a figure which nobody here measured; empty where none does."""
    stated = any(one.stated and one.quantity in quantities for run in runs for one in run.findings)
    return "; the frozen accuracy is stated by the author, not measured here" if stated else ""


def with_state(runs: Iterable[RunAudit], *states: str, quantities: Sequence[str] = ()) -> list[RunAudit]:
    """The runs of which a finding has one of the states; quantities: only findings about these, if any are given."""
    return [run for run in runs if finding_with(run, *states, quantities=quantities)]


def finding_with(run: RunAudit, *states: str, quantities: Sequence[str] = ()) -> Finding | None:
    """The first finding of a run in one of the states."""
    return next(
        (one for one in run.findings if one.state in states and (not quantities or one.quantity in quantities)), None
    )


def extent(runs: Iterable[RunAudit], read: Callable[[RunAudit], Reading], kind: str) -> str:
    """A figure of several runs in words: `3.0`, or `between 3.0 and 4.2`; empty where none has it."""
    values = sorted(reading.value for reading in map(read, runs) if reading.value is not None)
    if not values:
        return ""
    low, high = (KINDS[kind](value) for value in (values[0], values[-1]))
    return low if low == high else f"between {low} and {high}"
