"""`make stress` calls modules by their names."""

from __future__ import annotations

from importlib.util import find_spec

from tests.stress.__main__ import KINDS, SEEDED


def test_every_kind_of_make_stress_is_a_module():
    assert {kind for kind in KINDS if find_spec(f"tests.stress.{kind}") is None} == set()
    assert set(SEEDED) <= set(KINDS)
