"""A method in a third-party package: installed, listed, checked, trained, audited and reported without a line changed here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fa_registry import methods
from tests.commands.conftest import STUDY

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "third_party"
NAME = "orthogonal_dfa"
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--no-cache-dir")


def installed(source: Path, target: Path) -> Path:
    """pip installs the package at `source` into the empty folder `target`, and nothing else anywhere."""
    command = [sys.executable, "-m", "pip", "install", *OFFLINE, "--target", str(target), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return target


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The package, built from a copy of its source, so that nothing is left in the checkout, and installed."""
    folder = tmp_path_factory.mktemp("third-party")
    shutil.copytree(FIXTURE, folder / "package", ignore=shutil.ignore_patterns("__pycache__"))
    return installed(folder / "package", folder / "site")


@pytest.fixture
def with_package(command, site):
    """The command fixture in a world where the package is installed."""
    return seeing(command, site)


def seeing(command, site: Path):
    command.environment["PYTHONPATH"] = f"{site}:{os.environ.get('PYTHONPATH', '')}"
    return command


def test_it_is_no_part_of_this_environment():
    assert NAME not in methods.CATALOG.names()


@pytest.mark.long
def test_it_is_listed_with_its_file_and_meets_the_conformance_suite(with_package, site):
    listed = with_package("fa-registry", "list", "methods", "--json")
    (row,) = [row for row in json.loads(listed.stdout) if row["name"] == NAME]
    assert row["file"] == str(site / "orthogonal_feedback" / "orthogonal_dfa.py")
    ended = with_package("python", "-m", "fa_registry.conformance", NAME, "--architecture", "resmlp")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcomes = {line.split()[1]: line.split()[0] for line in ended.stdout.splitlines()}
    assert outcomes["feedback_fixed"] == outcomes["not_secretly_bp"] == "pass"
    assert "fail" not in outcomes.values()


@pytest.mark.long
def test_it_is_trained_audited_and_reported(with_package, workplace):
    study = workplace / "tiny" / "study.toml"
    study.write_text(STUDY.replace('"bp", "fa", "dfa"', f'"{NAME}"'), encoding="utf-8")
    ended = with_package("fa-registry", "run", "tiny", "--jobs", "1", "--device", "cpu", "--json")
    assert ended.returncode in (0, 1), ended.stderr  # 1: an audit that found something
    runs = json.loads(ended.stdout)["report"]["runs"]
    (entry,) = (run for run in runs if run["record"]["spec"]["method"] == NAME)
    assert entry["record"]["integrity"]["state"] == "verified"  # recomputed from its files, bit by bit
    (control,) = (run for run in runs if run is not entry)
    assert entry["frozen_run_id"] == control["record"]["run_id"]
    (form,) = (workplace / "reports" / "forms").glob("orthogonal-dfa-*.html")
    page = form.read_text(encoding="utf-8")
    for text in (NAME, "Doe 2026", "@misc{doe2026orthogonal,", entry["verdict"]["label"]):
        assert text in page
    assert NAME in (workplace / "reports" / "index.html").read_text(encoding="utf-8")
