"""What a verb takes before and beside its work: CPU seconds on small stores, in times of importing what it must use.

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
RUNS, ROUNDS = 5, 5
MORE = "audit of logged figures of 15 runs"
RUNS_OF = {MORE: 15}  # verbs on a store of more runs
RUN = "the first characters of a run's id"
STUDY = ("study.toml", "--device", "cpu")
REPORT = "reports/audit.json"  # of the verb that audits
# Libraries that do what a verb is for: the store's, the network's, and those of records, series, pages and figures.
STORE = ("mlflow", "mlflow.store.tracking.sqlalchemy_store")
RECORDS = (*STORE, "torch", "safetensors.torch", "pydantic", "pyarrow.parquet")
PAGES = (*RECORDS, "jinja2", "matplotlib.figure", "pandas", "scipy.stats")
# verb → (arguments, libraries, aim). Without libraries the aim is CPU seconds, else times the bare import.
VERBS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], float]] = {
    "list methods": (("list", "methods"), (), 0.4),
    "list runs": (("list", "runs"), STORE, 1.1),
    "optimize": (("optimize-store",), STORE, 1.5),
    "show a run": (("show", RUN), STORE, 1.2),
    "study, nothing to train": (("study", *STUDY), STORE, 1.2),
    "compare two methods": (("compare", "dfa", "bp", "--study", *STUDY), PAGES, 1.5),
    "audit of logged figures, with all pages": (
        ("audit", "--study", *STUDY, "--exit-zero", "--trust-logged"),
        PAGES,
        1.5,
    ),
    MORE: (("audit", "--study", *STUDY, "--exit-zero", "--trust-logged"), (), 7.0),
    "diff of two files": (("diff", REPORT, REPORT), (), 0.5),
    "report from the store": (("report", "--study", "filled", "--out", "again"), PAGES, 1.5),
}


@dataclass(frozen=True)
class StartUp:
    """CPU seconds of the verb and of the bare import, or of the start of Python."""

    verb: float
    imports: float
    aim: float
    in_seconds: bool  # what the aim is in; otherwise in times of the import

    @property
    def ratio(self) -> float:
        return self.verb / self.imports

    @property
    def judged(self) -> str:
        """The aim, and whether it is met."""
        found, unit = (self.verb, " s") if self.in_seconds else (self.ratio, " ×")
        return f"≤ {self.aim:g}{unit}: {verdict(found <= self.aim)}"


def measure(rounds: int = ROUNDS) -> dict[str, StartUp]:
    with tempfile.TemporaryDirectory(prefix="fa_registry-start-") as name:
        folders = {runs: Path(name) / str(runs) for runs in (RUNS, *RUNS_OF.values())}
        filled = "from benchmarks.filled_store import fill; import pathlib, sys; fill(pathlib.Path(sys.argv[1]), int(sys.argv[2]))"
        for runs, folder in folders.items():
            folder.mkdir()
            _cpu(["-c", filled, str(folder), str(runs)], folder)
        listed = [sys.executable, "-m", "fa_registry", "list", "runs", "--json"]
        listing = subprocess.run(
            listed, cwd=folders[RUNS], env=_environment(), check=True, capture_output=True, text=True
        )
        run = listing.stdout.split('"run_id": "')[1][:8]
        return {
            words: _compared(*found, run, folders[RUNS_OF.get(words, RUNS)], rounds) for words, found in VERBS.items()
        }


def _compared(verb: Sequence[str], imports: Sequence[str], aim: float, run: str, folder: Path, rounds: int) -> StartUp:
    verb = ["-m", "fa_registry", *(run if word == RUN else word for word in verb)]
    bare = ["-c", f"import {', '.join(imports)}" if imports else ""]
    pairs = [(_cpu(verb, folder), _cpu(bare, folder)) for _ in range(rounds)]
    return StartUp(*(statistics.median(seconds) for seconds in zip(*pairs, strict=True)), aim, not imports)


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
        f"{words:<42} {one.verb:5.2f} s, bare import {one.imports:5.2f} s: {one.ratio:4.2f} ({one.judged})"
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
