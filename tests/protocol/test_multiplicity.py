"""Several methods of one setting are decided together."""

from __future__ import annotations

import numpy as np
import pytest

from fa_registry.protocol.engine import judge_all
from fa_registry.protocol.multiplicity import p_value
from fa_registry.protocol.rules import load_edition
from fa_registry.statistics import holm
from tests.builders import answered, frozen, measurements, over_seeds, record

EDITION = load_edition("2026-12")
SEEDS = (1, 2, 3)
CLEAR, UNDER, AT_LIMIT = (0.9, 0.901, 0.899), (0.3, 0.31, 0.3), (0.52, 0.521, 0.519)


def depth(edition=EDITION, **methods):
    """D3 by method: name → accuracies of three seeds, with frozen controls of .5."""
    runs = [
        answered(record(f"{method}{seed}", measurements(accuracy=value), method=method, seed=seed))
        for method, values in methods.items()
        for seed, value in zip(SEEDS, values, strict=True)
    ]
    runs += [answered(frozen(f"f{seed}", seed=seed)) for seed in SEEDS]
    audits = judge_all(runs, edition)
    return {run.record.spec.method: run.findings[2] for run in audits if run.record.spec.control == "none"}


def near(threshold):
    """Accuracies whose interval ends just beyond the limit: p between .0125 and .05."""
    for mean in np.arange(0.52, 0.60, 0.0005):
        values = tuple(round(mean + shift, 4) for shift in (-0.004, 0.0, 0.004))
        finding = depth(dfa=values)["dfa"]
        if finding.state == "CLEARS":
            return values
    raise AssertionError("no such accuracies")


def test_a_method_that_clears_alone_is_undecided_among_methods_at_the_limit():
    values = near(2.0)
    assert depth(dfa=values)["dfa"].state == "CLEARS"
    found = depth(dfa=values, fa=AT_LIMIT, ep=AT_LIMIT, bp=CLEAR)
    assert (found["dfa"].state, found["dfa"].undecided) == ("UNDECIDED", ("several methods",))
    assert (found["bp"].state, found["fa"].undecided) == ("CLEARS", ("margin at the limit",))


def test_methods_that_are_decided_for_certain_do_not_hinder_another():
    """Holm's last step has the whole level: three methods far from the limit leave it to the fourth."""
    found = depth(dfa=near(2.0), fa=UNDER, ep=UNDER, bp=CLEAR)
    assert {method: one.state for method, one in found.items()} == {
        "dfa": "CLEARS",
        "fa": "UNDERCUT",
        "ep": "UNDERCUT",
        "bp": "CLEARS",
    }


def test_methods_of_another_setting_are_another_family():
    values = near(2.0)
    runs = over_seeds(dict(zip(SEEDS, values, strict=True)), dict.fromkeys(SEEDS, 0.5))
    others = [
        answered(record(f"{method}{seed}", measurements(accuracy=value), method=method, seed=seed, epochs=9))
        for method in ("fa", "ep")
        for seed, value in zip(SEEDS, AT_LIMIT, strict=True)
    ]
    others += [answered(frozen(f"g{seed}", seed=seed, epochs=9)) for seed in SEEDS]
    assert judge_all([*runs, *others], EDITION)[0].findings[2].state == "CLEARS"


def test_the_p_value_is_that_of_the_interval():
    """At each end of the 95 % interval, p is 5 %; in its middle, 1."""
    found = depth(dfa=CLEAR)["dfa"]
    low, high = found.interval
    assert [p_value(_Margins(found), end) for end in (low, high)] == pytest.approx([0.05, 0.05], rel=1e-6)
    assert p_value(_Margins(found), (low + high) / 2) == pytest.approx(1)


class _Margins:
    """The fields of a finding that the p-value reads."""

    def __init__(self, finding):
        self.interval, self.mean, self.df = finding.interval, finding.observed.value, finding.df
        self.seeds, self.confidence = range(finding.seeds), finding.confidence


@pytest.mark.parametrize("threshold", [-30.0, -19.0, 0.0, 2.0, 4.5, 6.0, 39.0, 60.0])
def test_the_decided_methods_are_those_of_holms_adjusted_p_values(threshold):
    """Holm 1979: reject while the adjusted p-value, a running maximum of (m − i + 1)·p_i, is at most 5 %."""
    edition = load_edition("2026-12", {"D3": threshold})
    found = depth(edition=edition, dfa=near(2.0), fa=AT_LIMIT, ep=UNDER, bp=CLEAR, drtp=(0.56, 0.6, 0.58))
    p = holm(p_value(_Margins(one), threshold) for one in found.values())
    decided = {method for method, value in zip(found, p, strict=True) if value <= 0.05}
    assert {method for method, one in found.items() if one.state != "UNDECIDED"} == decided


@pytest.mark.long
def test_some_of_four_methods_at_the_limit_clears_in_few_studies():
    """Each alone errs on its upper side in 2.5 % of studies; four together in 9.6 %, by Holm's procedure in 2.5 %."""
    draw, alone, together = np.random.default_rng(7), 0, 0
    studies = 1500
    for _ in range(studies):
        t = draw.standard_t(4, size=4)
        p = [2 * min(_tail(value), 1 - _tail(value)) for value in t]
        alone += any(value > 0 and one <= 0.05 for value, one in zip(t, p, strict=True))
        together += any(value > 0 and one <= 0.05 for value, one in zip(t, holm(p), strict=True))
    assert alone / studies > 0.07 and together / studies < 0.04


def _tail(t):
    from scipy import stats

    return float(stats.t.sf(t, 4))
