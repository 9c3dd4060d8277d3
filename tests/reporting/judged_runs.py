"""What earns a claim: runs by their findings, and the rows of the claims of depth and of Γ; test_claims_table has all others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fa_registry.metrics import label_of, symbol_of
from fa_registry.protocol.evidence_rules import METHOD
from fa_registry.records import Exclusion, Finding, FurtherLimit, Reading, RunAudit, Verdict
from fa_registry.records.runs import STRUCTURE
from fa_registry.reporting.claims import claims
from fa_registry.reporting.claims_depth import CAUSES, OWN_LOOP_CAUSES
from fa_registry.reporting.view_models import Claim
from tests.reporting.report_changes import changed
from tests.reporting.runs import full, make_record
from tests.reporting.sample_reports import a_finding

LARGEST, SINCE, FROZEN = map(label_of, ("growth_max", "growth_init_max", "frozen_accuracy"))
GAIN, FIDELITY = symbol_of("gain"), symbol_of("fidelity_min")


def a_run(*findings: Finding, seed: int = 42, verdict: str = "pass", **changes) -> RunAudit:
    """A whole run of dfa on 360 test samples, accuracy .93, Γ about .2, with these findings. changes: see changed()."""
    record = full(make_record("dfa", seed, 0.93, 3.0, 0.1, 0.2), gain=[0.3] * 5)
    run = changed(RunAudit(record, findings, Verdict(verdict, verdict.upper())), conventions={"test_samples": 360})
    return changed(run, **changes)


def depth(
    state: str, outcome: str, mean: float, ends: tuple[float, float] | None, limit: float = 2.0, **changes
) -> Finding:
    fields = {"quantity": "margin_pp", "confidence": 0.95 if ends else None, "seeds": 3 if ends else 1, **changes}
    return a_finding(
        "D3",
        outcome,
        observed=Reading(mean),
        interval=ends,
        threshold=limit,
        state=state,
        **fields,
    )


def null(state: str, outcome: str, **changes) -> Finding:
    fields = {"quantity": "gamma_null_p", "threshold": 0.05, "gating": False, **changes}
    return a_finding("D4", outcome, state=state, **fields)


def reference(state: str, outcome: str, times: float = 100.0, **changes) -> Finding:
    fields = {"threshold": 1e-3, "observed": Reading(times * 1e-3), "further": (FurtherLimit("gain", 0.01),), **changes}
    return a_finding("D2", outcome, quantity="g_norm", state=state, **fields)


def scale(state: str, outcome: str, **changes) -> Finding:
    return a_finding("D1", outcome, quantity="growth", state=state, threshold=50.0, **changes)


def stability(state: str, outcome: str) -> Finding:
    observed = Reading(0.5 if state == "HIGH" else 0.1)
    return a_finding(
        "S", outcome, quantity="stability_mid", state=state, threshold=0.3, observed=observed, gating=False
    )


SHARE = {"scalars": {"blocks_trained": 1.0}}
CLEARS = depth("CLEARS", "pass", 10.0, (8.0, 12.0))
NO_GAMMA = {"scalars": {"gamma_deep_mean": None}}
PART = {"sites": {"gamma_null_p": [0.01, 0.01, 0.01, 0.01, 0.08]}}
GREW = {"sites": {"h_norm": [16.0, 1e3, 1e5, 1e7, 1e9]}}
SOUND = (CLEARS, scale("OK", "pass"), reference("OK", "pass"))  # D3, D1 and D2 pass
FLOOR, EXPLODED = reference("AT FLOOR", "fail", 0.1), scale("EXPLODED", "fail")


@dataclass(frozen=True)
class Row:
    """`earns` support the claim `key`; `spoiled` differ from them by one thing, and its text is another or gone."""

    key: str
    earns: Sequence[RunAudit]
    spoiled: Sequence[RunAudit]
    excluded: Sequence[Exclusion] = field(default=())
    given: Mapping[str, Any] = field(default_factory=dict)

    def earned(self) -> list[Claim]:
        """The claims about `earns`, with what the report says besides: left-out runs, or the method's card."""
        return list(claims(self.earns, self.excluded, **self.given))

    def texts(self, found: Iterable[Claim]) -> list[str]:
        return [claim.text for claim in found if claim.key == self.key]


