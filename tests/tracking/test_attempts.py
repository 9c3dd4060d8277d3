"""Many specifications are looked up in one search, few one by one, with the same answer."""

from __future__ import annotations

import pytest

from fa_registry.tracking import schema
from fa_registry.tracking.reader import FEW, runs_by_spec


@pytest.mark.parametrize("count", [2, FEW, FEW + 1, 3 * FEW])
def test_each_has_its_runs_newest_first_whatever_their_state(tracker, count, monkeypatch):
    names = [f"spec {index}" for index in range(count)]
    made: dict[str, list[str]] = {name: [] for name in names}
    for name in [*names[1:], names[1]]:
        made[name].insert(0, tracker.create("run", {schema.TAG_KIND: "run", schema.TAG_SPEC: name}, {}))
    tracker.create("run", {schema.TAG_KIND: "run", schema.TAG_SPEC: "somebody else's"}, {})
    tracker.create("run", {schema.TAG_KIND: "run"}, {})
    searches, genuine = [], tracker.search
    monkeypatch.setattr(tracker, "search", lambda *given: searches.append(given) or genuine(*given))
    found = runs_by_spec(tracker, names)
    assert {name: {run.run_id for run in runs} for name, runs in found.items()} == {
        name: set(ids) for name, ids in made.items()
    }
    assert all(list(runs) == sorted(runs, key=lambda run: -run.started) for runs in found.values())
    assert len(searches) == (count if count <= FEW else 1)
