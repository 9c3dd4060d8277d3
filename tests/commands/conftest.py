"""The command line in this process, in an empty working folder, on runs that take a fraction of a second."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fa_registry.cli import main
from fa_registry.inspection import doctor
from fa_registry.reporting import render
from fa_registry.reporting.pages.index import NO_FIGURES
from fa_registry.studies.executors import local, side_by_side
from tests.commands.adoption import SPEC, Elsewhere, trained_elsewhere
from tests.commands.promotion import Judged, judged_study
from tests.helpers import audits
from tests.helpers.pictures import blank_pictures
from tests.helpers.stores import copy_store, made_once, working_in

STUDY = """
name = "tiny"
title = "Three methods, one seed"
edition = "2026-05"
cost = "a second"

[recipe]
epochs = 2

[[grid]]
methods = ["bp", "fa", "dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1]
architecture_options = { d_hidden = 16, num_blocks = 2 }
"""

long = partial(pytest.param, marks=pytest.mark.long)  # a variant of a fact of which each suite holds another

TRAIN = (
    *("train", "--method", "dfa", "--seed", "7", "--epochs", "1", "--set", "architecture.d_hidden=16"),
    *("--set", "architecture.num_blocks=2", "--device", "cpu"),
)


@pytest.fixture(autouse=True)
def nothing_twice(undrawn, measured_once, in_this_process):
    """No test here looks at a picture, and few at recomputing; those ask for `drawn` and `measured_each_time`.

    What bf16 gains on this machine takes doctor more than a second to measure.
    """
    leave_out_figures(undrawn)
    undrawn.setattr(doctor, "bf16_gain", lambda: 1.0)


def leave_out_figures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(render, "setting_figures", lambda groups, cards: NO_FIGURES)
    patch.setattr(render, "form_figures", lambda *_: {})


@pytest.fixture
def in_this_process(monkeypatch):
    """A study trains here, where a test has put its faults."""
    monkeypatch.setattr(local, "PLUGIN", side_by_side.PLUGIN)


@pytest.fixture
def unpublished():
    """For a test that reads neither a page of its audits nor a tag, a note or a file that they would write to the store."""
    with audits.unpublished():
        yield


def call(*arguments: str):
    """The command line in this process: click's result."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def fields(result) -> list[str]:
    """The fields that a refusal names, each at the beginning of its line; it ends with exit code 2."""
    assert result.exit_code == 2, result.output
    lines = [line[4:] for line in result.stderr.splitlines() if line.startswith("  - ")]
    return [re.sub(r"^\S+\.toml(:\d+)?: ", "", line).partition(":")[0] for line in lines]


def write_study(folder: Path) -> None:
    """The tiny study as tiny/study.toml."""
    (folder / "tiny").mkdir()
    (folder / "tiny" / "study.toml").write_text(STUDY, encoding="utf-8")


@pytest.fixture
def registry(workplace: Path):
    """Call the command line: registry('audit', '--study', …) → click's result; the tiny study is in tiny/study.toml."""
    write_study(workplace)
    return call


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory, empty_store) -> Path:
    """The folder of a store with the tiny study trained, for copies."""

    def train(folder: Path) -> None:
        shutil.copy(empty_store, folder)
        write_study(folder)
        with working_in(folder):
            result = call("study", "tiny", "--jobs", "1", "--device", "cpu")
        assert result.exit_code == 0, result.output

    return made_once(tmp_path_factory, "tiny", train)


@pytest.fixture
def trained(tiny_store, workplace: Path):
    """The registry with the tiny study trained."""
    copy_store(tiny_store, workplace)
    return call


AUDIT_LOGGED = ("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--exit-zero")


@pytest.fixture(scope="session")
def audited_store(tmp_path_factory, tiny_store) -> Path:
    """The tiny study, audited without pictures from logged metrics; --json printed printed.json."""

    def audit(folder: Path) -> None:
        copy_store(tiny_store, folder)
        with working_in(folder), blank_pictures() as patch:
            leave_out_figures(patch)
            result = call(*AUDIT_LOGGED, "--editions", "2026-05,2026-12", "--json")
        (folder / "printed.json").write_text(result.stdout, encoding="utf-8")

    return made_once(tmp_path_factory, "audited-tiny", audit)


@pytest.fixture
def audited_once(audited_store, monkeypatch) -> dict[str, Any]:
    """What that audit printed; the working folder is its folder, which tests only read."""
    monkeypatch.chdir(audited_store)
    return json.loads((audited_store / "printed.json").read_text(encoding="utf-8"))


@pytest.fixture
def audited_copy(audited_store, workplace: Path):
    """The registry with the tiny study trained and audited; its pages are in reports."""
    copy_store(audited_store, workplace)
    return call


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> Judged:
    """A store of the file's own in which a study was trained and judged; its tests register models in it."""
    folder = tmp_path_factory.mktemp("judged")
    copy_store(made_once(tmp_path_factory, "judged", judged_study), folder)
    return Judged(folder)


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory) -> Elsewhere:
    """A checkpoint that no store knows."""
    return trained_elsewhere(tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture
def adopt(registry):
    """Adopt a file by the tiny specification; returns (run id, what was printed)."""

    def call(weights: str, *more: str):
        result = registry("adopt", weights, *SPEC, *more, "--json")
        assert result.exit_code == 0, result.output
        printed = json.loads(result.stdout)
        return printed["run_id"], printed

    return call