# Claims that fewer than three seeds do not support.
OF_THREE_SEEDS = ("aligned by feedback", "aligned, null unknown", "specific", "not specific", "too small")
OF_THREE_SEEDS += ("null unknown", "no evidence", "against the gradient")


def row(key: str, earns: RunAudit | list, spoiled: RunAudit | list, **more) -> Row:
    lists = [runs if isinstance(runs, list) else [runs] for runs in (earns, spoiled)]
    return Row(key, *(map(over_seeds, lists) if key in OF_THREE_SEEDS else lists), **more)


def over_seeds(runs: list[RunAudit]) -> list[RunAudit]:
    """At least three seeds: the runs, and copies of the first run under other seeds."""
    others = [seed for seed in (42, 123, 456) if seed not in {run.record.spec.seed for run in runs}]
    return [*runs, *(changed(runs[0], spec={"seed": seed}) for seed in others[: max(0, 3 - len(runs))])]


def rows_of_beating_frozen_blocks() -> Iterator[Row]:
    """Of a method that does not pass: where it does, its margin is in the sentence that states it."""
    beats = a_run(CLEARS, verdict="warn")
    looked = depth("CLEARS", "pass", 10.0, (8.0, 12.0), confidence=0.975, look=2)
    worse = a_run(depth("CLEARS", "pass", -5.5, (-6.0, -5.0), -10.0), verdict="warn")
    yield row("beats frozen", beats, worse)
    yield row("beats frozen", beats, a_run(CLEARS))
    yield row("beats frozen", beats, a_run(CLEARS, status="diverged", verdict="fail"))
    broken = a_run(CLEARS, seed=123, status="diverged", verdict="fail")
    yield row("beats frozen", [beats, a_run(CLEARS, seed=123, verdict="warn")], [beats, broken])
    for key, verdict in (("beats frozen", "warn"), ("trained depth", "pass")):
        clear, again = a_run(CLEARS, verdict=verdict), a_run(looked, verdict=verdict)
        other = a_run(depth("CLEARS", "pass", 9.0, (8.0, 12.0)), verdict=verdict)
        yield row(key, clear, other)
        yield row(key, clear, again)
        yield row(
            key,
            again,
            clear,
        )
        near = depth("CLEARS", "pass", 3.0, (2.1, 3.9))
        yield row(
            key,
            a_run(near, verdict=verdict),
            a_run(near, verdict=verdict, conventions={"test_samples": 10_000}),
        )
        far = a_run(depth("CLEARS", "pass", 8.0, (7.1, 8.9)), verdict=verdict)
        yield row(key, a_run(near, verdict=verdict), far)


def rows_within_the_limit() -> Iterator[Row]:
    inside = depth("CLEARS", "pass", -5.5, (-12.0, 1.0), -15.0)
    worse = depth("CLEARS", "pass", -5.5, (-6.0, -5.0), -10.0)
    yield row(
        "within limit",
        a_run(worse),
        a_run(inside),
    )
    yield row("within limit", a_run(inside), a_run(worse))
    yield row("within limit", a_run(inside), a_run(depth("CLEARS", "pass", 5.0, (1.0, 9.0), -15.0)))


def rows_of_undercut() -> Iterator[Row]:
    margins = (
        (-3.0, (-4.0, -2.0)),
        (0.0, (-1.0, 1.0)),
        (1.0, (0.5, 1.5)),
    )  # worse, not shown better, too little better
    below = [a_run(depth("UNDERCUT", "fail", *margin), verdict="fail") for margin in margins]
    for place, run in enumerate(below):
        yield row("undercut", run, below[place - 1])
    paired = a_run(depth("UNDERCUT", "fail", -3.0, (-4.0, -2.0), seeds=1), verdict="fail")
    yield row("undercut", paired, changed(paired, scalars={"accuracy": None}))
    over_last_block = dataclasses.replace(paired, frozen_run_id="f" * 32)
    finding = dataclasses.replace(paired.findings[0], reference_run_id="e" * 32)
    yield row("undercut", paired, dataclasses.replace(over_last_block, findings=(finding,)))
    of_accuracy = a_finding("d", quantity="accuracy", state="UNDERCUT", threshold=2.0)
    yield row("undercut", below[0], a_run(of_accuracy, verdict="fail"))
    yield row("undercut", a_run(of_accuracy, verdict="fail"), a_run(CLEARS))


