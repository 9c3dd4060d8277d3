"""The command `ui`: which page it opens, which port it takes, and that nothing of it stays."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from fa_registry.errors import RegistryError, UsageError
from fa_registry.inspection import ui
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.stores import mlflow_page
from tests.end_to_end.server import free_port


@pytest.fixture
def server(monkeypatch):
    """Replaces MLflow's server by a program that prints what MLflow's server prints when it is ready."""

    def start(text: str, ignores_end: bool = False) -> None:
        deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores_end else ""
        program = f"import time\n{deaf}\nprint({text!r}, flush=True); time.sleep(60 if 'running' in {text!r} else 0)"
        popen = subprocess.Popen

        def started(command, **options):
            assert not any("sqlite" in part for part in command)  # other users can read a process's arguments
            address = f"http://{command[5]}:{command[7]}"
            return popen([sys.executable, "-c", program.replace("ADDRESS", address)], **options)

        monkeypatch.setattr(ui.subprocess, "Popen", started)

    return start


def test_it_opens_the_comparison_of_the_newest_runs_study(trained_tracker, server):
    server("Uvicorn running on ADDRESS (Press CTRL+C to quit)")
    tracker, study = trained_tracker
    with ui.served_pages(tracker.uri) as (address, process):
        assert address.endswith(mlflow_page(tracker, study)) and f"viewStateShareKey={study}" in address
        assert process.poll() is None
    assert process.returncode == -signal.SIGTERM  # the server ends with the command


@pytest.fixture
def trained_tracker(tmp_path, empty_store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    database = tmp_path / "mlflow.db"
    database.write_bytes(empty_store.read_bytes())
    tracker = MlflowTracker(f"sqlite:///{database}")
    tracker.create("old", {"fa.kind": "run", "fa.study": "older", "fa.method": "bp"}, {})
    tracker.create("new", {"fa.kind": "run", "fa.study": "newer", "fa.method": "bp"}, {})
    return tracker, "newer"


def test_a_run_by_hand_does_not_close_the_study(trained_tracker):
    tracker, study = trained_tracker
    by_hand = tracker.create("by hand", {"fa.kind": "run", "fa.study": "", "fa.method": "bp"}, {})
    older = tracker.search({"fa.study": "older"})[0].run_id
    assert mlflow_page(tracker) == mlflow_page(tracker, about=[by_hand]) == mlflow_page(tracker, study)
    assert mlflow_page(tracker, about=[older]) == mlflow_page(tracker, "older")
    elsewhere = tracker.with_experiment("elsewhere").create("alone", {"fa.kind": "run", "fa.method": "bp"}, {})
    assert "viewStateShareKey=runs&" in mlflow_page(tracker, experiment="elsewhere", about=[elsewhere])


def test_a_study_is_opened_by_its_name_and_an_unknown_one_is_an_error(trained_tracker, server):
    server("Uvicorn running on ADDRESS")
    tracker, _ = trained_tracker
    with ui.served_pages(tracker.uri, "older") as (address, _):
        assert "viewStateShareKey=older&" in address
    expected = pytest.raises(UsageError, match="study nosuch: ")
    with expected, ui.served_pages(tracker.uri, "nosuch"):
        pass


def test_a_port_in_use_is_an_error_only_if_it_was_chosen(trained_tracker, server, monkeypatch):
    server("Uvicorn running on ADDRESS")
    tracker, _ = trained_tracker
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RegistryError, match=f"port {port}"), ui.served_pages(tracker.uri, port=port):
            pass
        monkeypatch.setattr(ui, "PORT", port)
        with ui.served_pages(tracker.uri) as (address, _):
            assert f":{port}/" not in address


def test_a_server_that_does_not_end_is_killed(trained_tracker, server, monkeypatch):
    server("Uvicorn running on ADDRESS", ignores_end=True)
    monkeypatch.setattr(ui, "PATIENCE", 0.2)
    with ui.served_pages(trained_tracker[0].uri) as (_, process):
        pass
    assert process.returncode == -signal.SIGKILL


def test_a_server_that_does_not_start_is_an_error_with_its_last_messages(trained_tracker, server):
    server("postgresql://me:secret@host: [Errno 98] address already in use")
    port = free_port()
    expected = pytest.raises(RegistryError, match=f"127.0.0.1:{port}(?s:.*)already in use")
    with expected as error, ui.served_pages(trained_tracker[0].uri, port=port):
        pass
    assert "secret" not in str(error.value)


@pytest.mark.long
def test_the_real_server_answers_at_the_printed_address_in_an_empty_folder(tmp_path):
    command = [sys.executable, "-m", "fa_registry", "ui", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        text = process.stdout.readline()
        while "}" not in text:
            text += process.stdout.readline()
        address = json.loads(text)["address"]
        with urllib.request.urlopen(address.partition("#")[0], timeout=60) as page:
            assert b"MLflow" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    with pytest.raises(OSError), urllib.request.urlopen(address.partition("#")[0], timeout=60):
        pass
