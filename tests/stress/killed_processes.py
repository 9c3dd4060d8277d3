"""Kills at random points: of the command's process, of one of its workers, of all; then the same command once more, and a check.

    python -m tests.stress.killed_processes --kills 50

Nothing may be lost, marked RUNNING or left on disk afterwards. Every recorded file, verdict, page and model must be, bit by bit,
what it is where no process was killed. Each command is forked from this process, which has imported everything and opened no store.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from click.testing import CliRunner

from fa_registry import jsonio
from fa_registry.audits.verify import verify_runs
from fa_registry.cli import main as fa_registry
from fa_registry.evidence.options import RemeasureOptions
from fa_registry.studies.options import RunSelector
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import ModelRegistry
from fa_registry.tracking.reader import read_record
from tests.commands.promotion import judged_study
from tests.helpers.stores import copy_store

GRACE = 60.0  # seconds for what was killed to be gone; on a busy machine too
CACHE = "torchinductor_"  # torch keeps it there for all later processes
TARGETS = ("parent", "worker", "all")
TRAIN = "train --method dfa --seed 7 --epochs 4 --checkpoint-every 2 --device cpu"
SMALL = ["--set", "architecture.d_hidden=16", "--set", "architecture.num_blocks=2"]
COMMANDS = {  # what is killed → its arguments, and whether it begins in an empty store
    "train": ([*TRAIN.split(), *SMALL], True),
    "study": (["study", "tiny/study.toml", "--jobs", "2", "--epochs", "3", "--device", "cpu"], True),
    "audit": (
        ["audit", "--study", "tiny/study.toml", "--editions", "2026-04,2026-12", "--device", "cpu", "--exit-zero"]
        + ["--nonce", "5eed"],  # two audits are compared byte by byte
        False,
    ),
    "report": (["report", "--study", "tiny"], False),
    "promote": (["promote", "RUN", "--edition", "2026-12", "--name", "kept"], False),
}


@dataclass
class Tally:
    """Of one command: kills, runs that were lost, runs that say RUNNING, files and processes left behind, files that differ."""

    tried: int = 0
    lost: int = 0
    running: int = 0
    left: int = 0
    differing: int = 0


def forked(work: Callable[[], Any]) -> Any:
    """What `work()` returned in a separate process: what it opens is not open here, where the next one is forked."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with os.fdopen(write, "w") as stream:
                json.dump(work(), stream)
            atexit._run_exitfuncs()
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def begin(command: str, folder: Path) -> int:
    """Start a command in `folder`, the leader of its own process group; its pid."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setsid()
            code = run(command, folder)
            atexit._run_exitfuncs()  # what a process that is not forked does at its end
        finally:
            os._exit(code)
    return pid


def run(command: str, folder: Path) -> int:
    """The command in this process, its temporary files below `folder`; its exit code."""
    enter(folder)
    arguments = COMMANDS[command][0]
    if "RUN" in arguments:
        (judged,) = MlflowTracker().search({schema.TAG_KIND: "run", schema.TAG_METHOD: "dfa"})
        arguments = [judged.run_id if word == "RUN" else word for word in arguments]
    result = CliRunner().invoke(fa_registry, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        print(f"{command}: {result.exception!r}", file=sys.stderr)
    return result.exit_code


def enter(folder: Path) -> None:
    (folder / "tmp").mkdir(exist_ok=True)
    os.chdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    torch.set_num_threads(1)


def kill(pid: int, target: str, draw: random.Random) -> None:
    """The leader, one other of its group (where there is one), or all."""
    others = [member for member in group(pid) if member != pid]
    try:
        if target == "all":
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(draw.choice(others) if target == "worker" and others else pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it was quicker


def group(leader: int) -> list[int]:
    """The processes of a group that are at work."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
            members += [int(stat.parent.name)] * (int(pgrp) == leader and state not in "ZX")
    return members


