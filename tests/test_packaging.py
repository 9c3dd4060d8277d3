"""One list of dependencies, written three times; one place for each shipped file; nothing that ties it to one machine."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fa_registry import bundled_files

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pinned() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}


def test_every_dependency_is_pinned_to_a_version_it_admits():
    everything = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    for requirement in map(Requirement, everything):
        assert requirement.specifier.contains(pinned()[canonicalize_name(requirement.name)]), requirement


def test_conda_lists_the_same_dependencies_at_the_pinned_versions():
    environment = yaml.safe_load((ROOT / "conda.yaml").read_text())
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    names = [canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]]
    assert pip == [f"{name}=={pinned()[name]}" for name in names]
    assert "python=3.11" in environment["dependencies"]


def test_constraints_name_versions_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line


def test_mlproject_names_one_environment():
    assert {"conda_env", "python_env", "docker_env"} & set(yaml.safe_load((ROOT / "MLproject").read_text())) == {
        "conda_env"
    }


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_a_checkout_serves_its_own_templates_and_studies():
    assert bundled_files.templates() == ROOT / "templates"
    assert (bundled_files.projects() / "digits" / "study.toml").is_file()


def test_the_demo_installs_no_packages_that_only_tests_need(tmp_path):
    """Ray, Lightning, Transformers, SeaweedFS and Playwright make half of an environment's size; `make test` adds them."""

    def planned(target: str) -> list[str]:
        call = ["make", "-n", target, f"VENV={tmp_path}"]
        # `make test` passes its own flags on, with which this make would first print its folder
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(call, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        assert re.search(r"100 packages .*\d GB", lines[0])
        calls = [line.split() for line in lines if "pip install" in line]
        assert all("--no-compile" in call for call in calls)
        return [call[index + 1] for call in calls for index, word in enumerate(call) if word == "--editable"]

    assert planned("demo") == planned("ui") == [".", "packages/fa_lint"]
    assert planned("test") == planned("check") == [".", "packages/fa_lint", '".[dev]"']


def test_ci_calls_the_readmes_commands():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme and "make test" in readme
