"""Conformance suite: tests that check the credit contract for any Method object.

    from fa_registry.conformance import assert_method
    assert_method(MyMethod())          # in your tests
    python -m fa_registry.conformance dfa  # prints a table

The credit is the vector that a method uses in place of the gradient. A method whose credit has the wrong sign violates its
equation. Training cannot show this, because a random feedback matrix B and −B have the same distribution and train equally well.
Therefore some properties test the sign. The property `exact_sites_are_exact` tests the sites that the card declares exact. For
lower sites, `block_jacobian_gives_bp` and `output_jacobian_gives_bp` use a linear network. For a linear network, theory gives the
feedback with which the rule equals backpropagation. These two properties therefore test sign, order and transposition.
"""

from fa_registry.conformance.outcomes import PropertyResult
from fa_registry.conformance.small_networks import NetworkCase
from fa_registry.conformance.suite import assert_method, check_method

__all__ = ["NetworkCase", "PropertyResult", "assert_method", "check_method"]
