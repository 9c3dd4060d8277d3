"""Every method of the catalog has the contract's properties and its own, on every architecture that its card supports."""

from __future__ import annotations

import pytest

from fa_registry import methods
from fa_registry.testing import check_method
from fa_registry.testing.declared import DECLARED
from fa_registry.testing.suite import UNIVERSAL


@pytest.mark.parametrize("name", methods.CATALOG.names())
def test_every_method_of_the_catalog_has_all_its_properties(name):
    results = check_method(name)
    assert [result.property for result in results] == [*(check.__name__ for check in UNIVERSAL), *DECLARED]
    assert not [result for result in results if result.outcome == "fail"]
    declared = methods.CATALOG.get(name).card.properties
    assert declared
    assert all(result.outcome == "pass" for result in results if result.property in declared)