def rows_of_undecided() -> Iterator[Row]:
    def undecided(*causes: str, **changes) -> RunAudit:
        finding = depth("UNDECIDED", "warn", 3.5, (-2.2, 9.2), undecided=causes, test="paired t test")
        return a_run(dataclasses.replace(finding, **changes), verdict="warn")

    open_ = undecided("margin at the limit")
    yield row("undecided", open_, a_run(CLEARS))
    yield row("undecided", open_, undecided("margin at the limit", test="Welch's t test"))
    on = undecided("margin at the limit", observed=Reading(2.0), interval=(-2.0, 6.0))
    yield row("undecided", open_, on)
    yield row("undecided", on, open_)
    small = undecided("margin at the limit", df=400.0, error_shares=(0.0, 0.99))
    yield row("undecided", small, open_)
    yield row("undecided", on, small)
    sure = undecided("margin at the limit", interval=(1.9, 5.1))
    yield row("undecided", sure, open_)
    yield row("undecided", open_, sure)
    later = undecided("margin at the limit", confidence=0.975, look=2)
    yield row("undecided", later, open_)
    alone = undecided("too few seeds", interval=None, test="", confidence=None, seeds=1)
    yield row("undecided", alone, open_)
    for cause in CAUSES:
        yield row("undecided", undecided(cause), open_)
    for cause in OWN_LOOP_CAUSES:
        other = undecided(cause)
        yield row("undecided", changed(other, spec={"architecture_options": {STRUCTURE: "ab"}}), other)
    yield row("undecided", undecided("too few seeds", "control at chance"), undecided("control at chance"))


def rows_of_specific_sites(part: RunAudit) -> Iterator[Row]:
    """What holds and what does not are two claims, if D1, D2 and D3 pass in every seed; otherwise one that is not supported."""
    least = (FurtherLimit("gamma_deep_mean", 0.2),)
    failing = null("NOT SPECIFIC", "warn")
    split, small = (a_run(*SOUND, null("NOT SPECIFIC", "warn", further=more), **PART) for more in ((), least))
    another = a_run(*SOUND, failing, **PART, seed=123)
    for key in ("specific", "not specific"):
        for spoiled in (
            part,
            a_run(*SOUND, failing, sites={"gamma_null_p": 0.5}),
            a_run(*SOUND, failing, **PART, status="failed"),
        ):
            yield row(key, split, spoiled)
        for count in range(len(SOUND)):  # D1, D2 and D3 were judged, each of them
            yield row(key, split, a_run(*SOUND[:count], *SOUND[count + 1 :], failing, **PART))
        yield row(key, [split, another], [split, a_run(CLEARS, failing, **PART, seed=123)])
        yield row(key, split, small)
    more = changed(another, sites={"gamma_null_p": [0.01, 0.01, 0.01, 0.08, 0.08]})
    yield row("specific", [split, more], [split, another])
    yield row("not specific", [split, more], [split, another])


def rows_of_small_gamma() -> Iterator[Row]:
    """Significance is not size: what counts as alignment is the edition's, and the interval over seeds decides."""
    least = (FurtherLimit("gamma_deep_mean", 0.05),)
    own = a_run(CLEARS, null("SPECIFIC", "pass", further=least))
    finding = null("TOO SMALL", "warn", quantity="gamma_deep_mean", crossed="below", observed=Reading(0.002))
    small = a_run(CLEARS, finding, scalars={"gamma_deep_mean": 0.002})
    yield row("too small", small, own)
    tested = dataclasses.replace(finding, threshold=0.2, further=(FurtherLimit("gamma_null_p", 0.05),))
    tested = a_run(CLEARS, tested, scalars={"gamma_deep_mean": 0.1})
    yield row("too small", tested, own)

    def seeds(*gammas: float) -> list[RunAudit]:
        numbered = zip((42, 123, 456), gammas, strict=False)
        return [changed(own, spec={"seed": seed}, scalars={"gamma_deep_mean": gamma}) for seed, gamma in numbered]

    steady = seeds(0.15, 0.157, 0.16)
    yield row("gamma undecided", seeds(0.15, 0.06, 0.2), steady)
    yield row("gamma undecided", seeds(0.29, 0.24), steady)
    yield row("gamma undecided", own, steady)
    unlimited = a_run(CLEARS, null("SPECIFIC", "pass"))
    yield row("gamma undecided", unlimited, over_seeds([unlimited]))
    yield row("gamma undecided", seeds(-0.1, -0.2), seeds(-0.1, 0.2))
    yield row("against the gradient", seeds(-0.1, -0.11, -0.12), seeds(-0.1, 0.11, -0.12))
    yield row("aligned by feedback", steady, own)


