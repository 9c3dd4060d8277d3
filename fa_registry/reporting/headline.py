"""What a reader of the index must know in ten seconds: one sentence, the rules behind it, and who, by short names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fa_registry.protocol.grouping import Group
from fa_registry.reporting.findings import SEVERITY
from fa_registry.reporting.rows import Judged, Link

WORST_FIRST = ("fail", "incomplete", "warn", "pass")
VERBS = {
    "fail": ("fails", "fail"),
    "incomplete": ("is incomplete", "are incomplete"),
    "warn": ("draws a warning", "draw a warning"),
    "pass": ("passes", "pass"),
}
# The column of the audit table in which the quantity that a rule judges is read.
COLUMN_OF = {
    "growth": "growth",
    "h_norm": "h_norm",
    "g_norm": "g_norm",
    "margin_pp": "margin",
    "stability_mid": "stability",
}


@dataclass(frozen=True)
class RuleCount:
    """A gating rule that fires, and for how many methods."""

    rule: str
    title: str
    count: int


@dataclass(frozen=True)
class Headline:
    """The audit in one sentence. counts: (outcome, methods), worst first; rules: those that fire, most often first."""

    sentence: str
    counts: tuple[tuple[str, int], ...]
    rules: tuple[RuleCount, ...]
    settings: int


def headline(groups: Iterable[Group]) -> Headline:
    """The verdicts of all methods in one sentence, and the gating rules that fire, most often first."""
    judged = [group for group in groups if not group.control]
    outcomes = [group.verdict.outcome for group in judged]
    counts = tuple((outcome, outcomes.count(outcome)) for outcome in WORST_FIRST if outcome in outcomes)
    settings = {group.runs[0].record.spec.setting.identity for group in judged}
    return Headline(_sentence(counts, len(judged), len(settings)), counts, tuple(_rules(judged)), len(settings))


def _sentence(counts: Sequence[tuple[str, int]], total: int, settings: int) -> str:
    """`8 of 23 methods fail, 10 pass.` A method in two settings is two pairs of method and setting."""
    if not total:
        return "No method was judged."
    noun = "method" if settings == 1 else "method × setting pair"
    if len(counts) == 1:
        subject = f"The only {noun}" if total == 1 else f"All {total} {noun}s"
        return f"{subject} {VERBS[counts[0][0]][total > 1]}."
    first, *others = [f"{count} {VERBS[outcome][count > 1]}" for outcome, count in counts]
    count, verb = first.split(" ", 1)
    return f"{', '.join([f'{count} of {total} {noun}s {verb}', *others])}."


def _rules(groups: Iterable[Group]) -> Iterator[RuleCount]:
    found: dict[tuple[str, str], int] = {}
    for group in groups:
        fired = {
            (one.rule, one.title): None
            for run in group.runs
            for one in run.findings
            if one.gating and one.outcome == "fail"
        }
        for rule in fired:
            found[rule] = found.get(rule, 0) + 1
    for (rule, title), count in sorted(found.items(), key=lambda item: (-item[1], item[0])):
        yield RuleCount(rule, title, count)


def short_names(links: Sequence[Link]) -> list[Link]:
    """The links under the methods' names alone, where no other variant of the method could be meant."""
    variants: dict[str, set[str]] = {}
    for link in links:
        variants.setdefault(link.name, set()).add(link.text)
    return [link if len(variants[link.name]) > 1 else replace(link, text=link.name) for link in links]


def judged_columns(group: Group) -> Mapping[str, Judged]:
    """Column → the most severe of the judgements of it that did not pass, with the seeds it was said of."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for run in group.runs:
        for one in run.findings:
            if one.outcome in ("fail", "warn", "waived") and one.quantity in COLUMN_OF:
                found.setdefault((COLUMN_OF[one.quantity], one.rule, one.outcome), []).append(run.record.spec.seed)
    worst: dict[str, Judged] = {}
    for column, rule, outcome in sorted(found, key=lambda key: SEVERITY.index(key[2])):
        worst.setdefault(column, Judged(rule, outcome, tuple(found[column, rule, outcome])))
    return worst
