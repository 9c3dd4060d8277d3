"""Conformance: every property that the credit contract asks of a training method, measured for any Method object.

    from fa_registry.testing import assert_method
    assert_method(MyMethod())          # in one's own test suite
    python -m fa_registry.testing dfa  # the same as a table

Why a wrong sign needs a property of its own: a random feedback matrix B and its negative −B have the same distribution, so a
method that flips the sign of its credit trains exactly as well and nothing about its runs looks odd. What it no longer obeys is
its own equation. Two properties see that: `exact_sites_are_exact` wherever the card calls a site exact, and, for the sites
below, `block_jacobian_gives_bp` / `output_jacobian_gives_bp`: on a linear network the theory names the one feedback state for
which the rule *is* backpropagation, sign, order and transposition included.
"""

from fa_registry.testing.outcomes import PropertyResult
from fa_registry.testing.small_networks import NetworkCase
from fa_registry.testing.suite import assert_method, check_method

__all__ = ["NetworkCase", "PropertyResult", "assert_method", "check_method"]
