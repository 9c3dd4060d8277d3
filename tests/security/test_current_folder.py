"""A folder next to a store has modules with the names of libraries: neither way to start the command imports one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.stores import copy_store
from tests.security.attacks import Store

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = (
    *("torch", "numpy", "pandas", "mlflow", "click", "scipy", "safetensors", "pyarrow", "sklearn"),
    *("sitecustomize", "usercustomize", "typing", "logging", "multiprocessing", "pickle", "__future__"),
)


@pytest.fixture
def folder(honest, tmp_path) -> Path:
    """A store whose folder is full of modules that leave a file behind when they are imported."""
    made = tmp_path / "store"
    copy_store(honest, made)
    for name in HOSTILE:
        (made / f"{name}.py").write_text(f"open({str(made / 'IMPORTED')!r}, 'a').write({name + ' '!r})\n")
    return made


def started(way: str, folder: Path, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start the command in the folder as a user does: `python -m fa_registry`, or as its console script does."""
    script = tmp_path / "bin" / "fa-registry"  # pip writes such a file; Python puts its folder first in sys.path
    script.parent.mkdir(exist_ok=True)
    script.write_text("from fa_registry.cli import main\nmain(prog_name='fa-registry')\n")
    command = [sys.executable, *(("-m", "fa_registry") if way == "module" else (str(script),)), *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        command, cwd=folder, env={**variables, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300
    )


def test_the_modules_are_imported_where_the_current_folder_comes_first(folder):
    """Else the tests below would show nothing."""
    subprocess.run([sys.executable, "-c", "import torch"], cwd=folder, check=True, timeout=60)
    assert (folder / "IMPORTED").read_text() == "torch "


@pytest.mark.parametrize("way", ["module", "script"])
def test_a_command_imports_nothing_of_the_current_folder(folder, tmp_path, way):
    assert started(way, folder, tmp_path, "list", "methods").returncode == 0 and not (folder / "IMPORTED").exists()


@pytest.mark.long
@pytest.mark.parametrize("way", ["module", "script"])
def test_an_audit_in_several_processes_imports_nothing_of_the_current_folder(folder, tmp_path, way):
    chosen = [word for run_id in Store(folder).run_ids(method="dfa", control="none")[:2] for word in ("--run", run_id)]
    result = started(way, folder, tmp_path, "audit", *chosen, "--jobs", "2", "--replay", "off", "--out", "pages")
    assert (folder / "pages" / "audit.json").is_file(), result.stderr
    assert not (folder / "IMPORTED").exists()


@pytest.mark.long
def test_a_training_in_a_worker_imports_nothing_of_the_current_folder(folder, tmp_path):
    size = "architecture.d_hidden=8,architecture.num_blocks=1"
    spec = ("--method", "dfa", "--architecture", "resmlp", "--dataset", "digits", "--epochs", "1", "--seed", "9")
    result = started("script", folder, tmp_path, "train", *spec, "--set", size, "--device", "cpu")
    assert result.returncode == 0 and "complete" in result.stdout + result.stderr, result.stderr
    assert not (folder / "IMPORTED").exists()


def test_what_is_named_in_pythonpath_is_found(folder, tmp_path):
    """The folder that a user names there is the user's own choice, regardless of its content."""
    code = "import sys, fa_registry; print(fa_registry.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert Path(found.stdout.strip()) == ROOT / "fa_registry" / "__init__.py"
    result = started("module", tmp_path, tmp_path, "list", "methods")
    assert result.returncode == 0 and "weight_fa" in result.stdout


def test_a_checkout_that_is_not_installed_runs_from_its_own_folder(tmp_path):
    """There the package itself is in the current folder, which then comes last."""
    (tmp_path / "fa_registry").symlink_to(ROOT / "fa_registry")
    shown = subprocess.run(
        [sys.executable, "-m", "fa_registry", "--help"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.returncode == 0 and "Train" in shown.stdout
