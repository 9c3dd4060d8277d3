"""Statistics over seeds: intervals, differences, equivalence tests and ranks.

All standard deviations use ddof = 1. No function returns NaN. If an input permits no result, the function raises a ValueError
that states what was expected, what was found and what to do. If a result is defined but weak (one seed, no spread), the result
contains a remark. Values that would be guesses are None. Tests in tests/statistics simulate the coverage of every interval.
"""

# ruff: noqa: F401 - the imported names are the names of this package

from fa_registry.statistics.crossed_effects import CROSSED, CrossedMean, crossed_mean, with_proportions
from fa_registry.statistics.differences import (
    PAIRED,
    Equivalence,
    PairedDifference,
    StatedDifference,
    paired_difference,
    stated_difference,
    tost,
)
from fa_registry.statistics.intervals import (
    LEAST_SEEDS,
    Interval,
    excludes,
    far_values,
    level_text,
    look_confidence,
    scatter_text,
    seeds_to_plan,
    std_factors,
    t_interval,
    wilson_interval,
    with_resolution,
)
from fa_registry.statistics.samples import CONFIDENCE, Reported, Summary, holm, rank_p_value, reported, summary
