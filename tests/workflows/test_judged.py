"""Which edition's verdict decides a promotion: one as published, never one with changed thresholds."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.errors import UsageError
from fa_registry.protocol.rules import load_edition
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.workflows import promote

RUN = StoredRun("a" * 32, "dfa 1", "fa_registry", "FINISHED", 0, {schema.TAG_STUDY: "tiny"})
OLD, NEW = (load_edition(name).reference for name in ("2026-05", "2026-11"))
MODIFIED = dataclasses.replace(NEW, overrides={"D1.threshold": 100.0})


def test_the_leading_edition_decides_or_the_one_that_was_asked_for():
    assert promote._deciding(RUN, [NEW, OLD], "") == NEW
    assert promote._deciding(RUN, [NEW, OLD], "2026-05") == OLD
    assert promote._deciding(RUN, [MODIFIED, OLD], "") == OLD


@pytest.mark.parametrize("asked", ["", "2026-11"])
def test_one_with_changed_thresholds_cannot_decide(asked):
    with pytest.raises(
        UsageError, match=r"judged by 2026-11 \w{8} modified; judge it first: `fa-registry audit --study t"
    ):
        promote._deciding(RUN, [MODIFIED], asked)


def test_a_run_of_no_study_is_audited_by_its_id():
    alone = dataclasses.replace(RUN, tags={})
    assert promote._audit(alone, "mine.toml") == f"`fa-registry audit --run {'a' * 32} --edition mine.toml`"
