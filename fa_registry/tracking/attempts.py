"""The runs of many specifications at once: a search for each would ask the store as often as there are runs."""

from __future__ import annotations

from collections.abc import Iterable

from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker

FEW = 12  # values that are looked up one by one: reading all runs of a large store takes longer than so many searches


def runs_by_spec(tracker: Tracker, identities: Iterable[str]) -> dict[str, list[StoredRun]]:
    """identity → its runs of any state, newest first; an empty list where there are none."""
    return runs_by_tag(tracker, schema.TAG_SPEC, identities)


def runs_by_tag(tracker: Tracker, tag: str, values: Iterable[str], few: int = FEW) -> dict[str, list[StoredRun]]:
    """value → the training runs that carry it in `tag`, newest first; an empty list where there are none. few: as FEW."""
    runs: dict[str, list[StoredRun]] = {value: [] for value in values}
    if len(runs) <= few:
        return {value: tracker.search({tag: value}) for value in runs}
    for run in tracker.search({schema.TAG_KIND: "run"}):
        runs.get(run.tags.get(tag, ""), []).append(run)
    return runs
