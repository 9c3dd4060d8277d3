"""What all claims share: whom they are about, how a figure is looked up for them, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fa_registry.quantities import HEADLINE_GAMMA, SUBJECTS, label_of, symbol_of
from fa_registry.records import Finding, Reading, RunAudit
from fa_registry.reporting.lookups import last_site, scalar, site_row
from fa_registry.reporting.text.filters import KINDS, at_least, compact
from fa_registry.reporting.values import Claim

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
# As the catalogue calls what sentences speak of.
GAMMA, GROWTH, GAIN, FIDELITY = map(symbol_of, ("gamma", "growth", "gain", "fidelity"))
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
    return f"; the {label_of('frozen_accuracy')} is stated by the author, not measured here" if stated else ""


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


# Claims about scale and reference: what an exploded stream, a small gradient, a fitted or a noisy one allow to say.


LEAST_FIDELITY = 0.99  # protocol.md §1: below it the reference is numerical noise
GROWN = 50.0  # ‖h_L‖/‖h_0‖: the first release of edition 2026-04 called a stream exploded from here on
CONVERGED = "CONVERGED"


def reference_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Those about the scale of the stream and about the gradient that Γ compares with."""
    scale = with_state(runs, EXPLODED, quantities=SUBJECTS["scale"])
    floor = with_state(runs, AT_FLOOR, quantities=SUBJECTS["reference"])
    both = [run for run in scale if run in floor]
    yield from _floor_claims(runs, both, "the stream has exploded and the reference gradient is at its floor")
    yield from _floor_claims(runs, [run for run in floor if run not in both], "the reference gradient is at its floor")
    yield from _explanations(runs, [run for run in floor if _has_grown(run) and _is_exact([run])])
    alone = [run for run in scale if run not in both]
    if alone:
        text = "The stream has exploded: norms and gradients of these blocks are not on the scale of training"
        yield claim("exploded", text, runs, alone)
    yield from _converged(runs)
    yield from _noisy(runs)


def _floor_claims(runs: Sequence[RunAudit], touched: Sequence[RunAudit], why: str) -> Iterator[Claim]:
    tiny = f"; it is tiny but exact, {FIDELITY} at least {at_least(_fidelity(touched))}" if _is_exact(touched) else ""
    read = [run for run in touched if has_gamma(run)]
    if read:
        gamma = extent(read, lambda run: scalar(run.record, HEADLINE_GAMMA), "cos")
        yield claim("at floor", f"{GAMMA} = {gamma} may not be read as credit alignment: {why}{tiny}", runs, read)
    bare = [run for run in touched if run not in read]
    if bare:
        yield claim("at floor", f"No credit may be judged by this reference: {why}{tiny}", runs, bare)


def _explanations(runs: Sequence[RunAudit], touched: Sequence[RunAudit]) -> Iterator[Claim]:
    """The case that the published reading calls numerical noise, told to someone who has never heard of it."""
    if not touched:
        return
    first, last = (extent(touched, lambda run, end=end: _length(run, end), "num") for end in (0, -1))
    growth = extent(touched, lambda run: scalar(run.record, "growth_max"), "num")
    gradient = extent(touched, lambda run: last_site(run.record, "g_norm"), "sci")
    by = f"; the largest {GROWTH} in one block is {growth}" if growth else ""
    small = f"small, {gradient} for one sample," if gradient else "small"
    here = (
        f" The {GAMMA} here is computed in float64 without that constant: a true direction, but of a reference without scale."
        if any(has_gamma(run) for run in touched)
        else ""
    )
    yield claim(
        "explained",
        "Every block adds its output to a running vector, the stream. What exploded is the length of that "
        f"vector: it is {first} after the embedding and {last} after the last block{by}. What follows divides the stream by "
        "its own length again, and the gradient that comes back is divided by the same factor. So the reference is "
        f"{small} because the scale of the stream divides it, not because nothing is left to learn. Nor is it rounding noise: "
        f"single precision still computes it exactly, in the direction that double precision finds ({FIDELITY}, their cosine, at "
        f"least {at_least(_fidelity(touched))}). What breaks a "
        f"published {GAMMA} at this size is the usual library cosine, which puts its safety constant of 1e-8 in the place of any "
        "norm below it and so shrinks the result; and the lost scale, since such a gradient no longer tells how far to go."
        f"{here} This refines the published reading, which takes such a reference for numerical noise",
        runs,
        touched,
    )


