"""What the views of MLflow's pages cost a store of many runs: CPU seconds for reading its runs and for writing the views' tags.

python -m benchmarks.views_cost [RUNS]: 2,000 unless told otherwise, in settings of 125 (benchmarks/filled_store.py fills the store,
which is not timed). Written for the first time, and once more, when all of them stand already.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.filled_store import fill
from benchmarks.recording import stamp
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.mlflow_views import TAG, views_of

RUNS, TARGET = 2000, 2.0  # of issue 16: CPU seconds for the tags of so many runs


def measure(runs: int) -> dict[str, float]:
    """CPU seconds of each part."""
    with tempfile.TemporaryDirectory(prefix="fa_registry-views-") as folder:
        tracker = MlflowTracker(fill(Path(folder), runs))
        found, reading = _timed(lambda: tracker.search({schema.TAG_KIND: "run"}))
        study = found[0].tags[schema.TAG_STUDY]
        for name in tracker._client.get_experiment(tracker.experiment_id).tags:
            if name.startswith(TAG):  # the store's first runs were trained: they have views
                tracker._client.delete_experiment_tag(tracker.experiment_id, name)
        views, _ = _timed(lambda: views_of(study, found))
        _, writing = _timed(lambda: tracker.publish_views(views_of(study, found)))
        _, again = _timed(lambda: tracker.publish_views(views_of(study, found)))
    return {"runs": len(found), "views": len(views), "reading": reading, "writing": writing, "again": again}


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    before = time.process_time()
    return work(), time.process_time() - before


def main(arguments: Sequence[str]) -> None:
    cost, where = measure(int(arguments[0]) if arguments else RUNS), stamp()
    print(f"{cost['runs']:,} runs, {cost['views']} views on {where['machine']}, {where['date']}: CPU seconds")
    print(f"  {cost['writing']:6.2f} to make and write the views' tags (target ≤ {TARGET:g})")
    print(f"  {cost['again']:6.2f} once more, when they stand")
    print(f"  {cost['reading']:6.2f} to read the runs before")


if __name__ == "__main__":
    main(sys.argv[1:])
