"""A PostgreSQL server of a test's own, reached by a socket in its folder alone."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SYSTEM_USER = "postgres"  # the server refuses to be root
DEBIAN = Path("/usr/lib/postgresql")  # where programs that no user needs are kept, by release
QUICK = "-c fsync=off -c full_page_writes=off -c listen_addresses= -c unix_socket_directories="


def missing() -> str:
    """What this machine lacks for it; empty where it lacks nothing."""
    if not _programs():
        return "postgresql is not installed"
    return "" if importlib.util.find_spec("psycopg2") else "psycopg2-binary is not installed"


@contextmanager
def postgres() -> Iterator[str]:
    """The address of an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="fa_registry-postgres-", dir="/tmp"))  # a socket's path may have 107 bytes
    user = {"user": SYSTEM_USER, "group": SYSTEM_USER} if os.getuid() == 0 else {}
    if user:
        shutil.chown(folder, SYSTEM_USER, SYSTEM_USER)

    def call(program: str, *arguments: str) -> None:
        command = [_programs() / program, "-D", folder / "data", *arguments]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=300, **user)

    try:
        call("initdb", "-U", "team", "-A", "trust", "--no-sync")
        call("pg_ctl", "-w", "-t", "240", "-l", str(folder / "log"), "-o", f"{QUICK}{folder}", "start")
        try:
            yield f"postgresql+psycopg2://team@/postgres?host={folder}"
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _programs() -> Path | None:
    installed = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parent.parent.name))
    found = shutil.which("initdb") or (installed and installed[-1])
    return Path(found).resolve().parent if found else None
