"""python -m benchmarks.differences [--record]: where we differ from the published code, why, and what it does: docs/differences.md.

--record trains and looks (benchmarks.departures, some minutes) and keeps the figures in docs/measured/; without it the tables
between the page's markers are only written again, from there and from the methods' cards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.departures import EPOCHS, MAP_EPOCHS, SEED, measured
from benchmarks.recording import FOLDER, ROOT, stamp, where
from benchmarks.tables import inserted, line
from fa_registry import methods

MEASURED = FOLDER / "differences.json"
PAGE = ROOT / "docs" / "differences.md"
BEGIN = "<!-- measured: python -m benchmarks.differences --record -->"
PUBLISHED = ("bp", "fa", "dfa", "state_bridge", "credit_bridge", "ep")  # the paper's six


@dataclass(frozen=True)
class Difference:
    """published, here: what either does. why: ours. effect: in words, with the figures of benchmarks.departures' `figures`.

    Without `figures` the effect is N/A, and says why.
    """

    point: str
    published: str
    here: str
    why: str
    effect: str
    figures: str = ""


TRAINING = (
    Difference(
        "running statistics of BatchNorm",
        "the second pass of a block in training mode moves them once more",
        "they move once a step",
        "one pass",
        "small_resnet, dfa: parameters differ by {parameters:.3g}, eval-mode logits by {logits:.3g} of their length, test accuracy "
        "{accuracy_twice:.3f} instead of {accuracy_once:.3f}",
        "statistics_moved_twice",
    ),
    Difference(
        "convolutional branch on a transformer",
        "a credit row becomes (N, D, 1, 1) and is expanded to the state, tokens too",
        "spread as c/P over all positions of a state",
        "(N, D, 1, 1) fits maps alone ([0024](decisions/0024-positions.md))",
        "vit_mini: expanding it ends in a {error}, so no run of a ViT comes from that branch",
        "expanded_to_tokens",
    ),
    Difference(
        "seeds",
        "one global generator, seeded once",
        "a generator for every purpose (weights, feedback, order, augmentation, …), all from the run's seed by name",
        "methods of one seed share weights and order, so that differences are paired",
        "N/A: other draws from the same distributions, which the tests of the architectures and methods hold",
    ),
    Difference(
        "augmentation",
        "per image, in the data loader",
        "per batch, as tensor code on the training device",
        "no Python in the loop",
        "N/A: other draws from the same distribution",
    ),
)
MEASURING = (
    Difference(
        "site at which Γ is reported",
        "credit of block l compared with g of the block's input, l − 1",
        "at the block's output, where the credit acts; the published reading is `gamma_block_input`",
        "one site too early fa's last block looks nearly perfect ([0011](decisions/0011-site-convention.md))",
        "fa: last block {last_input:.3f} at its input, at its output {last_output:.3f} by construction and so out of every mean; "
        "mean {mean_input:.3f} at the input, {mean_output:.3f} at the output",
        "site_of_gamma",
    ),
    Difference(
        "eps of the cosine",
        "torch's function, which clamps norms at 1e-8",
        "no clamp; N/A where a norm is 0",
        "gradients of the mean loss come that small ([lint FA002](lint.md))",
        "g_L with itself, where 1 is correct: {clamped:.3f} at ‖g_L‖ = {median:.2g} (bp at width 256 fitted to centred digits), "
        "{clamped_there:.3f} when it is as short as the paper's dfa has it, {published:.2g}",
        "clamped_cosine",
    ),
    Difference(
        "precision of Γ",
        "float32",
        "products and norms in float64, of float32 gradients; fidelity compares with a float64 pass",
        "what cancels or underflows must not look like misalignment",
        "dfa: a sample's cosine moves by {largest:.2g} at most",
        "precision_of_gamma",
    ),
    Difference(
        "samples without a gradient",
        "enter the mean as 0",
        "leave it; `gamma_samples` says how many remain",
        "a cosine with zero does not exist ([0003](decisions/0003-gamma-over-samples.md))",
        "the same bp: {zero} of {samples} samples of the eval batch",
        "clamped_cosine",
    ),
    Difference(
        "reduction of the gradient",
        "of the mean loss over the batch at hand, N = 128 here and 1024 there",
        "of the sum, so a row is a sample's own; its norm divided by 128 is shown, the published number for any batch",
        "no figure may depend on the size of the batch",
        "‖g_L‖ of the same samples in a batch of {small} instead of {large}: × {by_mean:.3g} published, × {by_sum:.3g} here",
        "reduction",
    ),
    Difference(
        "median of an even number",
        "torch's, the lower of the two middle values",
        "their midpoint in runs; the lower one in `FAProtocol` and `diagnose`",
        "the usual definition",
        "fa, ‖g_L‖ over {samples} samples: × {ratio:.5g}",
        "medians",
    ),
    Difference(
        "one vector of a map",
        "states and gradients pooled alike, the head behind the pool",
        "states averaged over positions, gradients summed",
        "the pooled state moves by δ when every position does ([0004](decisions/0004-vectors-of-maps.md))",
        "small_resnet on digits: averaged gradients are {positions:.4g} times smaller; Γ is the same",
        "one_vector_of_a_map",
    ),
    Difference(
        "skip of a third-party block",
        'a heuristic that always answers "no skip inside", for ViT and ResNet too',
        "seen in what flows, or declared by the user and checked against it",
        "where it guesses wrong, everything is measured on another network",
        "vit_mini at initialisation, the skip added twice: ‖h_L‖/‖h_0‖ {growth_wrong:.3g} instead of {growth:.3g}, cosine of g_0 "
        "with the true one {cosine:.3f}",
        "skip_added_twice",
    ),
    Difference(
        "skips of a resmlp in `compute_diagnostics`",
        "the next state is the block's output alone, h_l = f_l(h_{l−1}), although a block of a resmlp returns its branch; "
        "‖h_l‖ is that of the real forward pass, ‖g_l‖ and Γ are those of the walk without skips",
        "h_l = h_{l−1} + f_l(h_{l−1}), as the network computes it, for every metric",
        "a metric of another network says nothing about the trained one; the published `FAProtocol` and penalty sweep add the skip",
        "fa: ‖g_0‖ without skips × {norms:.3g}, cosine of g_0 with the true one {cosine:.3f}; Γ at the blocks' inputs {wrong:.3f} "
        "instead of {right:.3f}",
        "without_skips",
    ),
    Difference(
        "test accuracy",
        "`FAProtocol`: of the evaluation batch, where none is handed over",
        "of the whole test set",
        "few samples are few",
        "fa: {batch:.3f} of the first {few} samples, {whole:.3f} of all {all}",
        "whole_test_set",
    ),
    Difference(
        "Γ of bp, and missing feedback",
        "bp has 1.0 at every block without a measurement; without the feedback the list of cosines is empty, and an earlier script "
        "compared the gradient with itself, 1.0",
        "N/A, with the reason",
        "pitfall 7",
        "N/A: a number that is not there has no distance from one that is",
    ),
)
JUDGING = (
    Difference(
        "D2, a small reference",
        "‖g_L‖ of the mean loss below 1e-7",
        "the same norm and floor, and only with a small gain; small with a healthy gain is CONVERGED",
        "a fitted network's gradient is small too ([calibration.md](calibration.md))",
        "D2 fires by 2026-05 and not by 2026-11 in {reference} of {groups} calibration groups",
        "rules",
    ),
    Difference(
        "FAIL",
        "the code prints FAIL for any flag, the text asks for (D1 and D2) or D3",
        "2026-05 is the text, so D1 or D2 alone is WARN; `2026-05:strict` is the code: `FAProtocol(…, strict=True)` and "
        "`audit --strict` judge by it, `adopt`, which judges nothing, names that audit with `--strict`. 2026-11 adds undecided, "
        "a warning",
        "what neither clears nor fires is no failure ([0012](decisions/0012-neither-clear-nor-firing.md))",
        "of {groups} calibration groups the code would print FAIL for {warned} that 2026-05 warns of; 2026-11 calls {undecided} "
        "undecided that 2026-05 decides, and differs in {differ}",
        "rules",
    ),
    Difference(
        "frozen accuracy",
        "one number, typed in",
        "the setting's own frozen runs, paired by seed, with an interval",
        "a control of another setting is no control",
        "N/A: no published accuracy of the frozen control was measured here to compare with",
    ),
)
SECTIONS = {"Training": TRAINING, "Measuring": MEASURING, "Judging": JUDGING}
HEAD = ("point", "published", "here", "why", "effect")


def render(kept: Mapping[str, Any]) -> str:
    """The page's block: a table a section, then what the cards of the paper's methods say."""
    setting = f"resmlp-64x4 and small networks on digits, seed {SEED}, {EPOCHS} epochs ({MAP_EPOCHS} of small_resnet)"
    lines = [f"{where(kept, 'benchmarks.differences')}; {setting}."]
    for title, rows in SECTIONS.items():
        lines += ["", f"### {title}", "", line(HEAD), "|" + "---|" * len(HEAD)]
        lines += [line([row.point, row.published, row.here, row.why, effect(row, kept)]) for row in rows]
    lines += ["", "### On the cards of the paper's methods", "", line(("method", "ε is added to", "deviations"))]
    lines += ["|---|---|---|", *map(_card, PUBLISHED)]
    return "\n".join(lines)


def effect(row: Difference, kept: Mapping[str, Any]) -> str:
    return row.effect.format_map(kept["figures"][row.figures]) if row.figures else row.effect


def _card(name: str) -> str:
    card = methods.CATALOG.get(name).card
    scale = f"{card.credit_scale}: {card.credit_scale_source}"
    return line([f"`{name}`", scale, "<br>".join(card.deviations) or "none"])


def main(arguments: list[str]) -> None:
    if "--record" in arguments:
        kept = {**stamp(), "figures": measured()}
        MEASURED.write_text(json.dumps(kept, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    block = render(json.loads(MEASURED.read_text(encoding="utf-8")))
    PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), BEGIN, block), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
