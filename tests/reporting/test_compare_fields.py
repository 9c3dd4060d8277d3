"""Of the specifications only what differs, and which of it makes runs not comparable."""

from __future__ import annotations

import dataclasses

from fa_registry.protocol.grouping import groups
from fa_registry.records import Recipe
from fa_registry.reporting.pages.comparison import differing_fields, of_setting


def test_nested_fields_by_dotted_name_and_a_dash_where_there_is_none(judged, record):
    first = record("dfa", 1, 0.5, 3.0, 0.1, 0.1)
    changes = {"recipe": Recipe(learning_rate=0.5), "method_options": {"K": 2}, "seed": 7, "penalty": 0.01}
    other = dataclasses.replace(first, run_id="e" * 32, spec=dataclasses.replace(first.spec, **changes))
    fields = {field.field: field for field in differing_fields(groups(judged([first, other])))}
    assert {name: field.values for name, field in fields.items()} == {
        "seed": ("1", "7"),
        "method_options.K": ("—", "2"),
        "recipe.learning_rate": ("0.001", "0.5"),
        "penalty": ("0.0", "0.01"),
    }
    assert [name for name, field in fields.items() if of_setting(field)] == ["recipe.learning_rate"]


def test_the_same_specification_differs_in_nothing(report):
    assert differing_fields([groups(report)[0], groups(report)[0]]) == ()
