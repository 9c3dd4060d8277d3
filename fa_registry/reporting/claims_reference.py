"""Keys of all claims, functions that all claims use, and claims about scale and reference gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from fa_registry.metrics import HEADLINE_GAMMA, SUBJECTS, headline_of, label_of, symbol_of
from fa_registry.protocol.edition_schema import REFERENCE_METRICS
from fa_registry.records import Finding, Reading, RunAudit
from fa_registry.reporting.report_values import LARGEST, PER_BLOCK, SINCE, last_site, scalar_metric, site_row
from fa_registry.reporting.text.filters import KINDS, at_least, compact
from fa_registry.reporting.view_models import Claim

# Names of the metrics in sentences, as in the catalogue.
GAMMA, GAIN, FIDELITY = map(symbol_of, ("gamma", "gain", "fidelity"))
# Key of every claim → its kind, and the topic with which a form labels the claim. The order is that of a form: claims that
# invalidate the other claims; the pass; claims about Γ, which readers look for first; claims about depth, scale and reference;
# other restrictions; and notes on how to read a metric.
KEYS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "left out": ("open", ""),
        "differs from its seal": ("open", ""),
        "method fails": ("not", ""),
        "other code": ("open", ""),
        "diverged": ("not", ""),
        "failed": ("open", ""),
        "incomplete": ("open", ""),
        "near backpropagation": ("not", ""),
        "answers looked up": ("not", ""),
        "trains otherwise": ("not", ""),
        "another model": ("not", ""),
        "own task": ("not", ""),
        "test in train": ("not", ""),
        "adopted": ("open", ""),
        "superseded": ("open", ""),
        "trained depth": ("may", "Depth"),
        "trained part": ("may", "Depth"),
        "passes without depth": ("open", "Depth"),
        "aligned by feedback": ("may", GAMMA),
        "aligned, null unknown": ("may", GAMMA),
        "specific": ("may", GAMMA),
        "not aligned": ("not", GAMMA),
        "not specific": ("not", GAMMA),
        "too small": ("not", GAMMA),
        "against the gradient": ("not", GAMMA),
        "gamma undecided": ("open", GAMMA),
        "null unknown": ("open", GAMMA),
        "no evidence": ("open", GAMMA),
        "no gamma": ("open", GAMMA),
        "carried by one end": ("not", GAMMA),
        "undercut": ("not", "Depth"),
        "at chance": ("not", "Depth"),
        "stated": ("open", "Depth"),
        "last block": ("open", "Depth"),
        "undecided": ("open", "Depth"),
        "beats frozen": ("may", "Depth"),
        "exploded": ("not", "Scale"),
        "at floor": ("not", "Reference"),
        "noisy": ("not", "Reference"),
        "stability high": ("not", "Reference"),
        "other fails": ("not", ""),
        "other warns": ("open", ""),
        "method not measured": ("open", ""),
        "waived": ("open", ""),
        "not judged": ("open", ""),
        "one seed": ("open", ""),
        "within limit": ("note", "Depth"),
        "passes alone": ("note", ""),
        "converged": ("note", "Reference"),
        "explained": ("note", "Scale"),
        "gamma not applicable": ("note", GAMMA),
        "keeps scale": ("note", "Scale"),
        "reference clear": ("note", "Reference"),
        "reference near its floor": ("note", "Reference"),
        "stability low": ("note", "Reference"),
        "other passes": ("note", ""),
    }
)
WEIGHT: Mapping[str, int] = MappingProxyType({key: place for place, key in enumerate(KEYS)})
EXPLODED, AT_FLOOR, NOISY, UNDERCUT = "EXPLODED", "AT FLOOR", "NOISY", "UNDERCUT"
NOT_SPECIFIC, TOO_SMALL, HIGH = "NOT SPECIFIC", "TOO SMALL", "HIGH"
# largest growth → first words of the sentence about a growth above its limit
STARTS = {PER_BLOCK[1]: "One block multiplies ‖h‖ by", SINCE[1]: f"The {label_of(SINCE[1])} is"}
GRADIENTS = ("g_norm", "g_norm_mean_ce", "g_L")
# (metric, side of its limit) → the built-in name of the state; an edition may use another name.
CALLED: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        **{(quantity, "above"): EXPLODED for quantity in SUBJECTS["scale"]},
        **{(quantity, "below"): AT_FLOOR for quantity in GRADIENTS},
        **{(quantity, "below"): NOISY for quantity in ("fidelity", "fidelity_batch", "fidelity_min")},
        **{(quantity, fires): UNDERCUT for quantity in SUBJECTS["depth"] for fires in REFERENCE_METRICS},
        **{(quantity, "above"): HIGH for quantity in SUBJECTS["stability"]},
        ("gamma_null_p", "above"): NOT_SPECIFIC,
        (HEADLINE_GAMMA, "below"): TOO_SMALL,
    }
)
GRADIENT = 1 - 1e-6  # a credit with at least this Γ is the gradient itself (angle below 0.1°)


def claim(key: str, text: str, touched: Sequence[RunAudit] = (), run_ids: Sequence[str] = ()) -> Claim:
    """Return one claim about the runs `touched`, or about the ids of runs that were not judged.

    The text is a sentence without its final full stop.
    """
    kind, topic = KEYS[key]
    return Claim(kind, f"{text}.", (*(run.record.run_id for run in touched), *run_ids), key, topic)


def has_gamma(run: RunAudit) -> bool:
    """Return whether Γ of the run can be interpreted as alignment.

    The run must have a value of Γ, and its credit must not be the gradient itself.
    """
    return scalar_metric(run.record, HEADLINE_GAMMA).value is not None and not is_gradient(run)


def is_gradient(run: RunAudit) -> bool:
    """Return whether the measured credit is the gradient at every site, which shows no learned alignment."""
    row = site_row(run.record, "gamma")
    return bool(row) and all(reading.value is not None and reading.value >= GRADIENT for reading in row)


def passes(run: RunAudit) -> bool:
    """Return whether the run passes every gating rule without a waiver."""
    is_waived = any(finding.gating and finding.outcome == "waived" for finding in run.findings)
    return run.verdict.outcome == "pass" and not is_waived


def author_stated_runs(runs: Iterable[RunAudit], quantities: Sequence[str]) -> str:
    """Return a remark if a finding about these metrics depends on a value stated by the author, else ""."""
    judged = ((run, finding) for run in runs for finding in run.findings)
    stated = [(run, finding) for run, finding in judged if finding.stated and finding.quantity in quantities]
    if not stated:
        return ""
    headline = headline_of(stated[0][0].record.measurements)
    if all(finding.reference_run_id for _, finding in stated):
        return f"; the frozen control is not proven to be frozen, so its {headline.symbol} counts only as stated by the author"
    return f"; the {headline.frozen_metric.label} is stated by the author, not measured here"


def observed_text(finding: Finding) -> str:
    """Return the built-in name of the state that a rule found.

    It is the edition's name if there is no built-in name.
    """
    guarded = CALLED.get((finding.guard.quantity, finding.guard.crossed)) if finding.guard else None
    return guarded or CALLED.get((finding.quantity, finding.crossed)) or finding.state


def with_state(runs: Iterable[RunAudit], *states: str, quantities: Sequence[str] = ()) -> list[RunAudit]:
    """Return the runs that have a finding in one of the states.

    If `quantities` is not empty, only findings about these metrics count.
    """
    return [run for run in runs if finding_with(run, *states, quantities=quantities)]


def finding_with(run: RunAudit, *states: str, quantities: Sequence[str] = ()) -> Finding | None:
    """Return the first finding that has one of the states, or None.

    If `quantities` is not empty, only findings about these metrics count.
    """
    about = (finding for finding in run.findings if not quantities or finding.quantity in quantities)
    return next((finding for finding in about if observed_text(finding) in states), None)


def value_range(runs: Iterable[RunAudit], get_reading: Callable[[RunAudit], Reading], kind: str) -> str:
    """Return the range of a metric over several runs, for example `3.0` or `3.0 to 4.2`.

    The text is empty if no run has a value. The number format `kind` is a key of filters.KINDS.
    """
    values = sorted(reading.value for reading in map(get_reading, runs) if reading.value is not None)
    if not values:
        return ""
    low, high = (KINDS[kind](value) for value in (values[0], values[-1]))
    return low if low == high else f"{low} to {high}"


def listed(word: str, numbers: Sequence[int]) -> str:
    """Return the word with its numbers, for example `site 0`, `sites 0 to 3` or `seeds 42, 123`."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{word}s {numbers[0]} to {numbers[-1]}"
    return f"{word}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


