"""The first screen of a form: one sentence, and the answers for Γ, depth and scale with their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fa_registry.metrics import HEADLINE_GAMMA, HEADLINES, MARGINS, SUBJECTS, headline_of, metric_named
from fa_registry.protocol.credit import is_exact
from fa_registry.protocol.grouping import Group
from fa_registry.records import RunAudit
from fa_registry.reporting.claims import claims, gamma_answer
from fa_registry.reporting.claims_reference import GAMMA
from fa_registry.reporting.figure_models import PageFigure
from fa_registry.reporting.report_index import Sources
from fa_registry.reporting.report_values import LARGEST, PER_BLOCK, shown_outcome
from fa_registry.reporting.summary import depth_result
from fa_registry.reporting.text.filters import compact, number
from fa_registry.reporting.view_models import Claim, Estimate

# result of `depth_result` → kind of the tile, its words, and the words of the sentence
DEPTH: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "below": ("not", "makes it worse", "training the blocks made the network worse"),
        "above": ("may", "helps", "training the blocks made the network better"),
        "not above": ("not", "not shown to help", "training the blocks did not help by the required margin"),
        "at chance": ("not", "at chance", "the network is not better than chance"),
        "undecided": ("open", "undecided", "it is undecided whether training the blocks helped"),
        "not compared": ("open", "not compared", "the network was not compared with frozen blocks"),
        "no claim": ("not", "no claim", "no claim about the training of the blocks is allowed"),
    }
)
COMPARED = ("below", "above", "not above", "undecided")  # results whose sentence names both numbers
# result of `gamma_answer` → kind and words of the tile, and words of the sentence after the value
OF_GAMMA: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "may": ("may", "may be claimed", "may be claimed"),
        "partly": ("open", "at some sites", "may be claimed at some sites"),
        "open": ("open", "open", "is open: it may not be claimed yet"),
        "not": ("not", "may not be claimed", "may not be claimed"),
    }
)
# key of a claim that forbids Γ → words of the sentence that say why
WHY: Mapping[str, str] = MappingProxyType(
    {
        "not specific": "is not specific to its feedback",
        "too small": "is too small to be useful",
        "against the gradient": "points against the gradient",
        "not aligned": "is no evidence of useful credit",
    }
)
NO_GAMMA = "gamma not applicable"  # key of the claim that says why Γ does not apply
# outcome of the rule about scale → kind and words of the tile; of several outcomes, the first one counts
SCALE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "fail": ("not", "explodes"),
        "warn": ("open", "undecided"),
        "waived": ("open", "waived"),
        "pass": ("may", "is kept"),
        "inapplicable": ("note", "does not apply"),
    }
)
NOT_JUDGED = ("open", "not judged")
NO_FIGURES: Mapping[str, PageFigure] = MappingProxyType({})


@dataclass(frozen=True)
class Tile:
    """One answer of a form.

    Attributes:
        topic: Γ, Depth or Scale.
        kind: may, not, open, or note if the question does not apply.
        text: The answer in a few words.
        name: The metric that was judged.
        value: The number that was judged, over seeds; none if the question does not apply.
        limit: The requirement as text; empty if no rule judged the number.
        claims: The claims about the topic; for Γ, also those about the reference gradient.
        figure: The small figure; none if it was not measured.
    """

    topic: str
    kind: str
    text: str
    name: str
    value: Estimate | None
    limit: str
    claims: tuple[Claim, ...]
    figure: PageFigure | None


def answers(
    group: Group, sources: Sources, figures: Mapping[str, PageFigure] = NO_FIGURES
) -> tuple[str, tuple[Tile, ...]]:
    """Return the sentence and the tiles of the form of one method in one setting.

    Args:
        group: Runs of the method.
        sources: The report.
        figures: Topic of a tile → its figure.
    """
    runs, report, left_out = group.runs, sources.report, sources.left_out(group)
    card = report.cards.get(f"methods/{runs[0].record.spec.method}", {})
    found = claims(runs, sources.excluded(group), card=card, left_out=left_out)
    if not found:
        return "", ()
    headline = headline_of(runs[0].record.measurements)

    def estimate(name: str) -> Estimate:
        """Return the values of a metric over the seeds."""
        return sources.values.estimate(runs, metric_named(name, sources.known))

    def tile(topic: str, answer: Sequence[str], name: str, limit: str) -> Tile:
        """Return the tile of one topic: it shows the metric `name`."""
        kind, text = answer[:2]
        about = (topic, "Reference") if topic == GAMMA else (topic,)
        topical = tuple(one for one in found if one.topic in about and (one.kind != "note" or kind == "note"))
        value = estimate(name) if kind != "note" else None
        return Tile(
            topic,
            kind,
            text,
            metric_named(name, sources.known).label,
            value,
            limit if value else "",
            topical,
            figures.get(topic),
        )

    gamma = gamma_answer(runs, report.cards, left_out)
    is_asked = not is_exact(card) and NO_GAMMA not in [one.key for one in found]
    of_gamma = OF_GAMMA.get(gamma, ("note", "not measured" if is_asked else "does not apply", ""))
    result = depth_result(runs, left_out)
    depth = DEPTH[result]
    growth, outcome, seeds = judged_scale(runs)
    kind, text = SCALE.get(outcome, NOT_JUDGED)
    scale = kind, text if seeds == len(runs) else f"{text} in {seeds} of {len(runs)} seeds"
    tiles = (
        tile(GAMMA, of_gamma, HEADLINE_GAMMA, _limit(runs, [HEADLINE_GAMMA], "at least")),
        tile("Depth", depth, headline.margin, _limit(runs, SUBJECTS["depth"], "at least")),
        tile(
            "Scale",
            scale,
            growth,
            _limit(runs, [growth, *(one for one in LARGEST if LARGEST[one] == growth)], "at most"),
        ),
    )
    both = [estimate(name) for name in (headline.name, headline.frozen)]
    numbers = ""
    if result in COMPARED and all(one.n for one in both):
        numbers = f": {number(both[0].mean)} against {number(both[1].mean)} frozen"
    reasons = [WHY[one.key] for one in found if one.key in WHY] if gamma == "not" else []
    why = next(iter(reasons), of_gamma[2])
    of_gamma_text = f" {GAMMA} = {number(tiles[0].value.mean)} {why}." if of_gamma[2] and tiles[0].value.n else ""
    return f"In this recipe, {depth[2]}{numbers}.{of_gamma_text}", tiles


def judged_scale(runs: Sequence[RunAudit]) -> tuple[str, str, int]:
    """Return the metric of the growth that was judged, the outcome, and the number of runs with it.

    The metric is the largest value over the sites. Of several outcomes, the first one in SCALE counts. Without a judgement, the
    outcome is "" for all runs.
    """
    judged = [
        {shown_outcome(one): one.quantity for one in run.findings if one.quantity in SUBJECTS["scale"]} for run in runs
    ]
    outcome = next((one for one in SCALE if any(one in outcomes for outcomes in judged)), "")
    touched = [outcomes[outcome] for outcomes in judged if outcome in outcomes]
    quantity = next(iter(touched), PER_BLOCK[1])
    return LARGEST.get(quantity, quantity), outcome, len(touched) if outcome else len(runs)


def _limit(runs: Sequence[RunAudit], quantities: Sequence[str], side: str) -> str:
    """Return the limit of a rule about one of these metrics, as `at least 2 pp` or `at most 50`.

    The text is empty if no rule judged them. An edition may limit a second growth as a further condition of one rule.
    """
    findings = [one for run in runs for one in run.findings]
    limits = [(one.quantity, one.threshold) for one in findings]
    limits += [(further.quantity, further.threshold) for one in findings for further in one.further]
    quantity, limit = next(
        ((name, limit) for name, limit in limits if name in quantities and limit is not None), ("", None)
    )
    if limit is None:
        return ""
    headline = MARGINS.get(quantity) or HEADLINES.get(quantity)
    return f"{side} {compact(limit)} {headline.unit if headline else ''}".rstrip()
