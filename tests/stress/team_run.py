"""A team's server on loopback, in real parts, and the digits study on it by workers that start together.

    python -m tests.stress.team_run [--epochs 3] [--seeds 42,123,456] [--workers 4] [--keep]

PostgreSQL, an S3 store and an MLflow server with users begin; a user who is no admin trains, audits, renders, verifies and
promotes through the server. One line per command: its result, and seconds. When this program ends, all that it began ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from tests.helpers.team_server import ADMIN, ROOT, Team, missing, team_server

STUDY, USER, ALIAS = "digits", "ann", "champion"
REPORT = "reports/audit.json"
SECONDS = 1800  # after which a command counts as never ending
MESSAGE_LENGTH = 2000  # of the last characters of a command that failed


class Failed(Exception):
    """A command did not do what it should; the text says which, and what it printed."""


class Colleague:
    """A user at work in `folder`. given: the environment that names server, user and password."""

    def __init__(self, folder: Path, given: Mapping[str, str]):
        self._folder = folder
        self._place = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "AWS_"))},
            **given,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }

    def ask(self, command_name: str, *arguments: str, expected: Sequence[int] = (0,)) -> dict:
        """What a command answers, as JSON; Failed for another exit code, and for a word on standard output that is none."""
        return self.together(1, command_name, *arguments, expected=expected)[0]

    def together(self, count: int, command_name: str, *arguments: str, expected: Sequence[int] = (0,)) -> list[dict]:
        """The answers of as many processes of the same command, which start in the same moment."""
        with contextlib.ExitStack() as kept:
            command = [sys.executable, "-m", "fa_registry", command_name, *arguments, "--json"]
            begun = [kept.enter_context(self._process(command)) for _ in range(count)]
            ends = [(process.communicate(timeout=SECONDS), process.returncode) for process in begun]
        answers = []
        for (printed, errors), code in ends:
            try:
                answers.append(json.loads(printed))
            except ValueError as error:
                raise Failed(
                    f"{command_name}: exit code {code}, no JSON: {printed[-MESSAGE_LENGTH:]}{errors[-MESSAGE_LENGTH:]}"
                ) from error
            if code not in expected:
                raise Failed(f"{command_name}: exit code {code}: {errors[-MESSAGE_LENGTH:]}")
        return answers

    @contextlib.contextmanager
    def _process(self, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        """Ended with the block, by SIGTERM first: then its own workers end too."""
        process = subprocess.Popen(
            command, cwd=self._folder, env=self._place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                process.kill()
                process.wait()


def trained_and_judged(colleague: Colleague, size: Sequence[str], workers: int) -> Iterator[str]:
    """One line per command. size: options that say how much of the study."""
    ends = colleague.together(workers, "worker", STUDY, *size, "--jobs", "1", "--device", "cpu")
    trained = [run_id for end in ends for run_id in end["trained"]]
    held = {run_id for end in ends for run_id in (*end["trained"], *end["elsewhere"], *end["present"])}
    if len(trained) != len(set(trained)) or set(trained) != held or any(end["failed"] for end in ends):
        raise Failed(f"worker: trained {trained}, held {held}")
    shares = ", ".join(str(len(end["trained"])) for end in ends)
    yield f"worker: {len(trained)} runs by {workers} workers ({shares})"

    audit = colleague.ask(
        "audit", "--study", STUDY, *size, expected=(0, 1)
    )  # 1: a run breaks a rule, which is no fault here
    judged = {run["record"]["run_id"]: run["verdict"]["outcome"] for run in audit["report"]["runs"]}
    if set(judged) != held or audit["report"]["excluded"]:
        raise Failed(f"audit: judged {set(judged)} of {held}")
    yield f"audit: {len(judged)} runs judged"

    yield f"report: {len(colleague.ask('report', '--study', STUDY, '--out', 'again'))} files, of the newest audit"

    states = {result["run_id"]: result["integrity"]["state"] for result in colleague.ask("verify", REPORT)}
    if states != dict.fromkeys((*held, ""), "verified"):  # "": audit.json itself
        raise Failed(f"verify: {states}")
    yield f"verify: {len(held)} runs as they were judged"

    best = next(run_id for run_id, outcome in judged.items() if outcome in ("pass", "warn"))
    promoted = colleague.ask("promote", best)
    yield f"promote: {promoted['reference']}, {promoted['verdict']}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", default="3")
    parser.add_argument("--seeds", default="42,123,456")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--keep", action="store_true", help="leave it at work until Ctrl-C, for a person to look at")
    asked = parser.parse_args(arguments)
    if missing():
        print(missing(), file=sys.stderr)
        return 2
    begun = time.monotonic()
    try:
        with team_server() as team:
            user = team.add_user(USER)
            size = ["--epochs", asked.epochs, "--seeds", asked.seeds]
            parts = ["server: PostgreSQL, an S3 store, MLflow with users"]
            for line in chain(parts, trained_and_judged(Colleague(team.folder, user), size, asked.workers)):
                print(f"{line}, {time.monotonic() - begun:.0f} s", flush=True)
                begun = time.monotonic()
            if asked.keep:
                _keep(team, user)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _keep(team: Team, user: Mapping[str, str]) -> None:
    print(f"{team.address}  user {USER}, password {user['MLFLOW_TRACKING_PASSWORD']}")
    print(f"{' ' * len(team.address)}  user {ADMIN}, password {team.given['ADMIN_PASSWORD']}", flush=True)
    print("Ctrl-C ends it, and removes all that it holds", flush=True)
    signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that all parts are ended
    sys.exit(main(sys.argv[1:]))
