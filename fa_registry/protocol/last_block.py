"""Second control for methods whose last block learns from the exact gradient.

A deep last block may solve the task alone. In this case, a margin over the frozen control does not show that the method's rule
works. Therefore, the margin is computed over the better of two controls. In the frozen control, no block is trained. In the
control ladder_1, bp trains only the last block. Without ladder_1, such a method cannot pass D3, the rule on the margin.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fa_registry.metrics import Headline, headline_of
from fa_registry.protocol.evidence_rules import control_doubt
from fa_registry.protocol.verdict import is_intact
from fa_registry.records import Finding, Reading, RunRecord

if TYPE_CHECKING:
    from fa_registry.protocol.paired_runs import RunWithControl, SeedGroup

CONTROL = "ladder_1"
TEXT = "of the control that trains only its last block (ladder_1)"
SHOWN = 10  # number of seeds that a sentence lists
STATE = "LAST BLOCK"  # state of a finding that would pass if the control existed
EXACT = 0.99  # cosine of c_L with g_L above which the credit counts as exact; the card does not matter

Controls = Mapping[tuple[str, int], RunRecord]


def last_block_controls(records: Iterable[RunRecord]) -> Controls:
    """Return a mapping (setting identity, seed) → ladder_1 control.

    A ladder_1 control trains only the last block. A control is used only if it is proven and was trained with bp without a
    penalty. If there are several such controls, the control with the best main metric is used.
    """

    def score(record: RunRecord) -> float:
        headline = headline_of(record.measurements)
        reading = record.measurements.scalars.get(headline.name)
        return -math.inf if reading is None or reading.value is None else headline.sign * reading.value

    controls: dict[tuple[str, int], RunRecord] = {}
    for record in records:
        spec, key = record.spec, (record.spec.setting.identity, record.spec.seed)
        is_last_block_control = (spec.control, spec.method) == (CONTROL, "bp") and spec == spec.unpenalised
        if (
            is_last_block_control
            and is_intact(record)
            and not control_doubt(record, trusts_logged=record.integrity.state == "trusted")
        ):
            controls[key] = max(record, controls.get(key, record), key=score)
    return controls


def is_exact_on_top(record: RunRecord) -> bool:
    """Return whether the credit equals the gradient at site L, but not at every site."""
    row = record.measurements.sites.get("gamma_batch", ())
    cosines = [reading.value for reading in row if reading.value is not None]
    if record.spec.method == "bp" or not row or row[-1].value is None or row[-1].value <= EXACT:
        return False
    return len(cosines) == 1 or min(cosines) <= EXACT  # a cosine at only one site does not show backpropagation


def better(frozen: Reading, case: RunWithControl, metric: str) -> Reading | None:
    """Return the ladder_1 control's reading of `metric` if it replaces the frozen control, or None.

    The ladder_1 control replaces the frozen control under two conditions. First, the credit of the run at site L equals the
    gradient. Second, the ladder_1 control has a better `metric` than the frozen control, whose reading is `frozen`.
    """
    if case.last_block is None or not is_exact_on_top(case.record):
        return None
    last_block_reading = case.last_block.measurements.scalars.get(metric, Reading(None, "not measured"))
    headline = headline_of(case.record.measurements)
    if metric != headline.name or None in (last_block_reading.value, frozen.value):
        return None
    return last_block_reading if headline.exceeds(last_block_reading.value, frozen.value) else None


def without_control(finding: Finding, case: RunWithControl, group: SeedGroup) -> Finding:
    """Turn a pass into a warning if a run with an exact credit at site L lacks its ladder_1 control."""
    if finding.outcome != "pass" or not (finding.reference_run_id or finding.interval):
        return finding
    judged_cases = group.counted.values() if finding.interval else (case,)
    seeds_without_control = [
        judged_case.record.spec.seed
        for judged_case in judged_cases
        if judged_case.last_block is None and is_exact_on_top(judged_case.record)
    ]
    if not seeds_without_control:
        return finding
    seeds = ", ".join(str(seed) for seed in sorted(set(seeds_without_control))[:SHOWN])
    reason = (
        f"{STATE}: the credit at the last block is the gradient, so the margin may result from training the last block alone; "
        f"seed {seeds} needs the control {CONTROL} trained with bp (fa-registry train --method bp --control {CONTROL})"
    )
    return dataclasses.replace(finding, outcome="warn", state=STATE, sentence=f"{finding.sentence}; {reason}")


def remarks(seeds: Sequence[int], headline: Headline) -> Iterator[str]:
    """Yield a remark that lists the seeds whose margin is computed over the ladder_1 control."""
    if seeds:
        relation = "exceeds" if headline.sign > 0 else "is below"
        seed_text = ", ".join(map(str, sorted(set(seeds))[:SHOWN]))
        yield (
            f"the margin of seed {seed_text} is computed over the {headline.symbol} {TEXT}, which {relation} that of "
            "the frozen control"
        )
