"""Analysis `ablation`: the runs that each instrument, and each set of instruments, rejects.

An instrument is the main metric, Γ, or a gating rule of the edition. An instrument that changes no decision is not useful.
For each run, an instrument fires, does not fire, or has no determined result.

A set of instruments rejects a run if the main metric or Γ is in the set and fires. The set also rejects the run if all rules of one
`fail_if` list of the edition are in the set and fire; in a strict edition, one rule that fires is enough. If the metric of an
instrument in the set is missing, the set does not accept the run. The set then rejects the run if every value of this metric would
lead to a rejection. Otherwise the set cannot judge the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

from fa_registry.analyses._methods import METHOD, RUNS, SETTING, MethodRuns, trained
from fa_registry.analyses.base import Analyser, AnalysisCell, AnalysisColumn, AnalysisResult, AnalysisTable
from fa_registry.metrics import DEFAULT, Headline, headline_of, headlines_of, symbol_of
from fa_registry.protocol.credit import is_exact
from fa_registry.protocol.operators import take
from fa_registry.protocol.paired_runs import chance_of
from fa_registry.protocol.rules import Edition
from fa_registry.records import AuditReport, Reading, RunAudit

GAMMA = symbol_of("gamma")  # the main metric and Γ are the instruments that are not rules
DECISIONS = ("rejects", "cannot judge", "warns", "accepts")  # most severe decision first
OF_PROTOCOL: Mapping[str, str] = MappingProxyType(
    {"fail": "rejects", "incomplete": "cannot judge", "warn": "warns", "pass": "accepts"}
)


@dataclass(frozen=True)
class Evidence:
    """The results of all instruments for one run.

    Args:
        fires: instrument → True if it fires, False if it does not fire, None if this is undetermined.
        warned: rules whose result is fail, warn or waived.
    """

    fires: Mapping[str, bool | None]
    warned: frozenset[str]


def instruments(edition: Edition, headlines: Sequence[Headline] = (DEFAULT,)) -> tuple[str, ...]:
    """Return the names of all instruments: main metric, Γ, and the gating rules in order."""
    return (_main(headlines), GAMMA, *(rule.code for rule in edition.rules if rule.gating))


def _main(headlines: Sequence[Headline]) -> str:
    """Return the instrument name of the main metric, such as `accuracy`."""
    return " or ".join(headline.symbol for headline in headlines)


def evidence(run: RunAudit, report: AuditReport, edition: Edition, main: str) -> Evidence:
    """Return the result of each instrument for one run. `main` names the instrument of the main metric."""
    findings = {finding.rule: finding for finding in run.findings}
    method = report.cards.get(f"methods/{run.record.spec.method}", {})
    fires: dict[str, bool | None] = {
        main: not_better_than_guessing(run),
        GAMMA: not_positive(run, method),
    }
    for rule in edition.rules:
        outcome = findings[rule.code].outcome if rule.code in findings else "not_applicable"
        fires[rule.code] = {"fail": True, "pass": False, "warn": False, "waived": False}.get(outcome)
    warned = frozenset(code for code, finding in findings.items() if finding.outcome in ("fail", "warn", "waived"))
    return Evidence(fires, warned)


def not_better_than_guessing(run: RunAudit) -> bool | None:
    """Return whether the main metric of a run is not better than that of guessing.

    Return None if the metric or the value that guessing reaches is unknown.
    """
    headline = headline_of(run.record.measurements)
    value, chance = take(headline.name, "scalar", run.record.measurements)[0].value, chance_of(run.record)
    if value is None or chance is None:
        return None
    return not headline.exceeds(value, chance)


def not_positive(run: RunAudit, card: Mapping[str, Any]) -> bool | None:
    """Return whether the mean Γ of a run over sites 1..L and samples is at most 0.

    Return False if, according to the method's card, the credit is the gradient by construction. Return None if Γ is unknown.
    """
    if is_exact(card):
        return False
    gamma = take("gamma_deep_mean", "scalar", run.record.measurements)[0].value
    return None if gamma is None else gamma <= 0


def decide(run_evidence: Evidence, subset: Sequence[str], edition: Edition) -> str:
    """Return the decision of a set of instruments on one run, by the edition's rules and `fail_if`."""
    codes_of_rules = {rule.code for rule in edition.rules}
    lists = [*edition.fail_if, *((rule.code,) for rule in edition.rules if edition.strict)]
    is_rejected = any(run_evidence.fires[name] for name in subset if name not in codes_of_rules)
    if is_rejected or any(all(code in subset and run_evidence.fires[code] for code in codes) for codes in lists):
        return "rejects"
    if any(run_evidence.fires[name] is None for name in subset):
        return "cannot judge"
    return "warns" if run_evidence.warned & set(subset) else "accepts"


