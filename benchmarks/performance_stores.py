"""docs/performance.md on commands: what each takes to start, and on stores of many runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks import start_up, store_scale
from benchmarks.recording import recorded, where
from benchmarks.tables import line, verdict
from benchmarks.verb_cost import Cost, Costs

NOT_YET = "Not measured yet: `python -m {} --record`.\n"


def starts() -> Iterator[str]:
    """The section on what a verb takes before and beside its work."""
    yield "## Starting a command\n"
    kept = recorded(start_up.MEASURED)
    if kept is None:
        yield NOT_YET.format("benchmarks.start_up")
        return
    yield f"{where(kept, 'benchmarks.start_up')}: CPU seconds"
    yield f"on a store of {start_up.RUNS} runs, compared with a bare import of the libraries that the command needs."
    yield "A command that needs none of the large libraries is compared with the start of Python.\n"
    yield line(["command", "CPU", "bare import", "ratio", "aim"])
    yield "|---|---:|---:|---:|---|"
    for words, one in start_up.of(kept).items():
        yield line([words, f"{one.verb:.2f} s", f"{one.imports:.2f} s", f"{one.ratio:.2f}", one.judged])
    yield ""


def stores() -> Iterator[str]:
    """The section."""
    yield "## Large registries\n"
    yield "CPU seconds · seconds by the clock · peak memory of whole commands on two cores, imports and pages included.\n"
    yield from _every_verb()


def _every_verb() -> Iterator[str]:
    kept = recorded(store_scale.MEASURED)
    if kept is None:
        yield NOT_YET.format("benchmarks.store_scale")
        return
    found = [Costs.of(one) for one in kept["sizes"]]
    yield f"{where(kept, 'benchmarks.store_scale')}:"
    yield "copies of runs that were trained, 25 seeds a setting."
    yield ""
    yield line(["command", *(f"{one.runs:,} runs" for one in found), "CPU, a further run"])
    yield "|---|" + "---:|" * (len(found) + 1)
    for words in store_scale.VERBS:
        each = store_scale.slope(found, words)
        further = f"{1e3 * each:.1f} ms" if each is not None else ""
        yield line([words, *(_cost(one.costs[words]) for one in found), further])
    yield ""
    yield from _aims(store_scale.targets(found))


def _cost(cost: Cost) -> str:
    return f"{cost.cpu:.1f} · {cost.wall:.1f} s · {cost.peak:.0f} MiB"


def _aims(targets: Iterable[tuple[str, str, bool]]) -> Iterator[str]:
    for what, value, met in targets:
        yield f"- Aim, {what}: {value}, {verdict(met)}."
    yield ""
