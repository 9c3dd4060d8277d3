"""docs/performance.md on where the time goes: shares of what was measured, and what they come from in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import end_to_end, step_time, store_scale
from benchmarks.recording import recorded
from benchmarks.tables import line
from benchmarks.tasks import EPOCHS
from benchmarks.verb_cost import Costs
from fa_registry.tracking.mlflow_tracker import PAGE

OPENING = "optimize"  # of store_scale.VERBS: it does hardly anything else
WORDS = """
- **A step**: its products are in the table above. The rest are LayerNorm, GELU, the credits' normalisation and the launch of
  operations.
- **Against the published loop** the step saves a second forward pass, an optimizer a block and a host read a step; the data
  path saves PIL images one by one.{jobs}
- **Measuring** costs a forward pass over the whole test set, each epoch. On digits an epoch is 12 steps, and no way of
  measuring is cheap compared with that ([decision 21](decisions/21-costs.md)).
- **Recomputing a run** is mostly ρ. It sends 32 directions of every sample at every site through the rest of the network, in
  float32 where float32 can tell (decision 21). No order of the work reduces the number of these products.
- **A large store** is read in pages of {page} runs: commands send one request for each run only for the files of the runs that they
  audit.
- **A GPU** step is captured in a CUDA graph, and eight runs share the GPU in turns of one thread
  ([decision 22](decisions/22-speed.md)). No value inside a step is read on the host; a test checks this for
  every method and architecture.
"""


def where_the_time_goes(measured: Mapping[str, Any]) -> Iterator[str]:
    """The section. measured: by benchmarks.readme."""
    yield "## Where the time goes\n"
    yield line(["of", "part", "share"])
    yield "|---|---|---:|"
    steps = recorded(step_time.MEASURED)
    rows = [*_step(steps["limit"])] if steps else []
    for one in measured["bench"]["overheads"]:
        rows += _epoch(one)
    for row in (*rows, *_stores()):
        yield line(row)
    yield WORDS.format(jobs=_jobs(), page=PAGE)


def _jobs() -> str:
    """Why `--jobs` defaults to a process a core; nothing where it was not measured."""
    kept = recorded(end_to_end.MEASURED)
    ratio = end_to_end.EndToEnd.of(kept).ratio if kept else {}
    if not {end_to_end.BY_JOBS, end_to_end.BY_THREADS} <= set(ratio):
        return ""
    jobs, threads = ratio[end_to_end.BY_JOBS].median, ratio[end_to_end.BY_THREADS].median
    return (
        f" A second process brings {jobs:.2f} times the runs a second,\n  a second thread {threads:.2f} times "
        "(`python -m benchmarks.end_to_end`): `--jobs` defaults to one process a core."
    )


def _step(limit: Mapping[str, Any]) -> Iterator[list[str]]:
    """By its limit: what the products and the optimizer would take alone, and all the rest."""
    reached = limit["share"]["median"]
    products = limit["flop"] / limit["gemm_rate"] / limit["floor"] * reached
    yield ["a dfa step", "its products, at the rate they reach alone", f"{products:.0%}"]
    yield ["", "AdamW's traffic, at the rate of a copy", f"{reached - products:.0%}"]
    yield ["", "everything else", f"{1 - reached:.0%}"]


def _epoch(one: Mapping[str, Any]) -> Iterator[list[str]]:
    tracking = one["tracking"]["seconds_per_epoch"] + one["tracking"]["seconds_per_run"] / EPOCHS
    parts = {
        "steps": one["training"],
        "accuracy on the whole test set": one["accuracy"],
        "diagnostics: passes in float32 and float64": one["float32"] + one["float64"],
        "diagnostics: arithmetic": one["arithmetic"],
        "tracking": tracking,
    }
    whole = sum(parts.values())
    for index, (part, seconds) in enumerate(parts.items()):
        yield [f"an epoch of {one['steps']} steps, {one['name']}" if not index else "", part, f"{seconds / whole:.1%}"]


def _stores() -> Iterator[list[str]]:
    """Of the audit of the smallest store and of the largest: what each run adds, and what comes before any run."""
    kept = recorded(store_scale.MEASURED)
    if kept is None or len(kept["sizes"]) < 2:
        return
    found = [Costs.of(one) for one in kept["sizes"]]
    each = store_scale.slope(found, store_scale.AUDIT)
    for store in (found[0], found[-1]):
        cost = store.costs[store_scale.AUDIT].cpu
        opening, own = store.costs[OPENING].cpu / cost, store.runs * each / cost
        yield [f"an audit of {store.runs:,} logged runs", "reading, judging, drawing and logging, by run", f"{own:.0%}"]
        yield ["", f"importing MLflow and opening the store: what `{OPENING}` takes", f"{opening:.0%}"]
        yield ["", "other imports, and pages that do not grow with the runs", f"{1 - own - opening:.0%}"]
