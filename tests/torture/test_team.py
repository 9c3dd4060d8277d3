"""The short form of `make team`, one seed and one epoch; then what its colleagues meet, and its backup in another team's server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.end_to_end.conftest import needed, skipped
from tests.helpers.postgres import postgres, programs
from tests.helpers.team import Team, missing, team_server
from tests.torture.team import REPORT, USER, Colleague, trained_and_judged

SIZE = ["--epochs", "1", "--seeds", "42"]
PAGE = (ROOT / "docs" / "team-server.md").read_text()


@pytest.mark.long
def test_a_team_of_four_workers_then_its_backup_in_another_server(tmp_path):
    if missing():
        skipped(missing())
    needed("rclone")
    with team_server() as team:
        user = team.add_user(USER)
        verbs = [line.partition(":")[0] for line in trained_and_judged(Colleague(tmp_path, user), SIZE, workers=4)]
        assert verbs == ["work", "audit", "report", "verify", "promote"]
        as_documented(["mkdir", "pg_dump", "rclone"], tmp_path, team)
        secrets = team.given
    with other_team(tmp_path / "other", secrets) as other:
        as_documented(["createdb", "pg_restore", "rclone"], tmp_path, other)
        other.begin("server")
        restored = Colleague(tmp_path, {**user, "MLFLOW_TRACKING_URI": other.address})  # the users came along
        states = {result["integrity"]["state"] for result in restored.ask("verify", REPORT)}
        assert states == {"verified"}


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


def as_documented(names: list[str], folder: Path, team: Team) -> None:
    """Call the page's next lines that begin with these programs, as they stand there."""
    block = next(block for block in PAGE.split("\n\n") if f"    {names[1]} " in block)
    lines = [line.strip() for line in block.splitlines()]
    exports = [line for line in PAGE.splitlines() if line.startswith("    export RCLONE")]
    here = "\n".join(exports).replace("http://127.0.0.1:8333", team.files)
    place = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
    place |= {**team.keys, **team.database.place, "PATH": f"{programs()}:{os.environ['PATH']}"}
    calls = [line for line in lines if line.split()[0] in names]
    assert [line.split()[0] for line in calls] == names
    subprocess.run(["bash", "-euc", "\n".join([here, *calls])], cwd=folder, env=place, check=True, timeout=600)
