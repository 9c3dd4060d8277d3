"""Which run of one audit is which of the other: by run id, and where it was trained again by its specification."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from fa_registry.records import RunAudit
from fa_registry.reporting.audit_diff.records import HOW

BY_ID, BY_SPECIFICATION = HOW


@dataclass(frozen=True)
class Pair:
    """The same run in A and in B. how: one of HOW."""

    a: RunAudit
    b: RunAudit
    how: str


@dataclass(frozen=True)
class Matching:
    """pairs: in the order of A; only_a, only_b: the rest of each."""

    pairs: tuple[Pair, ...]
    only_a: tuple[RunAudit, ...]
    only_b: tuple[RunAudit, ...]

    @property
    def ids(self) -> dict[str, str]:
        """Run id in A → run id in B."""
        return {pair.a.record.run_id: pair.b.record.run_id for pair in self.pairs}


def match(a: Sequence[RunAudit], b: Sequence[RunAudit]) -> Matching:
    """Match every run once; of several runs of one specification the first that is left."""
    known = {run.record.run_id for run in a}
    by_id = {run.record.run_id: run for run in b}
    left: defaultdict[str, deque[RunAudit]] = defaultdict(deque)
    for run in b:
        if run.record.run_id not in known:
            left[run.record.spec.identity].append(run)
    pairs, only_a = [], []
    for run in a:
        same = left[run.record.spec.identity]
        if run.record.run_id in by_id:
            pairs.append(Pair(run, by_id[run.record.run_id], BY_ID))
        elif same:
            pairs.append(Pair(run, same.popleft(), BY_SPECIFICATION))
        else:
            only_a.append(run)
    only_b = {run.record.run_id for runs in left.values() for run in runs}
    return Matching(tuple(pairs), tuple(only_a), tuple(run for run in b if run.record.run_id in only_b))
