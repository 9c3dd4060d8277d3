"""What a verb takes before and beside its work: CPU seconds on a store of five runs, in times of importing what it must use.

python -m benchmarks.start_up [--json] [--record]: a minute or two. Each verb and the bare import of the libraries that it cannot do
without are started in turns, and the medians compared; --record keeps the answers in docs/measured/start_up.json.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.recording import FOLDER, ROOT, add_options, tell
from benchmarks.tables import verdict

MEASURED = FOLDER / "start_up.json"
RUNS, ROUNDS, TARGET = 5, 5, 1.5
RUN = "the first characters of a run's id"
STUDY = ("study.toml", "--device", "cpu")
# Libraries that do what a verb is for: the store's, the network's, and those of records, series, pages and figures.
STORE = ("mlflow", "mlflow.store.tracking.sqlalchemy_store")
RECORDS = (*STORE, "torch", "safetensors.torch", "pydantic", "pyarrow.parquet")
PAGES = (*RECORDS, "jinja2", "matplotlib.figure", "pandas", "scipy.stats")
VERBS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "list runs": (("list", "runs"), STORE),
    "optimize": (("optimize-store",), STORE),
    "show a run": (("show", RUN), RECORDS),
    "study, nothing to train": (("study", *STUDY), RECORDS),
    "compare two methods": (("compare", "dfa", "bp", "--study", *STUDY), PAGES),
    "audit of logged figures, with all pages": (("audit", "--study", *STUDY, "--exit-zero", "--trust-logged"), PAGES),
    "report from the store": (("report", "--study", "filled", "--out", "again"), PAGES),
}


@dataclass(frozen=True)
class StartUp:
    """CPU seconds of the verb and of the bare import."""

    verb: float
    imports: float

    @property
    def ratio(self) -> float:
        return self.verb / self.imports


def measure(rounds: int = ROUNDS) -> dict[str, StartUp]:
    with tempfile.TemporaryDirectory(prefix="fa_registry-start-") as name:
        folder = Path(name)
        filled = "from benchmarks.filled_store import fill; import pathlib, sys; fill(pathlib.Path(sys.argv[1]), int(sys.argv[2]))"
        _cpu(["-c", filled, str(folder), str(RUNS)], folder)
        listed = [sys.executable, "-m", "fa_registry", "list", "runs", "--json"]
        listing = subprocess.run(listed, cwd=folder, env=_environment(), check=True, capture_output=True, text=True)
        run = listing.stdout.split('"run_id": "')[1][:8]
        return {words: _compared(*found, run, folder, rounds) for words, found in VERBS.items()}


def _compared(verb: Sequence[str], imports: Sequence[str], run: str, folder: Path, rounds: int) -> StartUp:
    verb = ["-m", "fa_registry", *(run if word == RUN else word for word in verb)]
    bare = ["-c", f"import {', '.join(imports)}"]
    pairs = [(_cpu(verb, folder), _cpu(bare, folder)) for _ in range(rounds)]
    return StartUp(*(statistics.median(seconds) for seconds in zip(*pairs, strict=True)))


def _cpu(arguments: Sequence[str], folder: Path) -> float:
    """CPU seconds of Python with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, env=_environment(), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def lines(found: Mapping[str, StartUp]) -> list[str]:
    return [
        f"{words:<42} {one.verb:5.2f} s, bare import {one.imports:5.2f} s: {one.ratio:4.2f} (≤ {TARGET:g}: "
        f"{verdict(one.ratio <= TARGET)})"
        for words, one in found.items()
    ]


def of(kept: Mapping[str, Any]) -> dict[str, StartUp]:
    """From what --record kept."""
    return {words: StartUp(**one) for words, one in kept["verbs"].items()}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start_up", description=__doc__.splitlines()[0])
    add_options(parser, MEASURED)
    options = parser.parse_args(arguments)
    found = measure()
    tell({"verbs": {words: asdict(one) for words, one in found.items()}}, lines(found), options, MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
