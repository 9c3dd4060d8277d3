"""C15: seeds added after an audit until the margin clears. Every further set of seeds is judged at a higher level, and reported."""

from __future__ import annotations

import pytest

from tests.security.conftest import judged


def depth(report, method="dfa"):
    """D3 of the method's first seed."""
    return next(one for one in judged(report, method=method, control="none")[0].findings if one.rule == "D3")


@pytest.mark.long  # five audits
def test_the_same_seeds_again_are_no_further_look_and_others_are(audit):
    first, again = (depth(audit("--seeds", "1,2", published=True)[1]) for _ in range(2))
    assert first == again and (first.seeds, first.look, first.confidence) == (2, 1, 0.95)
    added = depth(audit(published=True)[1])
    assert (added.seeds, added.look, added.confidence) == (3, 2, 0.975)
    left_out = depth(audit("--seeds", "2,3", published=True)[1])
    assert (left_out.seeds, left_out.look) == (2, 3)
    assert depth(audit("--seeds", "1,2")[1]).look == 1  # what was reported about this set stays as it was


def test_an_honest_study_of_seeds_fixed_in_advance_is_judged_at_95_per_cent(audit):
    _, report = audit("--trust-logged")
    for method in ("bp", "fa", "dfa"):
        finding = depth(report, method)
        assert (finding.seeds, finding.look, finding.confidence) == (3, 1, 0.95)
