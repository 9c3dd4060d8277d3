"""The command `ui`, which serves MLflow's pages for a store.

The first page compares the newest runs.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fa_registry import process_ownership
from fa_registry.errors import RegistryError, UsageError
from fa_registry.studies.executors.local import stop_on_signal
from fa_registry.text_safety import without_password
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.mlflow_views import MACHINE_LEARNING
from fa_registry.tracking.schema import TAG_KIND, TAG_STUDY
from fa_registry.tracking.store import command_on, sqlite_path
from fa_registry.tracking.stores import UI, mlflow_page, open_tracker

LOG = logging.getLogger(__name__)
HOST, PORT = "127.0.0.1", int(UI.rpartition(":")[2])
START = 180  # seconds in which the server must answer; on a busy machine it takes half a minute
EMPTY = f"#/experiments{MACHINE_LEARNING}"  # page of a store without runs
PATIENCE = 10  # seconds that the server has to end its open requests
POLL = 0.2  # seconds between two checks of the server


@contextmanager
def served_pages(store: str, study: str = "", port: int = 0) -> Iterator[tuple[str, subprocess.Popen | None]]:
    """Context manager: serve MLflow's pages for a store, on this machine only.

    Yield the address of the page that compares the runs, and the server's process. If the store is itself a server, no other
    server is started and the process is None.

    Args:
        store: MLflow tracking URI. If empty, the default store is used; a missing database is created.
        study: study whose runs are compared. If empty, the study of the newest run, or else the newest study of its experiment.
        port: port of the server. If `port` is 0, the server uses port 5000 if it is free, and otherwise any free port.

    Raises:
        UsageError: the store has no run of the study.
        RegistryError: the port is in use, or the server does not start.
    """
    tracker = open_tracker(store)
    newest = tracker.search({TAG_KIND: "run"} | ({TAG_STUDY: study} if study else {}), most=1)
    if study and not newest:
        raise UsageError(
            f"study {study}: the store {tracker.uri} has no run of this study; see `{command_on('list runs', tracker.uri)}`"
        )
    page = mlflow_page(tracker, study, newest[0].experiment, [newest[0].run_id]) if newest else EMPTY
    if not newest:
        LOG.info("the store %s has no runs yet; to train runs, use e.g. `fa-registry run digits`", tracker.uri)
    if tracker.uri.startswith("http"):
        yield f"{tracker.uri.rstrip('/')}/{page}", None
        return
    with tempfile.TemporaryFile() as log:
        address, server = _ready_server(tracker, port, log)
        try:
            yield f"{address}/{page}", server
        finally:
            _end_server(server)


def wait_for_end(server: subprocess.Popen) -> None:
    """Wait until the user presses Ctrl-C or the server ends.

    Raises:
        RegistryError: the server ended by itself.
    """
    with stop_on_signal() as stop:
        while not stop():
            if server.poll() is not None:
                raise RegistryError(f"MLflow's server ended with exit code {server.returncode}")
            time.sleep(POLL)


def _usable_port(port: int) -> int:
    for candidate in (port,) if port else (PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            with suppress(OSError):
                probe.bind((HOST, candidate))
                return probe.getsockname()[1]
    raise RegistryError(f"port {port} cannot be used on {HOST}; choose another port, or omit --port for a free port")


def _ready_server(tracker: MlflowTracker, port: int, log: BinaryIO) -> tuple[str, subprocess.Popen]:
    """Start a server, wait until it answers, and return its address and process."""
    address = f"http://{HOST}:{_usable_port(port)}"
    server = _start_server(tracker, address, log)
    try:
        _wait_until_ready(address, server, log)
    except BaseException:
        _end_server(server)
        raise
    return address, server


def _start_server(tracker: MlflowTracker, address: str, log: BinaryIO) -> subprocess.Popen:
    database = sqlite_path(tracker.uri)
    artifacts = (database.parent if database else Path.cwd()) / "mlartifacts"
    host, port = address.removeprefix("http://").split(":")
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", port, "--workers", "1"]
    environment = os.environ | {
        "MLFLOW_BACKEND_STORE_URI": tracker.uri,  # may contain a password, which other users could read in the arguments
        "MLFLOW_ARTIFACTS_DESTINATION": str(artifacts),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # jobs serve language models only
        process_ownership.VARIABLE: process_ownership.process_tag(),  # lets `doctor` find the server of a killed process
    }
    return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def _end_server(server: subprocess.Popen) -> None:
    """End the server and its workers, which belong to its process group."""
    for number, seconds in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(server.pid, number)
            server.wait(seconds)
            return


def _wait_until_ready(address: str, server: subprocess.Popen, log: BinaryIO) -> None:
    deadline = time.monotonic() + START
    has_ended = False
    while time.monotonic() < deadline and not has_ended:
        has_ended = server.poll() is not None
        log.seek(0)
        text = log.read().decode(errors="replace")
        if f"running on {address}" in text:  # an answer could come from another program's server on the same port
            return
        time.sleep(POLL)
    last_lines = without_password("\n".join(text.splitlines()[-5:]))
    raise RegistryError(f"MLflow's server did not start at {address}. The last messages of the server:\n{last_lines}")
