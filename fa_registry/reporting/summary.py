"""Summary of an audit: which methods beat their own frozen blocks, and whose Γ may be claimed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fa_registry.errors import join_names
from fa_registry.records import AuditReport, OtherRun, RunAudit, RunSpec
from fa_registry.reporting.claims import claims, gamma_answer
from fa_registry.reporting.claims_depth import DEPTH
from fa_registry.reporting.claims_reference import GAMMA, UNDERCUT, finding_with
from fa_registry.reporting.labels import join_with_and
from fa_registry.reporting.report_index import Sources

MOST_METHODS, MOST_RECIPES = 6, 2  # in one clause
# Result → clause about one or more methods. The first result that occurs is the first sentence.
CLAUSES = {
    "below": "{names} {end} below {their} own frozen blocks: training the blocks made the network worse ({recipe})",
    "at chance": "{names} {are} not better than chance",
    "not above": "{names} {do} not end above {their} own frozen blocks by the required margin",
    "undecided": "{names} {are} undecided: the runs do not show whether training the blocks made the network better",
    "not compared": "{names} {were} not compared with frozen blocks",
    "no claim": "{names} {allow} no claim about the training of {their} blocks",
    "above": "{names} {end} above {their} own frozen blocks: training the blocks made the network better ({recipe})",
}
# Word of a clause about several methods → word of a clause about one method
OF_ONE = {"end": "ends", "are": "is", "do": "does", "were": "was", "allow": "allows", "their": "its"}
ANSWERS = {  # result of `gamma_answer` → text
    "not": "may not be claimed",
    "open": "open",
    "partly": "may be claimed at some sites",
    "may": "may be claimed",
}
# Key of a claim → result; a group has the first result whose claim it has
RESULTS = {
    "left out": "no claim",
    **dict.fromkeys(("differs from its seal", "method fails", "other code", "diverged", "failed"), "no claim"),
    **dict.fromkeys(("near backpropagation", "answers looked up", "trains otherwise", "test in train"), "no claim"),
    **dict.fromkeys(("another model", "adopted"), "no claim"),
    "at chance": "at chance",
    **dict.fromkeys(("undercut", "within limit"), "not above"),
    **dict.fromkeys(("undecided", "stated", "last block"), "undecided"),
    **dict.fromkeys(("trained depth", "trained part", "beats frozen"), "above"),
}


def depth_summary(report: AuditReport) -> tuple[str, ...]:
    """Return at most two sentences, from the findings, that compare methods with their own frozen blocks."""
    sources = Sources.of(report)
    found = [
        (group.runs[0].record.spec, depth_result(group.runs, sources.left_out(group)))
        for group in sources.groups
        if not group.control
    ]
    settings = Counter(spec.label for spec, _ in found)
    clauses = []
    for result, clause in CLAUSES.items():
        specs = [spec for spec, one in found if one == result]
        labels = Counter(spec.label for spec in specs)
        if specs:
            forms = OF_ONE if len(labels) == 1 else dict(zip(OF_ONE, OF_ONE, strict=True))
            names, recipe = _named(labels, settings), _joined(list(map(_recipe, specs)))
            clauses.append(clause.format(names=names, recipe=recipe, **forms))
    return tuple(f"{text}." for text in (*clauses[:1], "; ".join(clauses[1:])) if text)


def gamma_summary(report: AuditReport) -> str:
    """Return one line that lists the methods by their claim about Γ, or an empty string without Γ."""
    sources = Sources.of(report)
    found = [
        (group.runs[0].record.spec.label, gamma_answer(group.runs, report.cards, sources.left_out(group)))
        for group in sources.groups
    ]
    settings = Counter(label for label, _ in found)
    counts = {kind: Counter(label for label, one in found if one == kind) for kind in ANSWERS}
    clauses = [f"{ANSWERS[kind]}: {_named(labels, settings)}" for kind, labels in counts.items() if labels]
    return f"{GAMMA}: {'; '.join(clauses)}." if clauses else ""


def depth_result(runs: Sequence[RunAudit], left_out: Sequence[OtherRun]) -> str:
    """Return the key of CLAUSES for the runs of one method in one setting and their frozen blocks."""
    keys = {claim.key for claim in claims(runs, left_out=left_out)}
    result = next((result for key, result in RESULTS.items() if key in keys), "not compared")
    finding = finding_with(runs[0], UNDERCUT, quantities=DEPTH) if result == "not above" else None
    is_worse = finding and finding.interval and finding.interval[1] < 0 and not finding.stated
    return "below" if is_worse else result


def _recipe(spec: RunSpec) -> str:
    """Return length and recipe of a training: `100 epochs, adamw 0.001`."""
    trained_by = "the user's loop" if spec.is_tracked else f"{spec.recipe.optimizer} {spec.recipe.learning_rate:g}"
    return f"{spec.epochs} epochs, {trained_by}"


def _joined(recipes: Sequence[str]) -> str:
    """Return the different recipes as text, or their number if there are more than MOST_RECIPES."""
    different = tuple(dict.fromkeys(recipes))
    return "; ".join(different) if len(different) <= MOST_RECIPES else f"{len(different)} recipes, see the forms"


def _named(counts: Counter[str], settings: Counter[str]) -> str:
    """Return the labels as text, with the number of their settings if it is smaller than in `settings`."""
    names = [
        label if count == settings[label] else f"{label} (in {count} of {settings[label]} settings)"
        for label, count in counts.items()
    ]
    if len(names) > MOST_METHODS:
        return join_names(names, MOST_METHODS)
    return join_with_and(names)