def worst(decisions: Iterable[str]) -> str:
    """Return the most severe of several decisions, in the order of DECISIONS."""
    return min(decisions, key=DECISIONS.index)


MOST = 12  # instruments, which form 4,095 sets; for more instruments, only the sets of `_ladder` are computed
FULL = "full protocol"
LADDER = (
    AnalysisColumn("instruments", f"names of the instruments (main metric, {GAMMA} or rules) in the set"),
    AnalysisColumn(
        "methods_rejected",
        "number of methods that the instruments of the set reject; a method counts once per setting",
        "methods",
        "count",
    ),
    AnalysisColumn(
        "methods_unjudged",
        "number of methods that the instruments of the set cannot judge; a method counts once per setting",
        "methods",
        "count",
    ),
    AnalysisColumn("methods", "number of all methods; a method counts once per setting", "methods", "count"),
    AnalysisColumn("runs_rejected", "number of runs that the instruments of the set reject", "runs", "count"),
    AnalysisColumn("runs_unjudged", "number of runs that the instruments of the set cannot judge", "runs", "count"),
    RUNS,
    AnalysisColumn("rejected", "names of the methods that the instruments of the set reject"),
)
RULE_OF = (
    f"{GAMMA} rejects a run whose mean {GAMMA} over sites 1..L and samples is at most 0. "
    f"{GAMMA} never rejects a run whose credit is exact by construction.",
    "A rule warns if it fires but is not sufficient to fail a run in the edition. A rule also warns if its result is noisy, "
    "undecided, provisional or waived. A method is rejected if at least one of its runs is rejected, as in the verdict over "
    "seeds.",
)


def answer(report: AuditReport, edition: Edition) -> AnalysisResult:
    """Count the methods and runs that each set of instruments rejects.

    Returns:
        Three tables: the decision of each set for each method, the counts for some sets, and the counts for all sets. The second
        table has one row per set. The first sets contain one instrument each. Each of the next sets contains one instrument more
        than the set before. The last row is the full protocol.
    """
    methods = trained(report)
    headlines = headlines_of(run.record for run in report.runs)
    main_name, runs = _main(headlines), [run for method in methods for run in method.runs]
    evidence_of = {run.record.run_id: evidence(run, report, edition, main_name) for run in runs}
    names = instruments(edition, headlines)
    all_sets = ladder = _ladder(names)
    if len(names) <= MOST:
        all_sets = [subset for size in range(1, len(names) + 1) for subset in combinations(names, size)]
    columns = _columns(ladder)
    rows = tuple(_row(method, evidence_of, ladder, edition) for method in methods)
    tables = (
        AnalysisTable("ablation", "Decision of each set of instruments on each method", columns, rows),
        AnalysisTable(
            "sets",
            "Number of methods and runs that each set of instruments rejects",
            LADDER,
            tuple(_count(subset, methods, evidence_of, edition) for subset in ladder),
        ),
        AnalysisTable(
            "all",
            "Number of rejections for every possible set of instruments",
            LADDER,
            tuple(_count(subset, methods, evidence_of, edition) for subset in all_sets),
            detail=True,
        ),
    )
    main = (f"{item.symbol} rejects a run whose {item.symbol} does not {item.beats} chance." for item in headlines)
    return AnalysisResult(tables, (" ".join((*main, RULE_OF[0])), *RULE_OF[1:], *_remarks(report, edition, all_sets)))


def name_of(subset: Sequence[str]) -> str:
    return " + ".join(subset) if subset else FULL


