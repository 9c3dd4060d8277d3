"""What a study's own run says before anything was judged."""

from __future__ import annotations

from fa_registry.studies.study import Study
from fa_registry.workflows.study import study_note
from tests.helpers.small import tiny_spec


def test_the_note_says_what_the_study_asks_and_of_which_runs():
    specs = (tiny_spec(), tiny_spec(seed=7), tiny_spec(method="bp"))
    assert study_note(Study("s", "Does it learn?", "2026-05", "a second", specs)).split("\n\n") == [
        "**Does it learn?**",
        "3 runs, 1 setting, 2 seeds (3, 7); edition 2026-05",
        "Methods and controls: dfa, bp",
        "Cost: a second",
    ]


def test_a_title_is_no_markup_and_a_study_without_cost_says_none():
    note = study_note(Study("s", "<script>alert(1)</script> [x](y)", "2026-05", "", (tiny_spec(),)))
    assert "<script>" not in note and "[x](y)" not in note and "Cost" not in note
    assert "1 run, 1 setting, 1 seed (3)" in note
