"""A day's load on a team's server on loopback: PostgreSQL, an S3 store, MLflow with users, and workers whose steps take 1 ms.

    python -m benchmarks.ten_thousand_a_day [--minutes 8] [--workers 16] [--record] [--keep]

The workers train tiny networks as a study's workers do. Their number is raised, then the server is killed and begun again, then its
disks are slow. At the end a user calls the study again, audits, renders, verifies and promotes. When this program ends, all that it
began ends. `make team` is its short form; docs/scaling.md has the figures of docs/measured/.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import psutil

from benchmarks.recording import FOLDER, ROOT, add_options, recorded, tell, where
from benchmarks.tables import inserted, line
from benchmarks.verb_cost import Cost, answer_of
from tests.helpers.team_server import ADMIN, DATABASE, Team, missing, team_server
from tests.stress.server_outage import twice
from tests.stress.workers import Share, Shared, together

MEASURED = FOLDER / "ten_thousand.json"
PAGE = ROOT / "docs" / "scaling.md"
BEGIN = "<!-- measured: python -m benchmarks.ten_thousand_a_day --record -->"
DAY, HOUR, MEGABYTE = 10_000, 3600.0, 1e6  # runs; seconds; bytes
USER, EPOCHS = "ann", 5
METHODS, EACH = ("bp", "dfa"), 3  # EACH: runs of a seed, the control's among them
TURNS = 2  # runs of each worker in a part of the study, which they share
SAFE = ""  # PostgreSQL's own settings, by which a commit is on disk
SLOW_COMMIT, STALL, AWAY = (
    100_000,
    0.8,
    5.0,
)  # µs of a commit; seconds of each that the S3 store stands still; of the server's absence
ASKED = re.compile(
    r'"([A-Z]+) (?:/api|/ajax-api)?(?:/[\d.]+)?/([\w/-]*?)(?:/artifacts/\S*|/m-\w+)?(?:\?\S*)? HTTP/[\d.]+" (\d+)'
)
RESTARTED, SLOW = "server restarted", "slow disks"
REPORT = "reports/audit.json"


class Failed(Exception):
    """A run was lost or trained twice, a worker crashed, or a command did not do what it should."""


@dataclass(frozen=True)
class Phase:
    """So many workers for so long.

    disturbed: RESTARTED, SLOW or "". seconds: after which no worker began another part. best: runs an hour, in the best minute. cpu
    and requests: for each run, by part and by what was asked. given_up: runs that were made and discarded, because another worker
    had the lease. after_restart: runs that ended after the server answered again. cores: CPU seconds a second of all parts; others:
    of what else ran on the machine. mb: of each 1,000 runs, by part.
    """

    workers: int
    disturbed: str
    seconds: float
    runs: int
    best: float
    cpu: Mapping[str, float]
    requests: Mapping[str, float]
    server_errors: int
    given_up: int
    after_restart: int
    warnings: Sequence[str]
    cores: float
    others: float
    mb: Mapping[str, float]

    @property
    def an_hour(self) -> float:
        """Runs, from the first process's start to the last one's end."""
        return HOUR * self.cores / sum(self.cpu.values())


class Load:
    """The team at work, and a user's study on it, of which every phase trains further parts."""

    def __init__(self, team: Team):
        self.team, self._begun, self._ended = team, 0, Counter()
        self.shared = Shared(team.address, team.folder, place=team.add_user(USER))
        self.shared.write(METHODS, range(DAY), EPOCHS)

    @property
    def seeds(self) -> range:
        """Those that were begun."""
        return range(self._begun)

    def phase(self, workers: int, seconds: float, disturbed: str = "") -> Phase:
        """Raises Failed where a worker crashed."""
        size = max(1, TURNS * workers // EACH)
        shared = replace(
            self.shared, parts=[range(at, at + size) for at in range(self._begun, DAY, size)], seconds=seconds
        )
        before, moments = self._reading(), []

        def meanwhile() -> None:
            moments.append(time.time())
            if disturbed == RESTARTED:
                self._restart(seconds / 3)
            moments.append(time.time())

        with slow_disks(self.team) if disturbed == SLOW else contextlib.nullcontext():
            shares = together(shared, workers, meanwhile)
        self._begun = shared.parts[max(share.part for share in shares)].stop
        if crashed := [share.error for share in shares if share.error]:
            raise Failed("\n".join(crashed))
        more = Counter(self._reading())
        more.subtract(before)
        ends = [self._ends(moment) for moment in moments]
        return phase_of(
            (workers, disturbed, seconds), more, shares, [end - moments[0] for end in ends[0]], len(ends[1])
        )

    def _reading(self) -> Counter[str]:
        """At this moment: seconds by the clock, CPU seconds, bytes, requests by kind."""
        team, busy, found = self.team, psutil.cpu_times(), Counter()
        found["clock"], found["machine"] = time.monotonic(), busy.user + busy.nice + busy.system
        for part, process in self._processes().items():
            found[f"cpu {part}"] = cpu_of(process) + self._ended[part]
        found["bytes PostgreSQL"] = int(self.query(f"SELECT pg_database_size('{DATABASE}')"))
        files = [path for path in (team.folder / "files").rglob("*") if path.is_file()]
        found["bytes S3 store"] = sum(path.stat().st_blocks * 512 for path in files)
        found["given up"] = int(self.query("SELECT count(*) FROM runs WHERE lifecycle_stage = 'deleted'"))
        for method, what, status in ASKED.findall((team.folder / "server.log").read_text(errors="replace")):
            found[f"asked {method} {what}"] += 1
            found["errors"] += status.startswith("5")
        return found

    def _processes(self) -> dict[str, int]:
        """The first process of each part of the server."""
        postgres = (self.team.database.folder / "data" / "postmaster.pid").read_text().split()[0]
        return {
            "MLflow server": self.team.process("server"),
            "PostgreSQL": int(postgres),
            "S3 store": self.team.process("files"),
        }

    def _restart(self, after: float) -> None:
        time.sleep(after)
        self._ended["MLflow server"] += cpu_of(self.team.process("server"))
        self.team.end("server")
        time.sleep(AWAY)
        self.team.begin("server")

    def _ends(self, since: float) -> list[float]:
        """When runs ended, in seconds since 1970."""
        found = self.query(f"SELECT end_time FROM runs WHERE status = 'FINISHED' AND end_time > {since * 1000:.0f}")
        return [int(end) / 1000 for end in found.split()]

    def query(self, text: str) -> str:
        return self.team.database.call("psql", "-Atc", text, DATABASE).strip()

    def logged_models(self) -> int:
        """Complete runs whose final weights are a logged model of MLflow that is ready."""
        return int(
            self.query(
                "SELECT count(DISTINCT run_uuid) FROM logged_models JOIN runs ON source_run_id = run_uuid WHERE "
                "logged_models.status = 2 AND logged_models.lifecycle_stage = 'active' AND runs.status = 'FINISHED'"
            )
        )


def phase_of(
    asked: tuple[int, str, float], more: Mapping[str, float], shares: Sequence[Share], ends: Sequence[float], after: int
) -> Phase:
    """asked: workers, disturbed, seconds. more: by what a reading grew. ends: of runs, in seconds since the phase began."""
    (workers, disturbed, seconds), runs = asked, sum(len(share.trained) for share in shares)
    cpu = {"workers": sum(share.cpu for share in shares), **_part(more, "cpu ")}
    minute = min(60.0, seconds)
    return Phase(
        workers=workers,
        disturbed=disturbed,
        seconds=seconds,
        runs=runs,
        best=max(sum(end - minute < other <= end for other in ends) for end in ends) * HOUR / minute,
        cpu={part: spent / runs for part, spent in cpu.items()},
        requests={what: count / runs for what, count in sorted(_part(more, "asked ").items()) if count},
        server_errors=more["errors"],
        given_up=more["given up"],
        after_restart=after,
        warnings=sorted({warning for share in shares for warning in share.warnings}),
        cores=sum(cpu.values()) / more["clock"],
        others=max(0.0, more["machine"] - sum(cpu.values())) / more["clock"],
        mb={part: grown / MEGABYTE * 1000 / runs for part, grown in _part(more, "bytes ").items()},
    )


def _part(found: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def cpu_of(process: int) -> float:
    """Seconds of a process and of all that it began."""
    first = psutil.Process(process)
    return sum(sum(one.cpu_times()[:4]) for one in (first, *first.children(recursive=True)))


@contextmanager
def slow_disks(team: Team) -> Iterator[None]:
    """Every commit takes SLOW_COMMIT longer, and the S3 store answers nothing for STALL seconds of each."""
    ended = threading.Event()

    def stall() -> None:
        while not ended.wait(1 - STALL):
            os.killpg(team.process("files"), signal.SIGSTOP)
            ended.wait(STALL)
            os.killpg(team.process("files"), signal.SIGCONT)

    stalls = threading.Thread(target=stall)
    _set(team, commit_delay=SLOW_COMMIT, commit_siblings=0)
    stalls.start()
    try:
        yield
    finally:
        ended.set()
        stalls.join()
        _set(team, commit_delay=0, commit_siblings=5)


def _set(team: Team, **settings: int) -> None:
    for name, value in settings.items():
        team.database.call("psql", "-qc", f"ALTER SYSTEM SET {name} = {value}", DATABASE)
    team.database.call("psql", "-qAtc", "SELECT pg_reload_conf()", DATABASE)


def simulate(load: Load, minutes: float, workers: int) -> dict[str, Any]:
    """The phases, what became of the runs, what a user's commands cost, and what gives way first."""
    seconds = minutes * 60
    plan = [(max(1, workers // 8), "", 0.15), (max(2, workers // 2), "", 0.25), (workers, "", 0.3)]
    plan += [(workers, RESTARTED, 0.15), (workers, SLOW, 0.15)]
    phases = []
    for count, disturbed, share in plan:
        phases.append(load.phase(count, seconds * share, disturbed))
        print(phases[-1], file=sys.stderr, flush=True)
    cpu = {part: spent for part, spent in phases[2].cpu.items() if part != "workers"}
    return {
        "workers": workers,
        "minutes": minutes,
        "epochs": EPOCHS,
        "phases": [asdict(one) for one in phases],
        "counts": counts_of(load),
        "commands": {words: asdict(cost) for words, cost in commands(load)},
        "one_core_an_hour": {part: HOUR / spent for part, spent in cpu.items()},
        "gives_way_first": max(cpu, key=cpu.__getitem__),
    }


def counts_of(load: Load) -> dict[str, int]:
    """What became of the runs; Failed where it is not that each is complete once."""
    expected = EACH * len(load.seeds)
    found = {**asdict(load.shared.runs()), "logged_models": load.logged_models()}
    if found != {"complete": expected, "lost": 0, "twice": 0, "running": 0, "logged_models": expected}:
        raise Failed(f"of {expected} runs: {found}")
    if more := twice(load.team.database.address(DATABASE)):
        raise Failed(more)
    return found


def commands(load: Load) -> Iterator[tuple[str, Cost]]:
    """What a user's commands cost, each once; Failed for a wrong answer."""
    runs, size = EACH * len(load.seeds), ("--seeds", ",".join(map(str, load.seeds)), "--device", "cpu")

    def ask(*arguments: str) -> tuple[Cost, Any]:
        cost, answer = answer_of([*arguments, "--json"], load.shared.folder, load.shared.place)
        return cost, json.loads(answer)

    cost, answer = ask("study", "shared", *size)
    yield "study, nothing to train", cost
    if answer["trained"] or len(answer["present"]) != runs:
        raise Failed(f"study: trained {answer['trained']}, present {len(answer['present'])} of {runs}")
    cost, answer = ask("audit", "--study", "shared", *size, "--trust-logged", "--exit-zero")
    yield "audit --trust-logged", cost
    judged = {run["record"]["run_id"]: run["verdict"]["outcome"] for run in answer["report"]["runs"]}
    if len(judged) != runs or answer["report"]["excluded"]:
        raise Failed(f"audit: judged {len(judged)} of {runs}")
    yield "report", ask("report", "--study", "shared", "--out", "again")[0]
    cost, answer = ask("verify", REPORT)
    yield "verify", cost
    states = {result["run_id"]: result["integrity"]["state"] for result in answer}
    if states != dict.fromkeys((*judged, ""), "verified"):  # "": audit.json itself
        raise Failed(f"verify: {states}")
    if best := next((run_id for run_id, outcome in judged.items() if outcome in ("pass", "warn")), ""):
        yield "promote", ask("promote", best)[0]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0, help="of all phases together")
    parser.add_argument("--workers", type=int, default=16, help="at most")
    parser.add_argument("--keep", action="store_true", help="leave it at work until Ctrl-C, for a person to look at")
    add_options(parser, MEASURED)
    asked = parser.parse_args(arguments)
    if missing():
        print(missing(), file=sys.stderr)
        return 2
    try:
        with team_server(SAFE) as team:
            load = Load(team)
            found = simulate(load, asked.minutes, asked.workers)
            tell(found, list(lines(found)), asked, MEASURED)
            if asked.record:
                page = inserted(PAGE.read_text(encoding="utf-8"), BEGIN, render(recorded(MEASURED)))
                PAGE.write_text(page, encoding="utf-8")
            if asked.keep:
                _keep(team, load.shared.place)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The tables and figures that docs/scaling.md has too."""
    parts = ("MLflow server", "PostgreSQL", "S3 store", "workers")
    phases = [Phase(**phase) for phase in found["phases"]]
    yield line(
        [
            "workers",
            "runs an hour",
            "best minute",
            "discarded runs",
            *(f"{part}, CPU a run" for part in parts),
            "cores used",
        ]
    )
    yield "|---|" + "---:|" * 8
    for one in phases:
        words = ", ".join(filter(None, [str(one.workers), one.disturbed]))
        cells = [f"{one.an_hour:.0f}", f"{one.best:.0f}", f"{one.given_up} / {one.runs}"]
        yield line([words, *cells, *(f"{one.cpu[part]:.2f} s" for part in parts), f"{one.cores:.1f}"])
    yield ""
    yield line(["command at the end", "CPU", "by the clock", "memory"])
    yield "|---|---:|---:|---:|"
    for words, cost in ((words, Cost(**cost)) for words, cost in found["commands"].items()):
        yield line([words, f"{cost.cpu:.1f} s", f"{cost.wall:.1f} s", f"{cost.peak:.0f} MiB"])
    yield ""
    yield from _figures(found, phases)


def _figures(found: Mapping[str, Any], phases: Sequence[Phase]) -> Iterator[str]:
    full, counts, first = phases[2], found["counts"], found["gives_way_first"]
    best, errors = max(one.best for one in phases), sum(one.server_errors for one in phases)
    restarted = next(one for one in phases if one.disturbed == RESTARTED)
    rates = ", ".join(f"{part} {rate:,.0f}" for part, rate in found["one_core_an_hour"].items())
    grown = ", ".join(f"{part} {mb:.0f} MB" for part, mb in full.mb.items())
    yield f"- {DAY:,} runs a day are {DAY / 24:.0f} an hour. The best minute reached the rate of {best:.0f} an hour."
    yield f"- The first part to give way is the {first}. One core of each part serves, in runs an hour: {rates}."
    yield f"- {full.workers} workers sent {sum(full.requests.values()):.1f} requests a run."
    yield f"- Growth for each 1,000 runs of {found['epochs']} epochs: {grown}."
    yield f"- Of {counts['complete'] + counts['lost']} runs, {counts['lost']} were lost and {counts['twice']} trained twice."
    yield f"  MLflow lists {counts['logged_models']} final checkpoints as logged models. The server answered with {errors} errors."
    yield f"- The server was killed and started again. No worker ended, and {restarted.after_restart} of"
    yield f"  {restarted.runs} runs ended afterwards."
    yield f"- Other programs used {full.others:.1f} cores of the machine meanwhile."


def render(kept: Mapping[str, Any] | None) -> str:
    """The block of docs/scaling.md; kept: None where nothing was recorded."""
    if kept is None:
        return "Not recorded yet: it needs about half an hour of a machine on which nothing else runs."
    return "\n".join([f"{where(kept, 'benchmarks.ten_thousand_a_day')}:\n", *lines(kept)])


def _keep(team: Team, user: Mapping[str, str]) -> None:
    print(f"{team.address}  user {USER}, password {user['MLFLOW_TRACKING_PASSWORD']}")
    print(f"{' ' * len(team.address)}  user {ADMIN}, password {team.given['ADMIN_PASSWORD']}", flush=True)
    print("Ctrl-C ends it, and removes all that it holds", flush=True)
    signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that all parts are ended
    sys.exit(main(sys.argv[1:]))
