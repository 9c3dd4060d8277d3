"""Which look at a method's seeds an audit is: by what earlier audits left on the runs, and by nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from fa_registry.protocol.grouping import seeds_key
from fa_registry.tracking import schema
from fa_registry.workflows.selection import MOST_LOOKS, looks_of
from tests.builders import frozen, record


@dataclasses.dataclass(frozen=True)
class Stored:
    """As much of a stored run as looks are read from."""

    run_id: str
    tags: dict[str, str]


class Study:
    """Audits of one method's seeds, one after another: each leaves its tags for the next."""

    def __init__(self):
        self.tags: dict[str, dict[str, str]] = {}

    def audit(self, *seeds: int, **changes) -> int | None:
        records = [record(f"r{seed}", seed=seed, **changes) for seed in seeds]
        stored = [Stored(one.run_id, self.tags.get(one.run_id, {})) for one in records]
        looks = looks_of(records, stored)
        for run_id, tag in looks.tags.items():
            self.tags[run_id] = {schema.TAG_LOOKS: tag}
        return looks.number.get(seeds_key(records[0].spec))


def test_every_further_set_of_seeds_is_a_further_look_and_the_same_set_is_none():
    study = Study()
    assert [study.audit(1, 2, 3), study.audit(3, 2, 1), study.audit(1, 2, 3, 4), study.audit(1, 2, 3, 4, 5)] == [
        1,
        1,
        2,
        3,
    ]
    assert [study.audit(1, 2, 3, 4), study.audit(1, 2, 3)] == [2, 1]


def test_leaving_a_seed_out_or_swapping_one_is_a_look_too():
    study = Study()
    assert [study.audit(1, 2, 3), study.audit(1, 2), study.audit(1, 2, 4)] == [1, 2, 3]


def test_seeds_that_no_audit_has_seen_are_a_first_look_and_one_seed_is_none():
    study = Study()
    assert [study.audit(1), study.audit(1, 2, 3), study.audit(7, 8, 9)] == [None, 1, 1]


def test_what_one_run_remembers_is_enough():
    """The tags of all but one of the runs were deleted."""
    study = Study()
    study.audit(1, 2, 3)
    study.tags = {"r2": study.tags["r2"]}
    assert study.audit(1, 2, 3, 4) == 2


@pytest.mark.parametrize("change", [{"status": "failed"}, {"control": "frozen", "method": "bp"}])
def test_runs_that_no_margin_counts_are_no_look(change):
    assert Study().audit(1, 2, 3, **change) is None


def test_a_diverged_seed_counts_as_in_the_margin():
    members = [record("r1", seed=1), record("r2", seed=2, status="diverged"), frozen("f1", seed=1)]
    assert list(looks_of(members, []).number.values()) == [1]


def test_a_tag_stays_as_long_as_mlflow_takes():
    study = Study()
    for last in range(2, MOST_LOOKS + 30):
        study.audit(1, last)
    assert len(study.tags["r1"][schema.TAG_LOOKS]) < 5000
    assert study.audit(1, MOST_LOOKS + 40) == MOST_LOOKS + 1
