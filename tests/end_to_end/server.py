"""A real MLflow server for a test: on a free loopback port, one worker, ended with the test."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.end_to_end.conftest import BIN

SECONDS = 120  # until it answers; on a busy machine it takes half a minute


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def mlflow_server(store: str, artifacts: Path, port: int = 0, signal: int = 15) -> Iterator[str]:
    """Its address. store: database URI; artifacts: the folder where it keeps them itself. signal: what ends it."""
    port = port or free_port()
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    what = ["--backend-store-uri", store, "--artifacts-destination", str(artifacts)]
    process = subprocess.Popen(
        [str(BIN / "mlflow"), "server", *where, *what],
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PATH": f"{BIN}:{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal)
        process.wait(timeout=30)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"{address} did not answer")