LEAST_FIDELITY = 0.99  # below this fidelity, the reference is numerical noise (protocol.md §1)
GROWN = 50.0  # above this ‖h_L‖/‖h_0‖, the first release of edition 2026-04 called a stream exploded
CONVERGED = "CONVERGED"


def reference_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Yield the claims about the scale of the stream and the reference gradient."""
    scale = with_state(runs, EXPLODED, quantities=SUBJECTS["scale"])
    floor = with_state(runs, AT_FLOOR, quantities=SUBJECTS["reference"])
    exploded_at_floor = [run for run in scale if run in floor]
    at_floor_only = [run for run in floor if run not in exploded_at_floor]
    yield from _floor_claims(exploded_at_floor, "the stream explodes and the reference gradient is at its floor")
    yield from _floor_claims(at_floor_only, "the reference gradient is at its floor")
    yield from _explanations([run for run in floor if _has_grown(run) and _is_exact([run])])
    exploded_only = [run for run in scale if run not in exploded_at_floor]
    if exploded_only:
        yield claim("exploded", _exploded_text(exploded_only), exploded_only)
    yield from _converged(runs)
    yield from _noisy(runs)


def _exploded_text(runs: Sequence[RunAudit]) -> str:
    consequence = "so norms and gradients cannot be compared with those of a healthy network"
    findings = {run.record.run_id: finding_with(run, EXPLODED, quantities=SUBJECTS["scale"]) for run in runs}
    limits: dict[str, float] = {}
    for found in findings.values():
        conditions = ((found.quantity, found.threshold), *((one.quantity, one.threshold) for one in found.further))
        limits |= {LARGEST[name]: limit for name, limit in conditions if name in LARGEST and limit is not None}
    leading = {LARGEST.get(found.quantity, "") for found in findings.values()}
    growth = value_range(runs, lambda run: findings[run.record.run_id].observed, "num")
    for name, start in STARTS.items():
        if leading == {name} and name in limits and growth:
            rest = scale_text(runs, [other for other in STARTS if other != name], limits)
            return f"{start} {growth} (limit {compact(limits[name])}), {consequence}{rest}"
    return f"The stream explodes, {consequence}{scale_text(runs, limits=limits)}"


def scale_text(
    runs: Sequence[RunAudit],
    names: Sequence[str] = tuple(STARTS),
    limits: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """Return the known growth values of the stream with their limits, or "" if no growth is known.

    Example: `; the largest growth in one block is 1.5`.
    """
    growths = []
    for name in names:
        suffix = " in one block" if name in PER_BLOCK else ""
        limit = f" (limit {compact(limits[name])})" if name in limits else ""
        if value := value_range(runs, lambda run, name=name: scalar_metric(run.record, name), "num"):
            growths.append(f"the {label_of(name)}{suffix} is {value}{limit}")
    return f"; {' and '.join(growths)}" if growths else ""


def _floor_claims(touched: Sequence[RunAudit], reason: str) -> Iterator[Claim]:
    if touched:
        text = f"No credit may be judged with this reference gradient: {reason}"
        if _is_exact(touched):
            text += f"; the gradient is tiny but exact, with {FIDELITY} of at least {at_least(_fidelity(touched))}"
        yield claim("at floor", text, touched)


def _explanations(touched: Sequence[RunAudit]) -> Iterator[Claim]:
    """Explain to newcomers why a reference gradient can be tiny but exact."""
    if not touched:
        return
    first, last = (value_range(touched, lambda run, end=end: _length(run, end), "num") for end in (0, -1))
    growth = value_range(touched, lambda run: scalar_metric(run.record, "growth_max"), "num")
    gradient = value_range(touched, lambda run: last_site(run.record, "g_norm_mean_ce"), "sci")
    detail = f"; the {label_of('growth_max')} in one block is {growth}" if growth else ""
    small_text = f"small ({label_of('g_norm_mean_ce_L')} {gradient})" if gradient else "small"
    gamma_note = (
        f" The {GAMMA} of this report is computed in float64 without a safety constant. This {GAMMA} compares correct directions, "
        "but the reference has no meaningful scale."
        if any(has_gamma(run) for run in touched)
        else ""
    )
    yield claim(
        "explained",
        "Every block adds its output to a running vector, the stream. The length of the stream exploded: "
        f"it is {first} after the embedding and {last} after the last block{detail}. The layers after the blocks divide the stream "
        "by its length, and backpropagation divides the gradient by the same factor. So the reference gradient is "
        f"{small_text} because of the scale of the stream, not because there is nothing left to learn. The gradient is not "
        "rounding noise either: single precision still computes the same direction as double precision "
        f"({FIDELITY}, their cosine, is at least {at_least(_fidelity(touched))}). Two effects make a published {GAMMA} wrong at "
        "this size. First, the usual library cosine replaces any norm below its safety constant of 1e-8 by this constant, which "
        "makes the result smaller. Second, the scale is lost, because such a gradient does not show how large a step should be."
        f"{gamma_note} This refines the published reading, which calls such a reference numerical noise",
        touched,
    )


def _converged(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    converged = [run for run in with_state(runs, CONVERGED) if run.record.status == "complete"]
    for touched, gamma_note in (
        ([run for run in converged if has_gamma(run)], f"; the small size is no reason to reject {GAMMA}"),
        ([run for run in converged if not has_gamma(run)], ""),
    ):
        if touched:
            gain = value_range(touched, lambda run: last_site(run.record, "gain"), "num")
            share = f" ({gain} of the output error reaches the last site)" if gain else ""
            text = "The reference gradient is small because the network has fitted its task, not because the network collapsed"
            yield claim("converged", f"{text}: the {GAIN} is healthy{share}{gamma_note}", touched)


def _noisy(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    touched = with_state(runs, NOISY)
    if touched:
        fidelity = value_range(touched, lambda run: last_site(run.record, "fidelity"), "exact")
        cosine_text = f" (cosine {fidelity})" if fidelity else ""
        text = "The reference gradient is numerical noise: single and double precision compute different directions"
        yield claim("noisy", f"{text}{cosine_text}, and a cosine with noise does not show alignment", touched)


def _is_exact(runs: Sequence[RunAudit]) -> bool:
    fidelities = [scalar_metric(run.record, "fidelity_min").value for run in runs]
    return bool(fidelities) and None not in fidelities and min(fidelities) >= LEAST_FIDELITY


def _fidelity(runs: Sequence[RunAudit]) -> float:
    return min(scalar_metric(run.record, "fidelity_min").value for run in runs)


def _has_grown(run: RunAudit) -> bool:
    """Return whether the stream has grown more than GROWN-fold before a terminal LayerNorm."""
    if run.record.spec.architecture_options.get("terminal_ln") is False:
        return False
    first, last = _length(run, 0).value, _length(run, -1).value
    return first is not None and last is not None and last > GROWN * first


def _length(run: RunAudit, end: int) -> Reading:
    """Return the norm of the stream at its first site (0) or its last site (−1)."""
    row = site_row(run.record, "h_norm")
    return row[end] if row else Reading(None, "h_norm was not measured")
