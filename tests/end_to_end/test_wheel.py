"""The wheel alone, in an empty environment and an empty folder: templates, editions and the digits study come along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

from tests.end_to_end.conftest import ROOT


@pytest.mark.long
def test_the_wheel_works_without_the_checkout(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(("tests/", "benchmarks/"))]

    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    target = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    zipfile.ZipFile(wheel).extractall(target)
    # The dependencies are this environment's; its link to the checkout is a .pth file, which PYTHONPATH does not follow.
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": sysconfig.get_path("purelib"), "HOME": str(tmp_path)}
    empty = tmp_path / "empty"
    empty.mkdir()

    def call(*arguments):
        return subprocess.run(
            [python, "-m", "fa_registry", *arguments],
            cwd=empty,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    studies = json.loads(call("list", "studies", "--json").stdout)
    assert "digits" in [study["name"] for study in studies]
    assert all(study["file"].startswith(str(tmp_path)) for study in studies)
    ended = call("run", "digits", "--epochs", "1", "--seeds", "1", "--jobs", "1", "--device", "cpu", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["report"]["edition"]["name"] == "2026-12"
    assert (empty / "reports" / "index.html").is_file()
