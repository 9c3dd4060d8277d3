"""Which sets of a method's seeds were judged before: every further set is a further look, and its interval is drawn wider.

Whoever audits, adds seeds, audits again, and stops when the margin clears, clears by luck in 8 % of cases where the page says
2.5. So an audit leaves on each of its runs which sets of seeds have been judged, and the next one reads it there: that costs no
further question to the store. A set that was judged before keeps its place: to audit the same seeds again is no new look. One
seed has no interval and is no look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fa_registry.protocol.cases import COUNTED
from fa_registry.protocol.grouping import seeds_key
from fa_registry.records import RunRecord
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun

MOST_LOOKS = 200  # of which a tag has room: 13 characters each, of the 5,000 that MLflow takes


@dataclass(frozen=True)
class Looks:
    """number: group → the how-many-th look this audit is. tags: run id → what its TAG_LOOKS becomes."""

    number: Mapping[str, int]
    tags: Mapping[str, str]


def looks_of(records: Sequence[RunRecord], stored: Iterable[StoredRun]) -> Looks:
    """The look that judging these records is, by what earlier audits left on the runs. stored: the same runs, with their tags.

    A group is what the seeds of one method in one setting share (grouping.seeds_key). A control is no look of its own.
    """
    before = {run.run_id: run.tags.get(schema.TAG_LOOKS, "").split() for run in stored}
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.spec.control == "none" and record.status in COUNTED:
            groups.setdefault(seeds_key(record.spec), []).append(record)
    number, tags = {}, {}
    for key, members in groups.items():
        seeds = {record.spec.seed for record in members}
        if len(seeds) > 1:
            earlier = [before.get(record.run_id, []) for record in members]
            number[key], history = _look(_name(seeds), earlier)
            tags |= {record.run_id: " ".join(history[:MOST_LOOKS]) for record in members}
    return Looks(number, tags)


def _look(judged: str, earlier: Sequence[Sequence[str]]) -> tuple[int, list[str]]:
    """The number of this look, and the history that goes on: all sets that any of the runs was judged in, then this one."""
    history = list(dict.fromkeys(one for sets in sorted(earlier, key=len, reverse=True) for one in sets))
    if judged not in history:
        history.append(judged)
    return history.index(judged) + 1, history


def _name(seeds: Iterable[int]) -> str:
    """A set of seeds in 13 characters or so: how many, and the beginning of their SHA-256."""
    ordered = sorted(seeds)
    return f"{len(ordered)}:{hashlib.sha256(repr(ordered).encode()).hexdigest()[:8]}"