def _ladder(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the sets of one instrument, the sets of the first 2, 3, … instruments, and () for all rules."""
    single_sets = [(name,) for name in names]
    growing_sets = [tuple(names[:count]) for count in range(2, len(names) + 1)]
    return [*single_sets, *growing_sets, ()]


def _columns(ladder: Iterable[Sequence[str]]) -> tuple[AnalysisColumn, ...]:
    decisions = (
        AnalysisColumn(name_of(subset), f"decision of {name_of(subset)}, and number of rejected runs", "runs", "count")
        for subset in ladder
    )
    return (METHOD, SETTING, RUNS, *decisions)


def _row(
    method: MethodRuns, evidence_of: Mapping[str, Evidence], ladder: Sequence[Sequence[str]], edition: Edition
) -> dict[str, AnalysisCell]:
    cells = {}
    for subset in ladder:
        decision_of_run = {run.record.run_id: _decision(run, evidence_of, subset, edition) for run in method.runs}
        worst_decision = worst(decision_of_run.values())
        ids = tuple(run_id for run_id, decision in decision_of_run.items() if decision == worst_decision)
        rejected = sum(decision == "rejects" for decision in decision_of_run.values())
        reading = Reading(float(rejected))
        cells[name_of(subset)] = AnalysisCell(reading, text=worst_decision, run_ids=ids, n=len(decision_of_run))
    return {**method.cells, **cells}


def _decision(run: RunAudit, evidence_of: Mapping[str, Evidence], subset: Sequence[str], edition: Edition) -> str:
    return decide(evidence_of[run.record.run_id], subset, edition) if subset else OF_PROTOCOL[run.verdict.outcome]


def _count(
    subset: Sequence[str], methods: Sequence[MethodRuns], evidence_of: Mapping[str, Evidence], edition: Edition
) -> dict[str, AnalysisCell]:
    by_method = [
        [(run.record.run_id, _decision(run, evidence_of, subset, edition)) for run in item.runs] for item in methods
    ]
    run_decisions = [pair for pairs in by_method for pair in pairs]
    method_decisions = [worst(decision for _, decision in pairs) for pairs in by_method]
    method_counts, run_counts = Counter(method_decisions), Counter(decision for _, decision in run_decisions)
    ids = {decision: tuple(run_id for run_id, item in run_decisions if item == decision) for decision in run_counts}

    def number(value: int, word: str = "") -> AnalysisCell:
        return AnalysisCell(Reading(float(value)), run_ids=ids.get(word, ()))

    rejected = [
        method.label for method, decision in zip(methods, method_decisions, strict=True) if decision == "rejects"
    ]
    return {
        "instruments": AnalysisCell(text=name_of(subset)),
        "methods_rejected": number(method_counts["rejects"], "rejects"),
        "methods_unjudged": number(method_counts["cannot judge"], "cannot judge"),
        "methods": number(len(methods)),
        "runs_rejected": number(run_counts["rejects"], "rejects"),
        "runs_unjudged": number(run_counts["cannot judge"], "cannot judge"),
        RUNS.name: number(len(run_decisions)),
        "rejected": AnalysisCell(text=", ".join(dict.fromkeys(rejected)) or "none"),
    }


def _remarks(report: AuditReport, edition: Edition, all_sets: Sequence[Sequence[str]]) -> list[str]:
    remarks = []
    non_gating = [rule.code for rule in edition.rules if not rule.gating]
    if non_gating:
        remarks.append(
            f"Rules that never reject: {', '.join(non_gating)}. These rules are reported, but do not affect the verdict."
        )
    if len(instruments(edition)) > MOST:
        remarks.append(
            f"{len(instruments(edition))} instruments have more sets than the table can show; {len(all_sets)} sets are shown."
        )
    diverged = [run for run in report.runs if run.record.status == "diverged" and run.record.spec.control == "none"]
    if diverged:
        remarks.append(
            f"Diverged runs: {len(diverged)}. The full protocol fails these runs regardless of its rules. A set of "
            "instruments judges these runs only by the results of its instruments."
        )
    return remarks


PLUGIN = Analyser(
    name="ablation",
    title="Decision utility",
    question=f"Which runs does each subset of the main metric, {GAMMA} and the rules of the protocol reject?",
    source=f"arXiv 2606.21126, ablation at seed 42: {DEFAULT.symbol} and {GAMMA} compared with the full protocol",
    answer=answer,
    rank=4,
    figure="fa_registry.reporting.figures.analyses.ablation",
)