def look(folder: Path) -> dict[str, Any]:
    """What a folder holds that must not depend on kills, and what must not be there."""
    enter(folder)
    tracker = MlflowTracker()
    runs = tracker.search({schema.TAG_KIND: "run", schema.TAG_STATUS: "complete"})
    same: dict[str, Any] = {}
    for run in reversed(runs):  # the newest of a specification stays
        same |= {
            f"{run.tags[schema.TAG_SPEC]} {name}": value for name, value in read_record(tracker, run).digests.items()
        }
        same |= {f"{run.tags[schema.TAG_SPEC]} {name}": value for name, value in run.tags.items() if "verdict" in name}
    pages = [path for path in (folder / "reports").rglob("*") if path.is_file()]
    same |= {path.relative_to(folder).as_posix(): jsonio.file_digest(path) for path in pages}
    client = ModelRegistry(tracker.uri).client
    for version in client.search_model_versions():
        aliases = sorted(client.get_registered_model(version.name).aliases)
        same |= {f"{version.name}/{version.version}": [aliases, version.tags]}
    wrong = verify_runs(RunSelector(run_ids=tuple(run.run_id for run in runs)), RemeasureOptions(trust_logged=True))
    running = {
        run.run_id for run in [*tracker.search({}, state="RUNNING"), *tracker.search({schema.TAG_STATUS: "running"})]
    }
    temporary = [path for path in (folder / "tmp").iterdir() if not path.name.startswith(CACHE)]
    left = [*temporary, *(folder / ".fa_registry").glob("resume/*"), *(folder / "reports").glob(".*")]
    return {
        "same": same,
        "runs": sorted({run.tags[schema.TAG_SPEC] for run in runs}),
        "mismatches": [result.name for result in wrong if result.integrity.state == "mismatch"],
        "running": sorted(running),
        "left": sorted(path.name for path in left),
    }


class StressRun:
    """place: where each kill has its folder. judged: the folder of a store with a study that was trained and audited."""

    def __init__(self, place: Path, judged: Path, seed: int):
        self.place, self.judged, self.draw = place, judged, random.Random(seed)
        self.known: dict[str, tuple[float, dict[str, Any]]] = {}  # command → seconds and outcome of an undisturbed one

    def fresh(self, name: str, command: str) -> Path:
        folder = self.place / name
        if COMMANDS[command][1]:
            shutil.copytree(self.judged / "tiny", folder / "tiny")
            store = f"sqlite:///{folder / 'mlflow.db'}"
            forked(lambda: MlflowTracker(store, experiment_id="0") and None)
        else:
            copy_store(self.judged, folder)
        return folder

    def undisturbed(self, command: str) -> tuple[float, dict[str, Any]]:
        if command not in self.known:
            folder = self.fresh(f"{command}-whole", command)
            began = time.monotonic()
            _, status = os.waitpid(begin(command, folder), 0)
            assert status == 0, f"{command}: {status}"
            self.known[command] = time.monotonic() - began, forked(lambda: look(folder))
        return self.known[command]

    def once(self, command: str, number: int, tally: Tally) -> None:
        """Kill the command once, have it run again, and count what is not as it should be."""
        seconds, whole = self.undisturbed(command)
        target, after = self.draw.choice(TARGETS), self.draw.uniform(0, seconds)
        folder = self.fresh(f"{command}-{number}", command)
        pid = begin(command, folder)
        time.sleep(after)
        kill(pid, target, self.draw)
        os.waitpid(pid, 0)
        deadline = time.monotonic() + GRACE
        while (orphans := group(pid)) and time.monotonic() < deadline:
            time.sleep(0.1)
        code = forked(lambda: run(command, folder))
        found = forked(lambda: look(folder))
        differing = {
            name for name in whole["same"] | found["same"] if whole["same"].get(name) != found["same"].get(name)
        }
        tally.tried += 1
        tally.lost += len(set(whole["runs"]) - set(found["runs"])) + bool(code)
        tally.running += len(found["running"])
        tally.left += len(found["left"]) - len(whole["left"]) + len(orphans)
        tally.differing += len(differing) + len(found["mismatches"])
        if code or found["running"] or found["left"] != whole["left"] or orphans or differing or found["mismatches"]:
            report = {**found, "same": sorted(differing), "code": code, "orphans": orphans}
            print(f"{command}, {target} killed after {after:.2f} of {seconds:.2f} s: {json.dumps(report)}")
        shutil.rmtree(folder)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--kills", type=int, default=50)
    asked.add_argument("--seed", type=int, default=random.randrange(2**32))
    asked.add_argument("--verbs", default=",".join(COMMANDS))
    asked.add_argument("--judged", type=Path, default=None, help="a store that was trained and audited [one is made]")
    options = asked.parse_args()
    print(f"seed {options.seed}", flush=True)
    commands = options.verbs.split(",")
    tallies = {command: Tally() for command in commands}
    place = Path(tempfile.mkdtemp())  # a TemporaryDirectory would go with the first fork that ends
    try:
        judged = options.judged or place / "judged"
        if not options.judged:
            forked(lambda: judged_study(judged))
        stress_run = StressRun(place, judged, options.seed)
        for number in range(options.kills):
            stress_run.once(commands[number % len(commands)], number, tallies[commands[number % len(commands)]])
    finally:
        shutil.rmtree(place)
    for command, tally in tallies.items():
        print(f"{command}: " + ", ".join(f"{field.name} {getattr(tally, field.name)}" for field in fields(tally)))
    raise SystemExit(any(tally.lost or tally.running or tally.left or tally.differing for tally in tallies.values()))


if __name__ == "__main__":
    main()
