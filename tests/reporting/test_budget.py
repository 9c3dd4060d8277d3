"""What a value costs is known before it is looked through, and what is too large is refused there."""

from __future__ import annotations

import pytest
from jinja2.sandbox import SecurityError

from fa_registry.reporting.text import sandbox
from fa_registry.reporting.text.sandbox import Budget, checked, few_digits, joined, scalar, weight


def unfolding(times: int) -> list:
    made = [1]
    for _ in range(times):
        made = [made, made]
    return made


@pytest.mark.parametrize(
    ("value", "entries"),
    [(None, 0), (3, 0), ("x" * 500, 10), ([1, 2], 2), ({"a": [1, 2]}, 3), (unfolding(3), 22), ({1: 2}.items(), 3)],
)
def test_every_entry_counts_as_often_as_it_is_met(value, entries):
    assert weight(value) == entries


def test_a_list_is_looked_through_no_further_than_what_is_allowed(monkeypatch):
    monkeypatch.setattr(sandbox, "LONGEST", 100)
    with pytest.raises(SecurityError, match="expected values of at most 100 characters or entries, found 126"):
        weight(unfolding(10**4 // 2))


def test_what_is_spent_is_spent_and_a_new_page_has_it_again():
    purse = Budget(steps=10, written=10)
    assert purse.weighed([1] * 10) == [1] * 10
    with pytest.raises(SecurityError, match="at most 10 steps a page"):
        purse.spend(1)
    purse.reset()
    purse.spend(10)


@pytest.mark.parametrize("named", [{}, {"digits": 10_001}])
def test_a_filter_is_not_asked_for_a_billion_digits(named):
    with pytest.raises(SecurityError, match="at most 10,000 digits"):
        few_digits(lambda value, digits=3: "")(1.5, *([] if named else [10_001]), **named)
    assert few_digits(lambda value, digits: digits)(10**9, 50) == 50


@pytest.mark.parametrize("value", [[1], (1,), {}, object()])
def test_only_text_and_numbers_are_written(value):
    assert scalar("x") == "x"
    for write in (scalar, joined):
        with pytest.raises(SecurityError, match=f"expected text or a number, found {type(value).__name__}"):
            write(value)


@pytest.mark.parametrize("operands", [("*", 10**6, [1, 2]), ("+", "x" * 600_000, "x" * 600_000), ("**", 2, 10**5)])
def test_an_operation_is_refused_before_it_is_done(operands):
    with pytest.raises(SecurityError, match="expected (values|whole numbers) of at most"):
        checked(*operands)
