"""skeleton has the properties that its card declares and those of all methods."""

from fa_registry.conformance import check_method


def test_it_is_what_its_card_says():
    results = check_method("skeleton", ["resmlp"])
    assert [result.property for result in results]
    assert not [f"{result.property}: {result.detail}" for result in results if result.outcome == "fail"]
