"""A day's load in short; then what a team's colleagues meet, and its backup in another team's server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from benchmarks.ten_thousand_a_day import REPORT, Load, simulate
from benchmarks.verb_cost import answer_of
from fa_registry.tracking.schema import TAG_VIEW
from tests.docs.pages import ROOT
from tests.end_to_end.conftest import needed, skipped
from tests.helpers.postgres import postgres, programs
from tests.helpers.team_server import Team, missing, team_server

WORKERS, MINUTES = 4, 0.25
PAGE = (ROOT / "docs" / "team-server.md").read_text()


@pytest.mark.long
def test_the_load_of_a_day_in_short_then_its_backup_in_another_server(tmp_path):
    if missing():
        skipped(missing())
    needed("rclone")
    with team_server() as team:
        load = Load(team)
        user = load.shared.place
        found = simulate(load, MINUTES, WORKERS)  # raises Failed where a run is lost, trained twice or not judged
        assert found["counts"]["complete"] == sum(phase["runs"] for phase in found["phases"])
        assert found["phases"][3]["after_restart"] > 0
        assert all(phase["server_errors"] == 0 for phase in found["phases"])
        assert "/presigned/" not in (team.folder / "server.log").read_text()  # no client is sent to the S3 store
        assert views(team, user)
        shut_out_and_let_in(team, tmp_path)
        as_documented(["mkdir", "pg_dump", "rclone"], tmp_path, team)
        secrets, report = team.given, shutil.copy(team.folder / REPORT, tmp_path)
    with other_team(tmp_path / "other", secrets) as other:
        as_documented(["createdb", "pg_restore", "rclone"], tmp_path, other)
        other.begin("server")
        place = {**user, "MLFLOW_TRACKING_URI": other.address}  # the users came along
        _, answer = answer_of(["verify", str(report), "--json"], tmp_path, place)
        assert {result["integrity"]["state"] for result in json.loads(answer)} == {"verified"}


@contextmanager
def other_team(folder: Path, secrets: dict[str, str]) -> Iterator[Team]:
    """Parts that hold nothing yet, the server not begun."""
    folder.mkdir()
    with postgres() as database:
        other = Team(folder, database, given=secrets)
        other.begin("files")
        try:
            yield other
        finally:
            other.end_all()


def views(team: Team, user: dict[str, str]) -> list[str]:
    """The views of MLflow's pages that are in the registry's experiment."""
    known_as = user["MLFLOW_TRACKING_USERNAME"], user["MLFLOW_TRACKING_PASSWORD"]
    asked = f"{team.address}/api/2.0/mlflow/experiments/get-by-name?experiment_name=fa_registry"
    tags = requests.get(asked, auth=known_as, timeout=60).json()["experiment"]["tags"]
    return [tag["key"] for tag in tags if tag["key"].startswith(TAG_VIEW)]


def shut_out_and_let_in(team: Team, folder: Path) -> None:
    """By the page's lines for users and permissions, as written there except name, passwords and address."""
    lines = [line.strip() for line in PAGE.splitlines() if line.startswith("    curl -u admin")]
    make, shut_out, let_in = (
        line.replace('"ann"', '"bob"')
        .replace("…", "of-twelve-letters")
        .replace("-u admin", f"-u admin:{team.given['ADMIN_PASSWORD']} --fail --silent")
        .replace("http://127.0.0.1:5000", team.address)
        for line in lines
    )
    bob = {"TRACKING_URI": team.address, "TRACKING_USERNAME": "bob", "TRACKING_PASSWORD": "of-twelve-letters"}
    place = {**os.environ, **{f"MLFLOW_{name}": value for name, value in bob.items()}, "PYTHONPATH": str(ROOT)}

    def trains() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fa_registry", "train", "--method", "bp", "--seed", "7", "--epochs", "1"]
        return subprocess.run(command, cwd=folder, env=place, capture_output=True, text=True, timeout=600)

    for command, refused in ((make, ""), (shut_out, "user 'bob' has no permission"), (let_in, "")):
        subprocess.run(["bash", "-euc", command], check=True, timeout=600)
        answer = trains()
        assert (answer.returncode, refused in answer.stderr) == (2 if refused else 0, True), answer.stderr


def as_documented(names: list[str], folder: Path, team: Team) -> None:
    """Call the page's next lines that begin with these programs, as written there."""
    block = next(block for block in PAGE.split("\n\n") if f"    {names[1]} " in block)
    lines = [line.strip() for line in block.splitlines()]
    exports = [line for line in PAGE.splitlines() if line.startswith("    export RCLONE")]
    here = "\n".join(exports).replace("http://127.0.0.1:8333", team.files)
    place = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
    place |= {**team.keys, **team.database.place, "PATH": f"{programs()}:{os.environ['PATH']}"}
    calls = [line for line in lines if line.split()[0] in names]
    assert [line.split()[0] for line in calls] == names
    subprocess.run(["bash", "-euc", "\n".join([here, *calls])], cwd=folder, env=place, check=True, timeout=600)
