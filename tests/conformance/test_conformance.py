"""Every method of the catalog has the contract's properties and its own, on every architecture that its card supports."""

from __future__ import annotations

import pytest

from fa_registry import methods
from fa_registry.conformance import check_method
from fa_registry.conformance.declared_checks import DECLARED
from fa_registry.conformance.small_networks import supported_by
from fa_registry.conformance.suite import PREDICTION, SIGN, UNIVERSAL
from fa_registry.methods.base import HasOwnPrediction

pytestmark = pytest.mark.long

QUICK = {"resmlp"}  # the others' two minutes are the long tests'


def supported(name: str) -> dict[bool, list[str]]:
    """The architectures that a method's card supports: those of the suite (True), and the rest."""
    known = [architecture.card.name for architecture in supported_by(methods.CATALOG.get(name), None)]
    quick = [name for name in known if name in QUICK] or known
    return {True: quick, False: [name for name in known if name not in quick]}


def assert_conforms(name: str, architectures: list[str]) -> None:
    results = check_method(name, architectures)
    predicts = isinstance(methods.CATALOG.get(name), HasOwnPrediction)
    universal = (*UNIVERSAL, *([PREDICTION] if predicts else []))
    assert [result.property for result in results] == [*(check.__name__ for check in universal), *DECLARED, SIGN]
    assert not [result for result in results if result.outcome == "fail"]
    declared = methods.CATALOG.get(name).card.properties
    assert declared
    assert all(result.outcome == "pass" for result in results if result.property in declared)


# The credits of ep and predictive_coding take tens of passes, and test_suite.py has a fake of ep. Of the others `make test` has
# one of the kind: state_bridge of the bridges, usf of the signs of weights, kolen_pollack of the feedback that learns the weights.
SLOW = ("ep", "predictive_coding", "credit_bridge", "brsf", "frsf", "weight_mirror")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in SLOW)) for name in methods.CATALOG.names()]
)
def test_every_method_of_the_catalog_has_all_its_properties(name):
    assert_conforms(name, supported(name)[True])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in methods.CATALOG.names() if supported(name)[False]])
def test_it_has_them_on_every_other_architecture_too(name):
    assert_conforms(name, supported(name)[False])
