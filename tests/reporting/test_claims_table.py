"""Every sentence of every claim: a record that earns it, and the smallest change of the record that must take it away.

The table has all keys of `KEYS`. Each text of the modules of claims is in a claim of a row, not in its spoiled claim.
golden_forms/claims.md has the texts.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import get_args

import pytest

from fa_registry.records import UndecidedCause
from fa_registry.reporting import claims as claims_module
from fa_registry.reporting import claims_depth, claims_gamma, claims_reference
from fa_registry.reporting.claims import claims
from fa_registry.reporting.claims_reference import KEYS
from tests.reporting.claim_rows import (
    rows_of_adopted_runs,
    rows_of_evidence,
    rows_of_gamma,
    rows_of_passing,
    rows_of_reference,
    rows_of_stated_controls,
    rows_of_states,
    rows_of_suspicions,
    rows_of_verdicts,
)
from tests.reporting.claims_of_tokens import rows_of_tokens
from tests.reporting.judged_runs import (
    rows_of_beating_frozen_blocks,
    rows_of_small_gamma,
    rows_of_undecided,
    rows_of_undercut,
    rows_within_the_limit,
)

MODULES = (claims_module, claims_depth, claims_gamma, claims_reference)
LEAST = 8  # characters of a piece of text that is looked for; shorter ones are joints such as `; ` and ` over `


ROWS = [
    *rows_of_evidence(),
    *rows_of_stated_controls(),
    *rows_of_adopted_runs(),
    *rows_of_suspicions(),
    *rows_of_tokens(),
    *rows_of_beating_frozen_blocks(),
    *rows_within_the_limit(),
    *rows_of_undercut(),
    *rows_of_undecided(),
    *rows_of_passing(),
    *rows_of_verdicts(),
    *rows_of_gamma(),
    *rows_of_small_gamma(),
    *rows_of_reference(),
    *rows_of_states(),
]


def golden_text() -> str:
    """Of every key its texts, numbered; and of every row the text that is earned, and the one of the spoiled runs in its place."""
    parts = ["# Texts of claims\n"]
    for key in KEYS:
        places: dict[str, int] = {}
        changes = []
        for row in (row for row in ROWS if row.key == key):
            sides = (row.texts(row.earned()), row.texts(claims(row.spoiled)))
            earned, left = (
                " and ".join(str(places.setdefault(one, len(places) + 1)) for one in side) for side in sides
            )
            changes.append(f"{earned} → {left or 'none'}")
        parts += [
            f"## {key}\n",
            *(f"{place}. {text}" for text, place in places.items()),
            f"\nEarned → spoiled: {', '.join(changes)}\n",
        ]
    return "\n".join(parts)


def test_a_sentence_is_stated_where_it_is_earned_and_another_or_gone_where_one_thing_is_changed():
    for row in ROWS:
        earned, left = row.texts(row.earned()), row.texts(claims(row.spoiled))
        assert earned and not set(earned) & set(left), row.key


def test_the_table_holds_every_claim_there_is():
    assert {row.key for row in ROWS} == set(KEYS)


def test_a_claims_kind_is_that_of_its_key():
    for one in ROWS:
        for claim in one.earned():
            assert KEYS[claim.key] == (claim.kind, claim.topic)


def pieces(module: ModuleType) -> Iterator[tuple[str, int]]:
    """(text, line) of what a module's sentences are made of: its strings that hold words, docstrings and lookups apart."""
    tree = ast.parse(inspect.getsource(module))
    apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reading":
            apart |= {id(part) for part in ast.walk(node)}  # why a figure is missing: no part of a claim's own words
        if isinstance(node, ast.keyword):
            apart.add(id(node.value))
    for node in ast.walk(tree):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
        if text and " " in node.value.strip() and len(node.value.strip()) >= LEAST and node.value not in NAMES:
            yield from ((piece, node.lineno) for piece in re.split(r"\{\w+\}", node.value) if " " in piece.strip())


NAMES = {
    *KEYS,
    *get_args(UndecidedCause),
    "NOT SPECIFIC",
    "AT FLOOR",
    "TOO SMALL",
}  # of claims, and of states: compared, not said


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_piece_of_every_sentence_is_earned_by_a_row_and_gone_from_it_when_spoiled(module):
    texts = [("\n".join(row.texts(row.earned())), "\n".join(row.texts(claims(row.spoiled)))) for row in ROWS]
    loose = [
        f"line {line}: {text!r}"
        for text, line in pieces(module)
        if not any(text in earned and text not in left for earned, left in texts)
    ]
    assert not loose
