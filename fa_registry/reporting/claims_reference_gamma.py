"""Claims about the scale, the reference gradient and Γ. All claims use the helper functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fa_registry.metrics import HEADLINE_GAMMA, SUBJECTS, headline_of, label_of, over_seeds, symbol_of
from fa_registry.protocol.edition_schema import REFERENCE_METRICS
from fa_registry.records import Finding, Reading, RunAudit
from fa_registry.reporting.claim_keys import claim
from fa_registry.reporting.report_values import last_site, scalar_metric, site_row
from fa_registry.reporting.text.filters import KINDS, at_least, between, compact
from fa_registry.reporting.view_models import Claim
from fa_registry.statistics import CONFIDENCE, holm, level_text
from fa_registry.statistics.over_seeds import OverSeeds

EXPLODED, AT_FLOOR, NOISY, UNDERCUT = "EXPLODED", "AT FLOOR", "NOISY", "UNDERCUT"
NOT_SPECIFIC, TOO_SMALL, HIGH = "NOT SPECIFIC", "TOO SMALL", "HIGH"
PER_BLOCK = ("growth", "growth_max")
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
# Names of the metrics in sentences, as in the catalogue.
GAMMA, GAIN, FIDELITY = map(symbol_of, ("gamma", "gain", "fidelity"))
GRADIENT = 1 - 1e-6  # a credit with at least this Γ is the gradient itself (angle below 0.1°)


def has_gamma(run: RunAudit) -> bool:
    """Return whether Γ of the run can be interpreted as alignment.

    The run must have a value of Γ, and its credit must not be the gradient itself.
    """
    return scalar_metric(run.record, HEADLINE_GAMMA).value is not None and not is_gradient(run)


def is_gradient(run: RunAudit) -> bool:
    """Return whether the measured credit is the gradient at every site.

    Such a run shows no learned alignment.
    """
    row = site_row(run.record, "gamma")
    return bool(row) and all(reading.value is not None and reading.value >= GRADIENT for reading in row)


def passes(run: RunAudit) -> bool:
    """Return whether the run passes every gating rule without a waiver."""
    return run.verdict.outcome == "pass" and not any(
        finding.gating and finding.outcome == "waived" for finding in run.findings
    )


def author_stated_runs(runs: Iterable[RunAudit], quantities: Sequence[str]) -> str:
    """Return a remark if a finding about these metrics depends on a value stated by the author, else ""."""
    judged = ((run, finding) for run in runs for finding in run.findings)
    stated = [(run, finding) for run, finding in judged if finding.stated and finding.quantity in quantities]
    if not stated:
        return ""
    headline = headline_of(stated[0][0].record.measurements.scalars)
    if all(finding.reference_run_id for _, finding in stated):
        return f"; the frozen control is not proven to be frozen, so its {headline.symbol} counts only as stated by the author"
    return f"; the {label_of(headline.frozen)} is stated by the author, not measured here"


def observed_text(finding: Finding) -> str:
    """Return the built-in name of the state that a rule found.

    If the report contains no built-in name, as in reports of older releases, return the name that the edition uses.
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
    return next(
        (
            finding
            for finding in run.findings
            if observed_text(finding) in states and (not quantities or finding.quantity in quantities)
        ),
        None,
    )


