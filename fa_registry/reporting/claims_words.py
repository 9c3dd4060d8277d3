"""What all claims share: whom they are about, how a figure is looked up for them, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from fa_registry.quantities import SUBJECTS
from fa_registry.records import Finding, Reading, RunAudit
from fa_registry.reporting.filters import KINDS
from fa_registry.reporting.parts import Claim
from fa_registry.reporting.readings import scalar, site_row

EXPLODED, AT_FLOOR, NOISY, UNDERCUT, NOT_SPECIFIC, HIGH = (
    "EXPLODED",
    "AT FLOOR",
    "NOISY",
    "UNDERCUT",
    "NOT SPECIFIC",
    "HIGH",
)
GRADIENTS = ("g_norm", "g_norm_mean_ce", "g_L")
# (which figure, which side of its limit) → the house's word for it: an edition is free to call it otherwise.
CALLED: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        **{(quantity, "above"): EXPLODED for quantity in SUBJECTS["scale"]},
        **{(quantity, "below"): AT_FLOOR for quantity in GRADIENTS},
        **{(quantity, "below"): NOISY for quantity in ("fidelity", "fidelity_min")},
        **{(quantity, "below_reference_plus"): UNDERCUT for quantity in SUBJECTS["depth"]},
        **{(quantity, "above"): HIGH for quantity in SUBJECTS["stability"]},
        ("gamma_null_p", "above"): NOT_SPECIFIC,
    }
)
HEADLINE_GAMMA = "gamma_deep_mean"
GRADIENT = 1 - 1e-6  # Γ from here on is that of the gradient itself: an angle below 0.1°


# Every claim there is → its kind. tests/reporting/test_claims_table.py earns each of them and takes each of them away again.
KEYS: Mapping[str, str] = MappingProxyType(
    {
        "aligned by feedback": "may",
        "aligned in part": "note",
        "aligned, null unknown": "may",
        "at floor": "not",
        "beats frozen": "may",
        "carried by one end": "not",
        "converged": "may",
        "differs from its seal": "open",
        "diverged": "not",
        "exploded": "not",
        "explained": "note",
        "failed": "open",
        "incomplete": "open",
        "keeps scale": "note",
        "method fails": "not",
        "method not measured": "open",
        "no gamma": "open",
        "noisy": "not",
        "not judged": "open",
        "not sealed": "open",
        "not specific": "not",
        "one seed": "open",
        "other code": "open",
        "other fails": "not",
        "other passes": "note",
        "other warns": "open",
        "passes alone": "note",
        "provisional": "open",
        "reference clear": "note",
        "reference near its floor": "note",
        "specific": "may",
        "stability high": "not",
        "stability low": "note",
        "stated": "open",
        "trained depth": "may",
        "passes without depth": "open",
        "undecided": "open",
        "undercut": "not",
        "waived": "open",
        "within limit": "note",
    }
)


def claim(key: str, text: str, runs: Sequence[RunAudit], touched: Sequence[RunAudit]) -> Claim:
    """One claim about the runs it touches, with their seeds and ids. key: of KEYS, which says its kind."""
    seeds = ", ".join(str(run.record.spec.seed) for run in touched)
    where = f"in {len(touched)} of {len(runs)} seeds: {seeds}" if len(runs) > 1 else f"seed {seeds}"
    return Claim(KEYS[key], f"{text} ({where}).", tuple(run.record.run_id for run in touched), key)


def has_gamma(run: RunAudit) -> bool:
    """Whether there is a Γ to read as alignment: the headline has a value, and the credit is not the gradient itself."""
    return scalar(run.record, HEADLINE_GAMMA).value is not None and not is_gradient(run)


def is_gradient(run: RunAudit) -> bool:
    """Whether the credit is the gradient at every site, whatever the method's card says of it: then nothing aligned itself."""
    row = site_row(run.record, "gamma")
    return bool(row) and all(one.value is not None and one.value >= GRADIENT for one in row)


def passes(run: RunAudit) -> bool:
    """Whether every rule that the verdict rests on passes by itself: what was waived still holds."""
    return run.verdict.outcome == "pass" and not any(one.gating and one.outcome == "waived" for one in run.findings)


def by_author(runs: Iterable[RunAudit], quantities: Sequence[str]) -> str:
    """How a claim ends that rests on a figure which nobody here measured; empty where none does."""
    stated = any(one.stated and one.quantity in quantities for run in runs for one in run.findings)
    return "; the frozen accuracy is stated by the author, not measured here" if stated else ""


def seen(finding: Finding) -> str:
    """What a rule saw: in the house's word where it fires on a figure that has one, else in the edition's own.

    In reports of older releases it is the edition's own word that is asked for.
    """
    guarded = CALLED.get((finding.guard.quantity, finding.guard.crossed)) if finding.guard else None
    return guarded or CALLED.get((finding.quantity, finding.crossed)) or finding.state


def with_state(runs: Iterable[RunAudit], *states: str, quantities: Sequence[str] = ()) -> list[RunAudit]:
    """The runs of which a finding saw one of the states; quantities: only findings about these, if any are given."""
    return [run for run in runs if finding_with(run, *states, quantities=quantities)]


def finding_with(run: RunAudit, *states: str, quantities: Sequence[str] = ()) -> Finding | None:
    """The first finding of a run that saw one of the states."""
    return next(
        (one for one in run.findings if seen(one) in states and (not quantities or one.quantity in quantities)), None
    )


def extent(runs: Iterable[RunAudit], read: Callable[[RunAudit], Reading], kind: str) -> str:
    """A figure of several runs in words: `3.0`, or `between 3.0 and 4.2`; empty where none has it."""
    values = sorted(reading.value for reading in map(read, runs) if reading.value is not None)
    if not values:
        return ""
    low, high = (KINDS[kind](value) for value in (values[0], values[-1]))
    return low if low == high else f"between {low} and {high}"


def listed(word: str, numbers: Sequence[int]) -> str:
    """`site 0`, `seeds 42, 123`."""
    return f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
