"""Conformance: measures every property that the credit contract requires, for any Method object.

    from fa_registry.testing import assert_method
    assert_method(MyMethod())          # in your test suite
    python -m fa_registry.testing dfa  # the same as a table

A wrong sign needs a separate property. A random feedback matrix B and its negative −B have the same distribution, so a method
that flips the sign of its credit trains equally well and its runs look normal; but it no longer satisfies its equation. Two
properties detect this. `exact_sites_are_exact` covers sites that the card calls exact. For the sites below,
`block_jacobian_gives_bp` / `output_jacobian_gives_bp` use a linear network, for which the theory gives the one feedback state
that makes the rule equal to backpropagation, including sign, order and transposition.
"""

from fa_registry.deprecated_names import aliases
from fa_registry.testing.outcomes import PropertyResult
from fa_registry.testing.small_networks import NetworkCase
from fa_registry.testing.suite import assert_method, check_method

__all__ = ["NetworkCase", "PropertyResult", "assert_method", "check_method"]


__getattr__ = aliases(__name__)
