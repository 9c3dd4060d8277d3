"""What the size of the test set leaves open: an accuracy of 360 images is known to ± 2 or 3 pp, however many seeds agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fa_registry.quantities import over_seeds
from fa_registry.records import Finding, RunAudit
from fa_registry.reporting.filters import ci, pct
from fa_registry.reporting.readings import scalar
from fa_registry.statistics import wilson_interval

TEST_SAMPLES = "test_samples"  # the convention under which a run wrote down the size of its test set


@dataclass(frozen=True)
class Sampling:
    """The mean accuracy over seeds and its two intervals, as fractions, 95 % each.

    over_seeds: Student's t; none for one seed. over_samples: Wilson's, of the mean accuracy on `samples` test samples. Seeds
    share the test set, so that more of them narrow the first and not the second.
    """

    accuracy: float
    seeds: int
    over_seeds: tuple[float, float] | None
    samples: int
    over_samples: tuple[float, float]

    @property
    def half(self) -> float:
        """Half the width of the interval over samples, in percentage points."""
        return 50 * (self.over_samples[1] - self.over_samples[0])


def sampling(runs: Sequence[RunAudit]) -> Sampling | None:
    """None where a run's accuracy or the size of its test set is not known, or test sets differ."""
    found = over_seeds(((run.record.spec.seed, scalar(run.record, "accuracy")) for run in runs), "accuracy")
    sizes = {run.record.measurements.conventions.get(TEST_SAMPLES) for run in runs}
    size = sizes.pop() if len(sizes) == 1 else None
    if found.n < found.of or not found.n or not isinstance(size, int) or size < 1:
        return None
    wilson = wilson_interval(min(1.0, max(0.0, found.mean.value)), size)
    return Sampling(found.mean.value, found.n, found.interval, size, (wilson.low, wilson.high))


def sampled(runs: Sequence[RunAudit]) -> str:
    """`. The accuracy is 93.1 %, …`: with both intervals; empty where they are not known."""
    known = sampling(runs)
    if known is None:
        return ""
    over_seeds = (
        f"95 % interval {ci(known.over_seeds)} over {known.seeds} seeds, and " if known.over_seeds else "at one seed, "
    )
    return (
        f". The accuracy is {pct(known.accuracy)}, {over_seeds}{ci(known.over_samples)} by the sampling of the test set's "
        f"{known.samples:,} samples alone (Wilson)"
    )


def beside_limit(runs: Sequence[RunAudit], finding: Finding) -> str:
    """That the margin lies nearer to its limit than the test set can tell; empty where it lies further, or none is known."""
    known = sampling(runs)
    if known is None or finding.quantity != "margin_pp" or finding.threshold is None or finding.observed.value is None:
        return ""
    distance = abs(finding.observed.value - finding.threshold)
    if distance >= known.half:
        return ""
    return (
        f". The margin lies {distance:.1f} pp from the limit, and the sampling of {known.samples:,} test samples alone leaves "
        f"± {known.half:.1f} pp of the accuracy open (Wilson, 95 %): another test set of this size might fall on the other side"
    )
