"""A PostgreSQL server of a test's own, reached by a socket in its folder alone."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SYSTEM_USER = "postgres"  # the server refuses to be root
DEBIAN = Path("/usr/lib/postgresql")  # where programs that no user needs are kept, by release
LOCAL = "-c listen_addresses= -c unix_socket_directories="
QUICK = "-c fsync=off -c full_page_writes=off"
OWN = "team"  # the user, who may do everything


def missing() -> str:
    """What this machine lacks for it; empty where it lacks nothing."""
    if not programs():
        return "postgresql is not installed"
    return "" if importlib.util.find_spec("psycopg2") else "psycopg2-binary is not installed"


@dataclass(frozen=True)
class Postgres:
    """folder: of its data and of its socket. settings: of its program, beyond those of its address."""

    folder: Path
    settings: str = QUICK

    def address(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg2://{OWN}@/{database}?host={self.folder}"

    @property
    def place(self) -> dict[str, str]:
        """The environment that gives its clients its address."""
        return {"PGHOST": str(self.folder), "PGUSER": OWN}

    def begin(self) -> None:
        settings = f"{self.settings} {LOCAL}{self.folder}"
        self._control("pg_ctl", "-w", "-t", "240", "-l", str(self.folder / "log"), "-o", settings, "start")

    def end(self) -> None:
        """At once, with nothing written that a kill would not have left."""
        self._control("pg_ctl", "-w", "-m", "immediate", "stop")

    def make(self) -> None:
        self._control("initdb", "-U", OWN, "-A", "trust", "--no-sync")

    def call(self, program: str, *arguments: str) -> str:
        """One of its clients, as createdb, psql or pg_dump; what it prints."""
        command, place = [programs() / program, *arguments], {**os.environ, **self.place}
        return subprocess.run(command, check=True, env=place, stdout=subprocess.PIPE, text=True, timeout=300).stdout

    def _control(self, program: str, *arguments: str) -> None:
        user = {"user": SYSTEM_USER, "group": SYSTEM_USER} if os.getuid() == 0 else {}
        command = [programs() / program, "-D", self.folder / "data", *arguments]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, timeout=300, **user)


@contextmanager
def postgres(settings: str = QUICK) -> Iterator[Postgres]:
    """One that is at work, with the empty database `postgres`."""
    folder = Path(tempfile.mkdtemp(prefix="fa_registry-postgres-", dir="/tmp"))  # a socket's path may have 107 bytes
    if os.getuid() == 0:
        shutil.chown(folder, SYSTEM_USER, SYSTEM_USER)
    server = Postgres(folder, settings)
    try:
        server.make()
        server.begin()
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():  # else ended already, by who tries what that does
                server.end()
    finally:
        shutil.rmtree(folder)


def programs() -> Path | None:
    """The folder of PostgreSQL's programs."""
    installed = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parent.parent.name))
    found = shutil.which("initdb") or (installed and installed[-1])
    return Path(found).resolve().parent if found else None