def value_range(runs: Iterable[RunAudit], get_reading: Callable[[RunAudit], Reading], kind: str) -> str:
    """Return the range of a metric over several runs as text.

    Args:
        get_reading: Function that reads the metric from a run.
        kind: Number format, a key of filters.KINDS.

    Returns:
        For example `3.0` or `3.0 to 4.2`, or an empty string if no run has a value.
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


# Claims about scale and reference: an exploded stream, and a small, fitted or noisy gradient.


LEAST_FIDELITY = 0.99  # below this fidelity, the reference is numerical noise (protocol.md §1)
GROWN = 50.0  # above this ‖h_L‖/‖h_0‖, the first release of edition 2026-04 called a stream exploded
CONVERGED = "CONVERGED"


def reference_claims(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    """Yield the claims about the scale of the stream and the reference gradient."""
    scale = with_state(runs, EXPLODED, quantities=SUBJECTS["scale"])
    floor = with_state(runs, AT_FLOOR, quantities=SUBJECTS["reference"])
    exploded_at_floor = [run for run in scale if run in floor]
    yield from _floor_claims(runs, exploded_at_floor, "the stream explodes and the reference gradient is at its floor")
    yield from _floor_claims(
        runs, [run for run in floor if run not in exploded_at_floor], "the reference gradient is at its floor"
    )
    yield from _explanations(runs, [run for run in floor if _has_grown(run) and _is_exact([run])])
    exploded_only = [run for run in scale if run not in exploded_at_floor]
    if exploded_only:
        yield claim("exploded", _exploded_text(exploded_only), runs, exploded_only)
    yield from _converged(runs)
    yield from _noisy(runs)


def _exploded_text(runs: Sequence[RunAudit]) -> str:
    consequence = "so norms and gradients cannot be compared with those of a healthy network"
    findings = {run.record.run_id: finding_with(run, EXPLODED, quantities=PER_BLOCK) for run in runs}
    if None in findings.values() or None in (limits := {finding.threshold for finding in findings.values()}):
        return f"The stream explodes, {consequence}{scale_text(runs)}"
    growth = value_range(runs, lambda run: findings[run.record.run_id].observed, "num")
    limit_text = f"{growth} (limit {compact(max(limits))})"
    return f"One block multiplies ‖h‖ by {limit_text}, {consequence}{scale_text(runs, ('growth_init_max',))}"


def scale_text(runs: Sequence[RunAudit], names: Sequence[str] = ("growth_max", "growth_init_max")) -> str:
    """Return the known growth values of the stream as text.

    Returns:
        For example `; the largest growth in one block is 1.5`, or an empty string if no growth is known.
    """
    growths = []
    for name in names:
        suffix = " in one block" if name in PER_BLOCK else ""
        if value := value_range(runs, lambda run, name=name: scalar_metric(run.record, name), "num"):
            growths.append(f"the {label_of(name)}{suffix} is {value}")
    return f"; {' and '.join(growths)}" if growths else ""


def _floor_claims(runs: Sequence[RunAudit], touched: Sequence[RunAudit], reason: str) -> Iterator[Claim]:
    if touched:
        tiny = (
            f"; the gradient is tiny but exact, with {FIDELITY} of at least {at_least(_fidelity(touched))}"
            if _is_exact(touched)
            else ""
        )
        yield claim("at floor", f"No credit may be judged with this reference gradient: {reason}{tiny}", runs, touched)


def _explanations(runs: Sequence[RunAudit], touched: Sequence[RunAudit]) -> Iterator[Claim]:
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
        runs,
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
            yield claim("converged", f"{text}: the {GAIN} is healthy{share}{gamma_note}", runs, touched)


def _noisy(runs: Sequence[RunAudit]) -> Iterator[Claim]:
    touched = with_state(runs, NOISY)
    if touched:
        fidelity = value_range(touched, lambda run: last_site(run.record, "fidelity"), "exact")
        cosine_text = f" (cosine {fidelity})" if fidelity else ""
        yield claim(
            "noisy",
            "The reference gradient is numerical noise: single and double precision compute different directions"
            f"{cosine_text}, and a cosine with noise does not show alignment",
            runs,
            touched,
        )


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


# Claims about Γ: whether it exists, how it may be read, and at which sites it is specific to the feedback used in training.


SPECIFIC = "SPECIFIC"
JUDGED = (SPECIFIC, NOT_SPECIFIC, TOO_SMALL)
ALIGNED = "may be interpreted as alignment with the gradient at each site"
NO_EVIDENCE = "is measured, but it is no evidence of alignment: the verdict is not PASS"
FROM_TRAINING = "specific to the feedback used in training"
NOT_SHOWN = "it is not shown that this alignment comes from the feedback used in training"
THE_GRADIENT = f"the credit is the gradient itself at every site, so {GAMMA} = 1 is not evidence of alignment"


@dataclass(frozen=True)
class Sites:
    """Sites of a run that have a Γ and a p-value, grouped by whether Γ is above the null.

    Args:
        above: Sites whose Γ is above the null.
        reached: The other sites: too many fresh draws of the feedback give a Γ that is at least as large as the measured Γ.
    """

    above: tuple[int, ...]
    reached: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.above) + len(self.reached)


def gamma_claims(runs: Sequence[RunAudit], has_reference: bool = True) -> Iterator[Claim]:
    """Yield one claim about the runs with Γ, and claims about the runs without Γ.

    Args:
        runs: All runs of the method.
        has_reference: Whether the card of the method names a direction with which Γ compares the credit.
    """
    for reason, without_gamma in _grouped((run for run in runs if not has_gamma(run)), _absence).items():
        if reason == THE_GRADIENT or not has_reference:
            yield claim("gamma not applicable", f"{GAMMA} does not apply: {reason}", runs, without_gamma)
        else:
            yield claim("no gamma", f"There is no metric of alignment: {reason}", runs, without_gamma)
    with_gamma = [run for run in runs if has_gamma(run)]
    if not with_gamma:
        return
    by_site = tuple(_site_claims(runs, with_gamma))
    yield from by_site
    if not by_site and (answer := _answer(runs, with_gamma)):
        yield claim(*answer, runs, with_gamma)


def _is_sound(run: RunAudit) -> bool:
    """Return whether the run is complete and passes its rules on scale, reference and depth (D1, D2, D3)."""
    outcomes = [
        {finding.outcome for finding in run.findings if finding.quantity in SUBJECTS[subject]}
        for subject in ("scale", "reference", "depth")
    ]
    return run.record.status == "complete" and all(found == {"pass"} for found in outcomes)


def _site_claims(runs: Sequence[RunAudit], with_gamma: Sequence[RunAudit]) -> Iterator[Claim]:
    """Yield one claim about the sites where Γ is specific, and one claim about the other sites.

    Readers may quote the first claim as credit alignment. Therefore, both claims need a method that passes D1, D2 and D3 in every
    seed, and a Γ that is not too small. Otherwise, no claim is yielded, and `_answer` says both in one unsupported claim.
    """
    sites = {run.record.run_id: _sites(run) for run in with_gamma}
    failing = [run for run in with_state(with_gamma, NOT_SPECIFIC) if sites[run.record.run_id].reached]
    common = sorted(set.intersection(*(set(by_seed.above) for by_seed in sites.values())))
    if not failing or not common or not all(map(_is_sound, runs)) or _too_small(with_gamma):
        return
    holm_text = _multiplicity([(sites[run.record.run_id], [run]) for run in with_gamma])
    text = f"{GAMMA} at {listed('site', common)} is {FROM_TRAINING}: fresh feedback gives a smaller {GAMMA}{holm_text}"
    yield claim("specific", text, runs, with_gamma)
    groups = _grouped(failing, lambda run: sites[run.record.run_id])
    where = " and ".join(
        f"at {listed('site', by_seed.reached)}{_of_seeds(several, failing)} ({_reached(several, by_seed)})"
        for by_seed, several in groups.items()
    )
    yield claim("not specific", f"{GAMMA} {where} is not {FROM_TRAINING}", runs, failing)


def _answer(runs: Sequence[RunAudit], with_gamma: Sequence[RunAudit]) -> tuple[str, str] | None:
    """Return the tuple (key, text) of the claim about Γ; the text must be true for the worst seed.

    Args:
        runs: All runs of the method.
        with_gamma: The runs that have a Γ.
    """
    complete = [run for run in with_gamma if run.record.status == "complete"]
    reason = _taken_back(runs)
    null_text = _null_text(complete, with_failing_sites=not reason)
    if reason:
        gamma = value_range(with_gamma, lambda run: scalar_metric(run.record, HEADLINE_GAMMA), "cos")
        return (
            "not aligned",
            f"{GAMMA} ({gamma}) is no evidence of useful credit: {reason}{f'. {null_text}' if null_text else ''}",
        )
    if len(complete) < len(with_gamma):
        return None  # a run that broke off has a separate claim
    gamma_text = _size(with_gamma)
    if with_state(with_gamma, NOT_SPECIFIC):
        text = f"{gamma_text} must not be credited as a whole to the feedback used in training: at least one site fails the test"
        return "not specific", f"{text}. {null_text}"
    if small_reason := _too_small(with_gamma):
        return "too small", f"{gamma_text} is too small to count as alignment: {small_reason}. {null_text}"
    unproven = [run for run in with_gamma if run not in with_state(with_gamma, SPECIFIC)]
    passing = all(map(passes, with_gamma))
    if not unproven:
        if passing:
            return "aligned by feedback", f"{gamma_text} {ALIGNED}, for the feedback used in training only. {null_text}"
        if all(map(_is_sound, runs)):
            return "specific", f"{gamma_text} is {FROM_TRAINING}. {null_text}"
        return "no evidence", f"{gamma_text} {NO_EVIDENCE}. {null_text}"
    reasons = "; ".join(filter(None, dict.fromkeys(map(_no_null, unproven))))
    not_shown = f"{NOT_SHOWN} ({reasons})" if reasons else NOT_SHOWN
    if passing:
        return "aligned, null unknown", f"{gamma_text} {ALIGNED}; {not_shown}"
    return "null unknown", f"{gamma_text} {NO_EVIDENCE}, and {not_shown}"


def _size(runs: Sequence[RunAudit]) -> str:
    """Return the mean Γ over sites 1..L as text.

    Example: `Γ = .16, 95 % interval .15 to .17 over 3 seeds,`.
    """
    gamma = _gamma_over_seeds(runs)
    level = f", {level_text(CONFIDENCE)} interval"
    interval = f"{level} {between(gamma.interval, 'cos')} over {gamma.n} seeds," if gamma.interval else ""
    return f"{GAMMA} = {KINDS['cos'](gamma.mean.value)}{interval}"


def _gamma_over_seeds(runs: Sequence[RunAudit]) -> OverSeeds:
    return over_seeds(
        ((run.record.spec.seed, scalar_metric(run.record, HEADLINE_GAMMA)) for run in runs), HEADLINE_GAMMA
    )


def _too_small(runs: Sequence[RunAudit]) -> str:
    limits = [limit for run in runs for finding in run.findings if (limit := _least_gamma(finding)) is not None]
    if not limits:
        return ""
    minimum_text = f"the smallest {GAMMA} that counts as alignment is {KINDS['cos'](max(limits))}"
    if touched := with_state(runs, TOO_SMALL):
        return minimum_text + _of_seeds(touched, runs)
    gamma = _gamma_over_seeds(runs)
    if gamma.mean.value < max(limits):  # the rule reports only NOT SPECIFIC if both are true
        return minimum_text
    is_wide = gamma.interval and gamma.interval[0] < max(limits)
    return f"{minimum_text}, and the confidence interval extends below this {GAMMA}" if is_wide else ""


def _least_gamma(finding: Finding) -> float | None:
    """Return the smallest Γ that the rule accepts, or None if the rule does not limit Γ."""
    if finding.quantity == HEADLINE_GAMMA and finding.crossed == "below":
        return finding.threshold
    is_credit = finding.quantity == "gamma_null_p"
    return next(
        (condition.threshold for condition in finding.further if is_credit and condition.quantity == HEADLINE_GAMMA),
        None,
    )


def _taken_back(runs: Sequence[RunAudit]) -> str:
    """Return the reasons why Γ of this method is not evidence of alignment, or "".

    Possible reasons are a failed verdict, an exploded stream, and a reference gradient that is noisy or at its floor.
    """
    exploded = with_state(runs, EXPLODED, quantities=SUBJECTS["scale"])
    floor, noisy = (with_state(runs, state, quantities=SUBJECTS["reference"]) for state in (AT_FLOOR, NOISY))
    failed = [run for run in runs if run.verdict.outcome == "fail"]
    if not (failed or exploded or floor or noisy):
        return ""
    causes = (
        ("training diverged", [run for run in runs if run.record.status == "diverged"]),
        ("the stream explodes", exploded),
        ("the reference gradient is at its floor", floor),
        ("the reference gradient is numerical noise", noisy),
        (
            "the trained blocks do not beat frozen random blocks by the required margin",
            with_state(runs, UNDERCUT, quantities=SUBJECTS["depth"]),
        ),
    )
    reported = [(text, touched) for text, touched in causes if touched]
    reported = reported or [(f"its verdict is {failed[0].verdict.label}", failed)]
    texts = [f"{description}{_of_seeds(touched, runs)}" for description, touched in reported]
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _of_seeds(touched: Sequence[RunAudit], runs: Sequence[RunAudit]) -> str:
    return f" ({listed('seed', _seeds(touched))})" if len(touched) < len(runs) else ""


def _seeds(runs: Sequence[RunAudit]) -> list[int]:
    return [run.record.spec.seed for run in runs]


def _grouped(runs: Iterable[RunAudit], reason: Callable) -> dict:
    groups: dict = {}
    for run in runs:
        groups.setdefault(reason(run), []).append(run)
    return groups


def _absence(run: RunAudit) -> str:
    return THE_GRADIENT if is_gradient(run) else scalar_metric(run.record, HEADLINE_GAMMA).reason


def _no_null(run: RunAudit) -> str:
    """Return the reason why the run has no null (Γ of fresh draws of the feedback), or ""."""
    row = site_row(run.record, "gamma_null_p")
    if any(reading.value is not None for reading in row):
        return ""
    return "; ".join(dict.fromkeys(reading.reason for reading in row)) or "no fresh draws of feedback were measured"


def _level(run: RunAudit) -> float | None:
    """Return the level of the p-value at each site, or None if the run is not judged by p-values."""
    finding = finding_with(run, *JUDGED)
    if finding is None or finding.quantity == "gamma_null_p":
        return finding.threshold if finding else None
    return next((limit.threshold for limit in finding.further if limit.quantity == "gamma_null_p"), None)


def _sites(run: RunAudit) -> Sites:
    """Return the sites that are above their null, and the sites that are not.

    Several sites of one run are tested. There are two cases:

    - If every p-value is at most the level, all sites are above their null. This case needs no correction, because no site is
      selected (intersection-union test: Berger 1982, Technometrics 24, 295).
    - Otherwise, Holm's procedure decides.

    Hochberg's step-up procedure (1988, Biometrika 75, 800) rejects at least the same hypotheses. Therefore, the level is valid for
    all sites together if the ranks of the sites are positively dependent. Ranks from the same fresh draws are positively dependent.
    """
    level = _level(run)
    gammas, ranks = site_row(run.record, "gamma"), site_row(run.record, "gamma_null_p")
    p_by_site = {
        site: rank.value
        for site, (gamma, rank) in enumerate(zip(gammas, ranks, strict=False))
        if gamma.value is not None and rank.value is not None
    }
    if level is None or not p_by_site:
        return Sites((), ())
    adjusted = dict(zip(p_by_site, holm(p_by_site.values()), strict=True))
    above = adjusted if max(p_by_site.values()) <= level else [site for site, p in adjusted.items() if p <= level]
    return Sites(tuple(above), tuple(site for site in p_by_site if site not in above))


def _null_text(complete_runs: Sequence[RunAudit], with_failing_sites: bool) -> str:
    """Return a sentence about the sites whose Γ exceeds the Γ of fresh draws, or ""."""
    # The groups also depend on the state, because seeds without ranks all have the same (empty) set of sites.
    groups = _grouped(with_state(complete_runs, *JUDGED), lambda run: (bool(with_state([run], SPECIFIC)), _sites(run)))
    if not groups:
        return ""
    name_seeds = len(groups) > 1 or len(next(iter(groups.values()))) < len(complete_runs)
    reported = [
        _where_above(sites, runs, with_failing_sites) + (f" in {listed('seed', _seeds(runs))}" if name_seeds else "")
        for (_, sites), runs in groups.items()
    ]
    ranked = [(sites, runs) for (_, sites), runs in groups.items() if sites.count]
    return f"This {GAMMA} exceeds the {GAMMA} of fresh feedback {'; '.join(reported)}{_multiplicity(ranked)}"


def _where_above(sites: Sites, runs: Sequence[RunAudit], with_failing_sites: bool) -> str:
    """Return a text that lists the sites above their null and, if wanted, the sites not above their null.

    Example: `at sites 0 to 2, not at site 3 (23 of 99 fresh draws reach this Γ)`.
    """
    if not sites.reached and (sites.count or with_state(runs, SPECIFIC)):
        return f"at all {sites.count} tested sites" if sites.count > 1 else "at every site that counts"
    reached_text = f"({_reached(runs, sites)})"
    if not sites.count:
        return f"at fewer than all sites that count {reached_text}"
    above = f"at {listed('site', sites.above)}" if sites.above else "at no site"
    if not with_failing_sites:
        return above
    if not sites.above:
        return f"{above} {reached_text}"
    return f"{above}, not at {listed('site', sites.reached)} {reached_text}"


def _multiplicity(ranked: Sequence[tuple[Sites, Sequence[RunAudit]]]) -> str:
    if not ranked:
        return ""
    max_sites = max(sites.count for sites, _ in ranked)
    limit = _level(ranked[0][1][0])
    level = f"{100 * limit:.3g} %"
    if max_sites == 1:
        return f" (one site tested, {level})"
    runs_reached = [run for sites, runs in ranked if sites.reached for run in runs]
    if not runs_reached:
        return f" (each at {level})"
    draws = min((count for count in map(_draws, runs_reached) if isinstance(count, int)), default=None)
    is_too_few = draws is not None and max_sites / (draws + 1) > limit
    draws_note = f"; {draws} fresh draws are too few to distinguish one of {max_sites} sites" if is_too_few else ""
    return f" (Holm over {max_sites} sites, {level}{draws_note})"


def _draws(run: RunAudit) -> object:
    return run.record.measurements.conventions.get("gamma_null_draws")


def _reached(runs: Sequence[RunAudit], sites: Sites) -> str:
    draws = set(map(_draws, runs))
    ranks = [site_row(run.record, "gamma_null_p")[site].value for run in runs for site in sites.reached]
    observed_values = [finding_with(run, *JUDGED).observed.value for run in runs]
    return count_draws_reaching(
        ranks or [value for value in observed_values if value is not None], draws.pop() if len(draws) == 1 else None
    )


def count_draws_reaching(ranks: Sequence[float], draws: object) -> str:
    """Return a text with the number of fresh draws that reach the observed Γ.

    Args:
        ranks: One or more p-values; for several p-values, the text contains a range of numbers.
        draws: The recorded number of draws of the null.

    Returns:
        For example `1 of 20 fresh draws reach this Γ`; the text has no count if `draws` is not an integer.
    """
    if not isinstance(draws, int) or not ranks:
        return f"fresh draws reach this {GAMMA}"
    low, high = (round(rank * (draws + 1)) - 1 for rank in (min(ranks), max(ranks)))
    count = f"{low}" if low == high else f"between {low} and {high}"
    return f"{count} of {draws} fresh draws reach this {GAMMA}"