def rows_of_gamma_taken_back(own: RunAudit, failed: RunAudit) -> Iterator[Row]:
    """The one answer of a method that fails: why, in which seeds, and then where its Γ is above its null all the same."""
    yield row("not aligned", failed, own)
    some = changed(a_run(null("NOT SPECIFIC", "warn"), verdict="fail"), **PART)
    yield row("not aligned", some, failed)
    yield row("not aligned", [own, failed], failed)
    undercut = a_run(depth("UNDERCUT", "fail", -3.0, (-4.0, -2.0)), EXPLODED, verdict="fail")
    yield row("not aligned", undercut, failed)
    reportable = changed(undercut, sites={"gamma_null_p": [0.01] * 5})
    reportable = dataclasses.replace(reportable, findings=(*undercut.findings, null("SPECIFIC", "pass")))
    conformance = a_finding(METHOD, "fail", quantity=METHOD, observed=Reading(None, "why"), state="FAILED")
    adopted = a_finding("adopted", "warn", quantity="adopted", observed=Reading(None, "why"), state="STATED")
    for forbidding in (FLOOR, conformance, adopted, stability("HIGH", "warn"), stability("HIGH", "waived")):
        forbidden = dataclasses.replace(reportable, findings=(*reportable.findings, forbidding))
        yield row("not aligned", reportable, forbidden)
    diverged = changed(reportable, status="diverged", spec={"seed": 123})
    yield row("not aligned", reportable, [reportable, diverged])
    yield row("not aligned", changed(undercut, sites={"gamma_null_p": []}), reportable)
    other = changed(undercut, spec={"seed": 123}, sites={"gamma_null_p": []})
    yield row("not aligned", [reportable, other], reportable)
    negative = changed(undercut, scalars={"gamma_deep_mean": -0.1})
    yield row("not aligned", negative, undercut)
    several = [reportable, changed(reportable, spec={"seed": 123}, scalars={"gamma_deep_mean": 0.25})]
    yield row("not aligned", several, reportable)
    broken = a_run(null("SPECIFIC", "pass"), seed=123, verdict="fail", status="diverged")
    yield row("not aligned", [own, broken], [own, failed])
    fine = a_run(null("SPECIFIC", "pass"), reference("OK", "pass"), verdict="warn")
    yield row("not aligned", a_run(FLOOR, verdict="warn"), fine)
    exploded, noisy = scale("EXPLODED", "warn"), reference("NOISY", "warn")  # a warning takes Γ back too
    for finding in (exploded, noisy):
        warned = a_run(null("SPECIFIC", "pass"), finding, verdict="warn")
        yield row("not aligned", warned, fine)
        yield row("no evidence", fine, warned)


def rows_of_explanations(both: RunAudit, floor: RunAudit) -> Iterator[Row]:
    without_ln = changed(both, spec={"architecture_options": {"terminal_ln": False}})
    for spoiled in (floor, without_ln, changed(both, scalars={"fidelity_min": 0.4})):
        yield row("explained", both, spoiled)
    longer, at_fifty = (changed(both, sites={"h_norm": [2.0, 8.0, 20.0, 50.0, end]}) for end in (100.1, 100.0))
    yield row("explained", longer, at_fifty)
    yield row("explained", both, changed(both, scalars={"growth_max": None}))
    yield row("explained", both, changed(both, sites={"g_norm_mean_ce": []}))
    yield row("explained", both, changed(both, **NO_GAMMA))
