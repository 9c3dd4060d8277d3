"""python -m benchmarks.performance: docs/performance.md from what was measured and kept in docs/measured/.

`python -m benchmarks.record` measures all of it but a GPU's, which `make bench-gpu` does where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import end_to_end, gpu, readme, step_time
from benchmarks.overheads import MEASURING_TARGETS, TRACKING_TARGET
from benchmarks.performance_stores import starts, stores
from benchmarks.performance_time import where_the_time_goes
from benchmarks.recording import ROOT, recorded, where
from benchmarks.tables import line, verdict
from benchmarks.timing import Spread

PAGE = ROOT / "docs" / "performance.md"
HEAD = """# Performance

Read the ratios of timings taken in turns: machines are shared and noisy, so seconds are less reliable.
`python -m benchmarks.performance` writes this page from docs/measured/. Every section names the command that measures it, the
machine and the date. Every aim states whether it is met. `python -m benchmarks.record` repeats all measurements of a processor.
"""
SPREAD = [line(["what", "median", "least", "largest", "aim"]), "|---|---:|---:|---:|---|"]


def render() -> str:
    """The whole page."""
    bench = recorded(readme.MEASURED)
    return "\n".join(
        [
            HEAD,
            *_begin(bench),
            *_steps(),
            *_whole(),
            *_shares(bench),
            *starts(),
            *stores(),
            *_card(),
            *where_the_time_goes(bench),
        ]
    )


def _begin(measured: Mapping[str, Any]) -> Iterator[str]:
    yield "## Installation and first study\n"
    yield f"{where(measured, 'benchmarks.readme')}, seconds by the clock.\n"
    yield line(["what", "measured", "aim"])
    yield "|---|---:|---|"
    taken = {**measured["seconds"], "make demo": sum(measured["seconds"][part] for part in readme.PARTS)}
    for name in readme.PARTS:
        yield line([name, f"{taken[name]:.3g} s", ""])
    for name, most in readme.SECONDS.items():
        seconds = taken[name]
        yield line([name, f"{seconds:.3g} s", f"≤ {most:g} s: {verdict(seconds <= most)}"])
    yield ""


def _steps() -> Iterator[str]:
    yield "## A step\n"
    kept = recorded(step_time.MEASURED)
    if kept is None:
        yield "Not measured yet: `python -m benchmarks.step_time --record`.\n"
        return
    found = step_time.StepTimes.of(kept)
    limit = found.limit
    yield where(kept, "benchmarks.step_time")
    yield f"(the same table: `make bench`). resmlp D = 256, L = 4, batch {step_time.BATCH}, one thread."
    yield (
        "The baseline is the loop that a careful engineer would write: one forward and one backward pass, one AdamW, tensors in\n"
        "memory. The faster AdamW (foreach or fused) was taken. The published loop is the second baseline.\n"
    )
    yield from SPREAD
    for name, times in found.shapes.items():
        for compared, ratio in times.ratio.items():
            yield _row(f"{name}: {compared}", ratio)
    for what, *_, share in limit.by_rate():
        words = f"{step_time.CIFAR}: share of its limit that a dfa step reaches, at the rate of {what}"
        yield _row(words, share, least=step_time.LIMIT_TARGET)
    yield ""
    yield line(["milliseconds of a step", *found.shapes])
    yield "|---|" + "---:|" * len(found.shapes)
    for name in next(iter(found.shapes.values())).milliseconds:
        cells = [times.milliseconds.get(name) for times in found.shapes.values()]
        yield line([name, *("" if value is None else f"{value:.2f}" for value in cells)])
    yield ""
    yield (
        f"The limit is {limit.flop / 1e9:.2f} GFLOP of products at a measured rate, one thread, and "
        f"{limit.optimizer_bytes / 1e6:.0f} MB of AdamW's traffic at {limit.bandwidth / 1e9:.0f} GB/s:"
    )
    for what, rate, floor, _ in limit.by_rate():
        yield f"- at the {rate / 1e9:.0f} GFLOP/s of {what}: {1e3 * floor:.1f} ms a step"
    yield ""


def _whole() -> Iterator[str]:
    yield "## Whole epochs, and a second process\n"
    kept = recorded(end_to_end.MEASURED)
    if kept is None:
        yield "Not measured yet: `python -m benchmarks.end_to_end --record`.\n"
        return
    found = end_to_end.EndToEnd.of(kept)
    yield f"{where(kept, 'benchmarks.end_to_end')}. On two cores, by the"
    yield "clock: data, steps, measuring and tracking of a tenth of CIFAR's images; the published pipeline tracks nothing."
    yield f"{end_to_end.NOTE}\n"
    yield from SPREAD
    for words, ratio in found.ratio.items():
        yield _row(words, ratio, least=end_to_end.COMPARED[words][2])
    yield ""
    yield line(["seconds of an epoch, a run", "median"])
    yield "|---|---:|"
    yield from (line([name, f"{value:.2f}"]) for name, value in found.seconds.items())
    yield ""


PARTS = {
    "accuracy": "whole test set",
    "float32": "evaluation batch, float32",
    "float64": "the same in float64 (fidelity)",
    "arithmetic": "diagnostics' arithmetic",
}


def _shares(measured: Mapping[str, Any]) -> Iterator[str]:
    yield "## What measuring and tracking add\n"
    yield f"{where(measured, 'benchmarks.readme')}: of training, one thread.\n"
    yield line(["share of training", "measuring, test set included", "diagnostics alone", "tracking"])
    yield "|---|---|---:|---|"
    for one in measured["bench"]["overheads"]:
        measuring, tracking = (
            f"{share:.1%}" + (f" (≤ {aim:.0%}: {verdict(share <= aim)})" if aim else "")
            for share, aim in (
                (one["measuring_share"], MEASURING_TARGETS.get(one["name"])),
                (one["tracking_share"], TRACKING_TARGET),
            )
        )
        yield line([one["name"], measuring, f"{one['diagnostics_share']:.1%}", tracking])
    yield ""
    yield "Cost of each metric, with each part timed separately:\n"
    yield line(["share of training", *PARTS.values()])
    yield "|---|" + "---:|" * len(PARTS)
    for one in measured["bench"]["overheads"]:
        yield line([f"{one['name']}, parts", *(f"{one[part] / one['training']:.1%}" for part in PARTS)])
    yield ""
    yield (
        "The metrics need these passes: in every epoch a forward pass of the test set, and a forward and a backward pass of the\n"
        "evaluation batch in both precisions. A step needs nearly three products a sample and layer, a test sample one. CIFAR has\n"
        "10,000 test samples and 50,000 training samples, so the test set costs about 1/15 of training. Digits has 360 test and\n"
        "128 evaluation samples and 1,437 training samples: the float32 passes alone are at the aim. A cheaper metric would be\n"
        "another metric: an accuracy of fewer images. The pass in float64 is made after every tenth epoch.\n"
    )


def _card() -> Iterator[str]:
    yield "## On a GPU\n"
    measured = recorded(gpu.MEASURED)
    if measured is None:
        yield "Not measured yet: no GPU was available where this project is built. `make bench-gpu` measures all of it on a machine"
        yield "with one, in ten minutes at most ([how](many-machines.md#a-machine-with-a-gpu)). Until then this page claims nothing"
        yield "about a GPU.\n"
        return
    yield where(measured, "benchmarks.gpu") + "\n"
    yield "```text\n" + "\n".join(gpu.gpu_lines(measured)) + "\n```\n"


def _row(what: str, found: Spread, least: float | None = None) -> str:
    aim = f"≥ {least:g}: {verdict(found.median >= least)}" if least else ""
    return line([what, *(f"{value:.3g}" for value in (found.median, found.low, found.high)), aim])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
