"""What every test may count on: one CPU thread, no store but its own, an empty MLflow database to copy."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest
import sqlalchemy
import torch
from jinja2.bccache import Bucket, BytecodeCache

from fa_registry import plugin_registry
from fa_registry.cli import NEW_OBJECTS_BETWEEN_COLLECTIONS
from fa_registry.evidence import remeasure, replay_record
from fa_registry.reporting.text import environment
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.helpers.pictures import blank_pictures
from tests.helpers.stores import Figures, remembering

# By the seconds that they take, the longest first.
LONG = (
    "tests/end_to_end/",
    "tests/conformance/",
    "tests/studies/test_executors",
    "tests/security/",
    "tests/commands/",
    "tests/docs/test_code",
    "tests/methods/test_published",
    "tests/reporting/test_analyses",
    "tests/reporting/test_render",
)

ONLY_LONG = re.compile(r"^pytestmark = (?:\[\s*)?pytest\.mark\.long\b", re.MULTILINE)

# How fast an example is drawn or tried says how busy the machine is, nothing of the code.
SLOW = (
    hypothesis.HealthCheck.too_slow,
    hypothesis.HealthCheck.large_base_example,
    hypothesis.HealthCheck.data_too_large,
)
hypothesis.settings.register_profile("any speed", deadline=None, suppress_health_check=SLOW)
hypothesis.settings.load_profile("any speed")


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def not_waiting_for_the_disk(connection: Any, record: Any) -> None:
    """A test's database need not outlive a power cut: each commit waits for the disk else. Other processes' databases do wait."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: a test that waits for a browser, a server or its own process leaves its core to another."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_sessionstart(session: pytest.Session) -> None:
    """SIGTERM (`timeout`, a stopped job of CI) ends the suite as Ctrl-C does: fixtures take down what they started.

    What tests start has one thread as they have: with another worker, threads that wait for each other take four times as long.
    Compiled tests are kept, even if Python is set to keep nothing: rewriting their asserts is half of a worker's collection.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.dont_write_bytecode = False
    gc.set_threshold(NEW_OBJECTS_BETWEEN_COLLECTIONS)

    def end(number: int, frame: FrameType | None) -> None:
        session.shouldstop = "SIGTERM"  # click makes an exit code of the interrupt, and the next test would begin
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file of long tests only if long tests are not run: its trainers or Ray take seconds to import."""
    if config.option.markexpr and "not long" in config.option.markexpr and collection_path.suffix == ".py":
        return True if ONLY_LONG.search(collection_path.read_text(encoding="utf-8")) else None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes comes first: begun last by one worker, it would leave the others idle.

    What is there by now stays: no search for cycles need go through all modules and tests again, at each test's end.
    """

    def place(item: pytest.Item) -> int:
        return next((place for place, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))

    items.sort(key=place)
    gc.freeze()
    count = gc.get_freeze_count()
    # the real function walks a million objects at each search and fork, which was a third of the suite's time
    gc.get_freeze_count = lambda: count


@pytest.fixture(autouse=True)
def one_thread():
    """Figures are bit-equal at one thread count only."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_imported_yet():
    """An audit names every third-party package that its process imported: those of the tests before do not count."""
    plugin_registry.IMPORTED.clear()


@pytest.fixture(autouse=True)
def no_foreign_environment(monkeypatch):
    """A developer's own MLFLOW_… must neither be read nor written by a test, nor the width of his terminal be a table's.

    Importing readline, as pdb and so pytest does, gives that width to every process that is started, xdist's workers too.
    """
    for name in [name for name in os.environ if name.startswith("MLFLOW_") or name in ("COLUMNS", "LINES")]:
        monkeypatch.delenv(name)


class Compiled(BytecodeCache):
    """Templates as they were compiled, by their text and by what their environment makes of it."""

    def __init__(self) -> None:
        self.code: dict[tuple, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        code = self.code.get(self.kind(bucket))
        if code is not None:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.code[self.kind(bucket)] = bucket.bytecode_to_string()

    @staticmethod
    def kind(bucket: Bucket) -> tuple:
        return bucket.key, bucket.checksum, type(bucket.environment), bucket.environment.finalize


@pytest.fixture(scope="session", autouse=True)
def templates_compiled_once() -> Iterator[None]:
    """A template is compiled once a session, not once a page: the suite renders hundreds of audits."""
    compiled, made = Compiled(), environment.environment

    def remembering(*arguments):
        new = made(*arguments)
        new.bytecode_cache = compiled
        return new

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "environment", remembering)
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """A fresh MLflow database without experiments: copying it takes milliseconds, making one takes seconds."""
    folder = tmp_path_factory.mktemp("empty-store")
    MlflowTracker(f"sqlite:///{folder / 'mlflow.db'}", experiment_id="0")
    return folder / "mlflow.db"


@pytest.fixture
def undrawn() -> Iterator[pytest.MonkeyPatch]:
    """Every picture of a page stays blank: making them is half of an audit, and the concern of tests/reporting."""
    with blank_pictures() as patch:
        yield patch


@pytest.fixture
def drawn(undrawn: pytest.MonkeyPatch) -> None:
    """For a test in a folder of undrawn pictures whose pictures are drawn all the same."""
    undrawn.undo()


@pytest.fixture(scope="session")
def known_figures() -> Figures:
    """What measuring a run again gave, by the digest of all that it was given."""
    return {}


@pytest.fixture(autouse=True)
def one_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two audits of one store choose the same runs to train again to their end."""
    monkeypatch.setattr(replay_record, "drawn_nonce", lambda: "0123456789abcdef")


@pytest.fixture
def measured_once(known_figures: Figures) -> Iterator[pytest.MonkeyPatch]:
    """The metrics of a run are recomputed once as long as no byte of its record, its files and its method's code is another.

    A test that changes bytes has that run measured; the untouched ones are not measured a hundred times. A test
    that changes what a built-in diagnostic measures asks for `measured_each_time`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remeasure, "_measured", remembering(remeasure._measured, known_figures))
        yield patch


@pytest.fixture
def measured_each_time(measured_once: pytest.MonkeyPatch) -> None:
    """For a test of measuring the same runs twice, or by other code of the same version."""
    measured_once.undo()


@pytest.fixture
def workplace(tmp_path, monkeypatch, empty_store):
    """An empty working folder with an empty store in it, as a user has after the first command."""
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def usual_interrupt():
    """A suite that a shell put into the background was started with SIGINT ignored; this one handles SIGTERM itself."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def silent_address() -> str:
    """An address of this machine without a listener, for as long as the test holds it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"
