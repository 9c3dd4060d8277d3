"""An honest store that every attack gets a copy of, trained once per session; and the commands, as a user calls them."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from fa_registry import jsonio
from fa_registry.cli import main
from fa_registry.records import AuditReport, Integrity, RunAudit
from tests.helpers.audits import publishing
from tests.helpers.pictures import blank_pictures
from tests.helpers.stores import copy_store, made_once, working_in
from tests.security.attacks import Store

STUDY = """
name = "tiny"
title = "Three methods, three seeds"
edition = "2026-12"
cost = "seconds"

[recipe]
epochs = 4

[controls]
frozen = true

[[grid]]
methods = ["bp", "fa", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1, 2, 3]
architecture_options = { d_hidden = 16, num_blocks = 2 }
"""


@pytest.fixture(autouse=True)
def nothing_twice(undrawn, measured_once):
    """No test here looks at a picture, and an attack changes few of the runs that an audit recomputes."""


def call(*arguments: str):
    """The command line in this process: click's result."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


@pytest.fixture(scope="session")
def honest(tmp_path_factory, empty_store) -> Path:
    """The folder of a store whose twelve runs are untouched, for copies."""

    def train(folder: Path) -> None:
        shutil.copy(empty_store, folder)
        (folder / "tiny").mkdir()
        (folder / "tiny" / "study.toml").write_text(STUDY, encoding="utf-8")
        with working_in(folder):
            result = call("study", "tiny", "--jobs", "1", "--device", "cpu")
        assert result.exit_code == 0, result.output

    return made_once(tmp_path_factory, "honest", train)


@pytest.fixture
def store(honest, tmp_path, monkeypatch) -> Store:
    """A copy of the honest store in a separate working folder."""
    folder = tmp_path / "store"
    copy_store(honest, folder)
    monkeypatch.chdir(folder)
    return Store(folder)


@pytest.fixture(scope="session")
def audited_once(honest, tmp_path_factory):
    """The folder of the honest store with one audit whose pages, without pictures, are in `pages`."""

    def run_audit(folder):
        copy_store(honest, folder)
        with working_in(folder), blank_pictures():
            command = ("audit", "--study", "tiny", "--out", "pages", "--trust-logged", "--edition", "2026-05")
            assert call(*command).exit_code in (0, 1)

    return made_once(tmp_path_factory, "audited", run_audit)


@pytest.fixture
def audited_store(audited_once, tmp_path, monkeypatch):
    """A copy of the audited store in a separate working folder."""
    copy_store(audited_once, tmp_path / "store")
    monkeypatch.chdir(tmp_path / "store")
    return Store(tmp_path / "store")


@pytest.fixture
def study(tmp_path, empty_store, monkeypatch):
    """study(**grid) trains a study of that grid in an empty store, with frozen controls, and audits it: its report."""
    folder = tmp_path / "own"
    (folder / "own").mkdir(parents=True)
    shutil.copy(empty_store, folder)
    monkeypatch.chdir(folder)

    def train_and_audit(epochs: int = 8, published: bool = False, **grid: object) -> AuditReport:
        rows = "".join(f"{name} = {_toml(value)}\n" for name, value in grid.items())
        text = f'name = "own"\ntitle = "An own study"\nedition = "2026-12"\ncost = "seconds"\n[recipe]\nepochs = {epochs}\n'
        text += f"[controls]\nfrozen = true\n[[grid]]\n{rows}"
        (folder / "own" / "study.toml").write_text(text, encoding="utf-8")
        result = call("study", "own", "--jobs", "1", "--device", "cpu")
        assert result.exit_code == 0, result.output
        return audited(folder, "--study", "own", "--device", "cpu", published=published)[1]

    return train_and_audit


def _toml(value: object) -> str:
    """A list, a table or a plain value as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    return json.dumps(value)


def audited(folder: Path, *arguments: str, published: bool = False) -> tuple[int, AuditReport]:
    """Audit the tiny study (or what the arguments choose) in the working folder; returns (exit code, report).

    Runs are trained again to their end only if the arguments request it: which runs are is drawn, and takes a while.
    Pages are rendered, and the audit is logged, only if it is `published`: that is half of its time.
    """
    chosen = arguments if {"--study", "--run", "--experiment"} & set(arguments) else ("--study", "tiny", *arguments)
    if not {"--replay", "--nonce", "--trust-logged"} & set(arguments):
        chosen = (*chosen, "--replay", "8")
    with publishing(published):
        result = call("audit", *chosen, "--out", "pages")
    assert (folder / "pages" / "audit.json").is_file(), result.output
    return result.exit_code, written_report(folder)


def written_report(folder: Path) -> AuditReport:
    return jsonio.decode(AuditReport, json.loads((folder / "pages" / "audit.json").read_text(encoding="utf-8")))


@pytest.fixture
def audit(store):
    """audit(*arguments, published=False): see `audited`."""
    return partial(audited, store.folder)


def integrity_of(report: AuditReport, run_id: str) -> Integrity:
    """What the audit found of a run's evidence, whether it was judged or not."""
    held = {run.record.run_id: run.record.integrity for run in report.runs}
    held |= {exclusion.run_id: exclusion.integrity for exclusion in report.excluded if exclusion.integrity}
    return held[run_id]


def judged(report: AuditReport, **spec: object) -> list[RunAudit]:
    """The judged runs whose specification has these values, e.g. method="bp", control="none"."""
    return [run for run in report.runs if all(getattr(run.record.spec, name) == value for name, value in spec.items())]
