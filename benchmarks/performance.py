"""python -m benchmarks.performance: docs/performance.md from what was measured and kept in docs/measured/.

The figures of a processor are recorded by `python -m benchmarks.readme --record`, those of large stores by
`python -m benchmarks.store_scale --record`, those of a GPU by `python -m benchmarks.gpu --record` where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import gpu, readme, store_scale
from benchmarks.tables import line

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
HEAD = """# What it takes

Ratios of things timed in turns in one process; machines are shared and noisy, so seconds say little. Written by
`python -m benchmarks.performance` from docs/measured/; every section names the command that measures it, the machine and the date.
What the figures mean, and where the time goes, is in the last section.
"""


def render() -> str:
    """The whole page."""
    return "\n".join(
        [HEAD, *_processor(_read(readme.MEASURED)), *_stores(_read(store_scale.MEASURED)), *_card(), NOTES]
    )


def _processor(measured: Mapping[str, Any]) -> Iterator[str]:
    bench = measured["bench"]
    step, limit = bench["step"], bench["step"]["limit"]
    yield "## On a processor\n"
    yield f"{measured['machine']}, torch {bench['torch']}, {measured['date']}, `python -m benchmarks.readme --record`"
    yield "(the same tables: `make bench`). A step: resmlp D = 256, L = 4, batch 128 of CIFAR's shape, one thread.\n"
    yield line(["what", "median", "least", "largest", "aim"])
    yield "|---|---:|---:|---:|---|"
    for compared, ratio in step["ratio"].items():
        aim = "≤ 0.5" if compared == "dfa / published" else ""
        yield _row(f"step, {compared}", ratio, aim)
    yield _row("share of its limit that a dfa step reaches", limit["share"], "≥ 0.7")
    for name, ratio in bench["epoch"]["ratio"].items():
        yield _row(
            f"data, augmentation and step on two cores, published / {name}", ratio, "≥ 6 with measuring and tracking"
        )
    yield ""
    yield (
        f"The limit is {limit['flop'] / 1e9:.2f} GFLOP of products at the {limit['gemm_rate'] / 1e9:.0f} GFLOP/s that these very "
        f"shapes reach here, and {limit['optimizer_bytes'] / 1e6:.0f} MB of AdamW's traffic at "
        f"{limit['bandwidth'] / 1e9:.0f} GB/s: {1e3 * limit['floor']:.1f} ms.\n"
    )
    yield line(["share of training", "measuring, test set included", "diagnostics alone", "tracking"])
    yield "|---|---:|---:|---:|"
    for one in bench["overheads"]:
        shares = (one["measuring_share"], one["diagnostics_share"], one["tracking_share"])
        yield line([one["name"], *(f"{share:.1%}" for share in shares)])
    yield "| aim | 2.0% | | 3.0% |\n"


def _stores(measured: Mapping[str, Any]) -> Iterator[str]:
    found = [store_scale.StoreScale(**one) for one in measured["sizes"]]
    yield "## Large stores\n"
    yield f"{measured['machine']}, {measured['date']}, `python -m benchmarks.store_scale --record`: CPU seconds of commands.\n"
    yield line(["command", *(f"{one.runs:,} runs" for one in found), "a further run"])
    yield "|---|" + "---:|" * (len(found) + 1)
    for words in store_scale.VERBS:
        each = store_scale.slope(found, words)
        further = f"{1e3 * each:.1f} ms" if each is not None else ""
        yield line([words, *(f"{one.seconds[words]:.1f}" for one in found), further])
    yield ""


def _card() -> Iterator[str]:
    yield "## On a GPU\n"
    if not gpu.MEASURED.is_file():
        yield "Not measured yet: no GPU was at hand where this project is built. `make bench-gpu` measures all of it where there is"
        yield "one, and `python -m benchmarks.gpu --record` puts it here; until then no figure of a GPU is claimed.\n"
        return
    measured = _read(gpu.MEASURED)
    found = gpu.Gpu.of(measured)
    yield f"{found.device}, torch {found.torch}, {measured['date']}, `python -m benchmarks.gpu --record`\n"
    yield "```text\n" + "\n".join(gpu.gpu_lines(found)) + "\n```\n"


def _row(what: str, ratio: Mapping[str, float], aim: str) -> str:
    return line([what, *(f"{ratio[name]:.2f}" for name in ("median", "low", "high")), aim])


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


NOTES = """## Where the time goes

- **A step** is bound by its matrix products: what stays of the limit are LayerNorm, GELU, the credits' normalisation and the
  launch of some eighty operations. oneDNN multiplies where the processor has AVX-512, torch's own library elsewhere
  ([decision 0010](decisions/0010-onednn-linear.md)).
- **Against the published loop** the step saves a second forward pass, an optimizer a block and a host read a step; the data
  path saves PIL images one by one. Processes of one thread beat threads: `--jobs` defaults to one process a core.
- **Measuring** costs a forward pass over the whole test set, each epoch. On digits an epoch is 12 steps, and no way of
  measuring is cheap beside that ([decision 0009](decisions/0009-what-measuring-may-cost.md)).
- **A large store** is read in pages of a thousand runs: no verb asks once a run for anything but the files of the runs that it
  audits. Most of an audit of logged figures is drawing and writing pages; importing torch and MLflow takes seconds of every
  command that needs them.
- **A GPU** step is captured in a CUDA graph, and eight runs share the card in turns of one thread
  ([decision 0028](decisions/0028-one-card-many-runs.md)). Nothing inside a step is read on the host, which a test holds for
  every method and architecture. ep and predictive_coding relax their states for twenty steps a batch: no way of launching
  them makes them cost three times bp.
"""


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(PAGE.relative_to(PAGE.parent.parent))
