"""Conformance suite: tests that check the credit contract for any Method object.

    from fa_registry.testing import assert_method
    assert_method(MyMethod())          # in your tests
    python -m fa_registry.testing dfa  # prints a table

The credit is the vector that a method uses in place of the gradient. Some properties detect a credit with a wrong sign. Training
cannot detect a wrong sign, because a random feedback matrix B and −B have the same distribution. A method with the wrong sign
therefore trains equally well, but violates its equation. The property `exact_sites_are_exact` tests the sites that the card
declares exact. For lower sites, `block_jacobian_gives_bp` and `output_jacobian_gives_bp` use a linear network. For a linear
network, theory gives the feedback state with which the rule equals backpropagation, so sign, order and transposition are tested.
"""

from fa_registry.deprecated_names import aliases
from fa_registry.testing.outcomes import PropertyResult
from fa_registry.testing.small_networks import NetworkCase
from fa_registry.testing.suite import assert_method, check_method

__all__ = ["NetworkCase", "PropertyResult", "assert_method", "check_method"]


__getattr__ = aliases(__name__)
