"""new: what it writes runs as it is, passes its own test, and is found by its entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fa_registry.studies.scaffold import KINDS
from fa_registry.studies.study import load_study
from tests.commands.conftest import call

ROOT = Path(__file__).parents[2]
PACKAGES = [kind for kind in KINDS if kind != "study"]


def written(kind, name):
    result = call("new", kind, name, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def installed(name: str) -> dict[str, str]:
    """An environment in which the package of folder `name` is found, as pip would leave it."""
    information = Path(name) / f"{name}-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n", encoding="utf-8")
    text = (Path(name) / "pyproject.toml").read_text(encoding="utf-8")
    family, _, entry = text.partition('[project.entry-points."')[2].partition('"]\n')
    points = entry.split("\n\n")[0].replace('"', "")
    (information / "entry_points.txt").write_text(f"[{family}]\n{points}\n", encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(name).resolve()), str(ROOT)])}


def run(environment, *arguments):
    ended = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.long
@pytest.mark.parametrize("kind", PACKAGES)
def test_it_passes_its_own_test_is_listed_and_trains(workplace, kind):
    name = f"my_{kind}"
    written(kind, name)
    environment = installed(name)
    assert "passed" in run(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", name)
    listed = json.loads(run(environment, "-m", "fa_registry", "list", f"{kind}s", "--json"))
    assert name in {row["name"] for row in listed}
    own = ["--method", name] if kind == "method" else ["--method", "dfa"]
    own += [] if kind in ("method", "diagnostic") else [f"--{kind}", name]
    short = ["--seed", "1", "--epochs", "1", "--device", "cpu", "--json"]
    trained = json.loads(run(environment, "-m", "fa_registry", "train", *own, *short))
    assert trained["status"] == "complete"


@pytest.mark.parametrize("kind", PACKAGES)
def test_its_files_are_python_that_names_no_skeleton(workplace, kind):
    made = written(kind, "my_own")
    for path in map(Path, made["files"]):
        text = path.read_text(encoding="utf-8")
        assert not any(word in text for word in ("keleton", "KIND", "FAMILY")), path
        if path.suffix == ".py":
            compile(text, path, "exec")
    assert any("pytest" in command for command in made["commands"])


def test_a_study_is_one_that_can_be_trained(workplace):
    written("study", "mine")
    result = call("study", "mine", "--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert result.exit_code == 0 and plan["study"] == "mine", result.output


def test_a_study_has_the_three_seeds_that_a_verdict_needs(workplace):
    written("study", "mine")
    study = load_study("mine")
    assert len({spec.seed for spec in study.specs}) == 3 and study.cost.startswith(f"{len(study.specs)} runs")


def test_nothing_that_is_there_is_written_over(workplace):
    written("method", "mine")
    before = {path: path.read_bytes() for path in Path("mine").rglob("*") if path.is_file()}
    result = call("new", "study", "mine")
    assert result.exit_code == 2
    assert {path: path.read_bytes() for path in Path("mine").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("methode", "mine"), ("method", "dfa"), ("study", "digits")),
        *(("method", "My-Rule"), ("method", "../out"), ("method", "class"), ("dataset", "")),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(workplace, kind, name):
    before = sorted(Path().iterdir())
    assert call("new", kind, name).exit_code == 2
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("kind", ["method", "study"])
def test_an_output_folder_that_is_none_is_one_sentence(workplace, kind):
    Path("a file").write_text("text", encoding="utf-8")
    for out in ("a file", "/proc/none"):
        result = call("new", kind, "mine", "--out", out)
        assert result.exit_code == 2 and "out: " in result.stderr, result.output
    assert Path("a file").read_text(encoding="utf-8") == "text"