def _converged(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    converged = [run for run in with_state(runs, CONVERGED) if run.record.status == "complete"]
    for touched, read in (
        ([run for run in converged if has_gamma(run)], f"; its size is no reason against reading {GAMMA}"),
        ([run for run in converged if not has_gamma(run)], ""),
    ):
        if touched:
            gain = extent(touched, lambda run: last_site(run.record, "gain"), "num")
            share = f" ({gain} of the output error arrives at the last site)" if gain else ""
            text = "The reference gradient is small because the network has fitted its task, not because it collapsed: its "
            yield claim("converged", f"{text}{GAIN} is healthy{share}{read}", runs, touched)


def _noisy(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    touched = with_state(runs, NOISY)
    if touched:
        fidelity = extent(touched, lambda run: last_site(run.record, "fidelity"), "exact")
        found = f" (cosine {fidelity})" if fidelity else ""
        yield claim(
            "noisy",
            "The reference gradient is numerical noise: single and double precision do not agree on its direction"
            f"{found}, and a cosine with noise is no alignment",
            runs,
            touched,
        )


def _is_exact(runs: Sequence[RunAudit]) -> bool:
    """Tiny is not noisy: with fidelity near 1 the float64 cosine is a true direction."""
    known = [scalar(run.record, "fidelity_min").value for run in runs]
    return bool(known) and None not in known and min(known) >= LEAST_FIDELITY


def _fidelity(runs: Sequence[RunAudit]) -> float:
    return min(scalar(run.record, "fidelity_min").value for run in runs)


def _has_grown(run: RunAudit) -> bool:
    """Whether what follows the blocks has a long stream to divide by; without a LayerNorm there it divides by nothing."""
    if run.record.spec.architecture_options.get("terminal_ln") is False:
        return False
    first, last = _length(run, 0).value, _length(run, -1).value
    return first is not None and last is not None and last > GROWN * first


def _length(run: RunAudit, end: int) -> Reading:
    """Of the stream at its first or last site."""
    row = site_row(run.record, "h_norm")
    return row[end] if row else Reading(None, "h_norm was not measured")


# Claims about Γ: whether there is one, what it may be read as, and at which sites it is the training feedback's own.


SPECIFIC = "SPECIFIC"
ALIGNED = f"{GAMMA} may be read as alignment with the gradient, site by site"
NOT_SHOWN = "that it comes from the training feedback is not shown"
THE_GRADIENT = f"the credit is the gradient itself at every site, and {GAMMA} = 1 there is no alignment"


@dataclass(frozen=True)
class Sites:
    """The sites of a run that count (both Γ and its rank have a value), parted by the rank: above their null, or reached."""

    above: tuple[int, ...]
    reached: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.above) + len(self.reached)


def gamma_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Those about Γ of the runs of one method; a `may` about its feedback never stands beside a `not`."""
    for reason, missing in _grouped((run for run in runs if not has_gamma(run)), _absence).items():
        yield claim("no gamma", f"No alignment figure exists: {reason}", runs, missing)
    yield from _alignment(runs, [run for run in runs if passes(run) and has_gamma(run)])
    own = [run for run in with_state(runs, SPECIFIC) if run.record.status == "complete" and has_gamma(run)]
    for sites, touched in _grouped(own, _sites).items():
        text = (
            f"{GAMMA} is specific to the training feedback: at every site that counts it lies above that of fresh draws"
        )
        yield claim("specific", f"{text}{_multiplicity(sites, touched[0])}", runs, touched)
    for sites, touched in _grouped(with_state(runs, NOT_SPECIFIC), _sites).items():
        yield claim("not specific", _not_everywhere(sites, touched), runs, touched)


def _alignment(runs: Sequence[RunAudit], clear: Sequence[RunAudit]) -> Iterator[Claim]:
    """What Γ of runs that pass may be read as; only a null of fresh draws lets it be the feedback's."""
    own, reached = with_state(clear, SPECIFIC), with_state(clear, NOT_SPECIFIC)
    if own:
        yield claim("aligned by feedback", f"{ALIGNED}, for the training feedback only", runs, own)
    for sites, touched in _grouped(reached, _sites).items():
        where = f" at {listed('site', sites.reached)}" if sites.reached else ""
        yield claim(
            "aligned in part",
            f"{GAMMA} tells how the credit lies to the gradient, site by site; {NOT_SHOWN}{where}",
            runs,
            touched,
        )
    for reason, open_ in _grouped((run for run in clear if run not in own and run not in reached), _no_null).items():
        text = f"{ALIGNED}; {NOT_SHOWN}{f' ({reason})' if reason else ''}"
        yield claim("aligned, null unknown", text, runs, open_)


def _grouped(runs: Iterable[RunAudit], reason: Callable) -> dict:
    """What `reason` finds of a run → the runs of which it finds it."""
    found: dict = {}
    for run in runs:
        found.setdefault(reason(run), []).append(run)
    return found


def _absence(run: RunAudit) -> str:
    return THE_GRADIENT if is_gradient(run) else scalar(run.record, HEADLINE_GAMMA).reason


def _no_null(run: RunAudit) -> str:
    """Why there is no null to compare with; empty where there is one that no rule of this edition asks for."""
    row = site_row(run.record, "gamma_null_p")
    if any(reading.value is not None for reading in row):
        return ""
    return "; ".join(dict.fromkeys(reading.reason for reading in row)) or "no null of fresh draws was measured"


def _sites(run: RunAudit) -> Sites:
    """By the level of the finding that judged them; none where the run holds no ranks, as a report without figures."""
    finding = finding_with(run, SPECIFIC, NOT_SPECIFIC)
    gammas, ranks = site_row(run.record, "gamma"), site_row(run.record, "gamma_null_p")
    counted = [
        (site, rank.value)
        for site, (gamma, rank) in enumerate(zip(gammas, ranks, strict=False))
        if gamma.value is not None and rank.value is not None
    ]
    if finding is None or finding.threshold is None:
        return Sites((), ())
    return Sites(
        tuple(site for site, rank in counted if rank <= finding.threshold),
        tuple(site for site, rank in counted if rank > finding.threshold),
    )


def _not_everywhere(sites: Sites, runs: Sequence[RunAudit]) -> str:
    """Which sites lie above their null and which do not: a failure at one is no failure at the others, nor a success there."""
    if not sites.reached:
        return f"{GAMMA} may not be credited to the training feedback at every site: at one at least, {_reached(runs, sites)}"
    back = f"{GAMMA} may not be credited to the training feedback at {listed('site', sites.reached)}: there {_reached(runs, sites)}"
    if not sites.above:
        return f"{back}. It lies above its null at no site{_multiplicity(sites, runs[0])}"
    return f"{back}. At {listed('site', sites.above)} it lies above that of fresh draws{_multiplicity(sites, runs[0])}"


def _multiplicity(sites: Sites, run: RunAudit) -> str:
    """How many sites were judged, each by itself: with several, one above its null may be chance."""
    level = finding_with(run, SPECIFIC, NOT_SPECIFIC).threshold
    if not sites.count or level is None:
        return ""
    if sites.count == 1:
        return f" (one site judged at {100 * level:.3g} %)"
    judged = f" ({sites.count} sites judged each at {100 * level:.3g} %"
    if not sites.above or not sites.reached:
        return f"{judged})"
    chance = min(100, 100 * level * sites.count)
    return f"{judged}: without any alignment one of them at least would lie there in up to {chance:.3g} % of runs)"


def _reached(runs: Sequence[RunAudit], sites: Sites) -> str:
    """`between 1 and 7 of 99 fresh draws reach it`: over the runs and the sites that fresh draws reach."""
    found = [finding_with(run, NOT_SPECIFIC) for run in runs]
    draws = {run.record.measurements.conventions.get("gamma_null_draws") for run in runs}
    ranks = [site_row(run.record, "gamma_null_p")[site].value for run in runs for site in sites.reached]
    ranks = ranks or [one.observed.value for one in found if one.observed.value is not None]
    return reaching(ranks, draws.pop() if len(draws) == 1 else None, found[0].threshold)


def reaching(ranks: Sequence[float], draws: object, level: float | None) -> str:
    """`1 of 20 fresh draws reach it; not told apart at 0.05`, for one p-value or for the range of several.

    draws: of the null, as the run wrote it down; level: of the p-value, where the rule has one.
    """
    apart = "not told apart" + (f" at {compact(level)}" if level is not None else "")
    if not isinstance(draws, int) or not ranks:
        return f"fresh draws reach it; {apart}"
    low, high = (round(rank * (draws + 1)) - 1 for rank in (min(ranks), max(ranks)))
    count = f"{low}" if low == high else f"between {low} and {high}"
    return f"{count} of {draws} fresh draws reach it; {apart}"
