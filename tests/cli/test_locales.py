"""Commands where the encoding of the terminal or of file names lacks Γ and the lines of a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker

pytestmark = pytest.mark.long

LATIN = {"PYTHONIOENCODING": "latin-1"}
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
CALLS = """
import contextlib, json, sys, traceback
from fa_registry.cli import main
codes = []
for call in json.loads(sys.argv[1]):
    try:
        main(call, standalone_mode=True, prog_name="fa-registry")
    except SystemExit as error:
        codes.append(error.code)
    except Exception:
        traceback.print_exc()
        codes.append("traceback")
sys.stdout.flush()
sys.stderr.write("CODES" + json.dumps(codes))
"""
NETWORK = ["--set", "architecture.d_hidden=16", "--set", "architecture.num_blocks=2"]
TRAIN = ["train", "--method", "dfa", "--seed", "7", "--epochs", "1", *NETWORK]


def run(calls: list[list[str]], folder: Path, variables: dict[str, str]) -> tuple[list[object], bytes, bytes]:
    """The exit codes of calls in one process, its standard output and its standard error."""
    unset = ("MLFLOW_TRACKING_URI", "PYTHONIOENCODING", "LC_ALL", "PYTHONUTF8", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    ended = subprocess.run(
        [sys.executable, "-c", CALLS, json.dumps(calls)],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2]), **variables},
        capture_output=True,
        timeout=600,
    )
    error, _, codes = ended.stderr.rpartition(b"CODES")
    return json.loads(codes), ended.stdout, error


@pytest.mark.parametrize(("variables", "encoding"), [(LATIN, "latin-1"), (ASCII, "ascii")])
def test_what_is_printed_without_a_store(variables, encoding, tmp_path):
    calls = [["--help"], ["list", "methods"], ["data", "list"], ["info", "gamma"], ["list", "Γ"], ["forget", "--help"]]
    codes, printed, error = run(calls, tmp_path, variables)
    assert codes == [0, 0, 0, 0, 2, 0], error.decode()
    text = printed.decode(encoding)
    assert "symbol: ?" in text and "+---" in text and "Γ" not in text


@pytest.mark.parametrize("variables", [LATIN, ASCII])
def test_json_keeps_every_character(variables, tmp_path):
    (code,), printed, error = run([["info", "gamma", "--json"]], tmp_path, variables)
    assert code == 0 and json.loads(printed)["symbol"] == "Γ_l", error.decode()


@pytest.mark.parametrize("variables", [LATIN, ASCII])
def test_a_store_is_made_and_read_in_a_folder_whose_name_is_not_ascii(variables, tmp_path):
    folder = tmp_path / "é Γ"
    folder.mkdir()
    audit = ["audit", "--experiment", "fa_registry", "--edition", "2026-05", "--exit-zero"]
    calls = [[*TRAIN, "--device", "cpu"], ["list", "runs"], ["watch", "--once"], audit, ["list", "runs", "--json"]]
    codes, _, error = run(calls, folder, variables)
    assert codes == [0, 0, 0, 0, 0], error.decode()
    (trained,) = MlflowTracker(f"sqlite:///{folder / 'mlflow.db'}", make=False).search({schema.TAG_KIND: "run"})
    calls = [["show", trained.run_id], ["show", trained.run_id[:9], "--json"], ["verify", "--run", trained.run_id]]
    codes, _, error = run(calls, folder, variables)
    assert codes == [0, 0, 0], error.decode()


def test_no_warning_of_a_dependency_ends_a_command(tmp_path):
    """sqlalchemy deprecates what MLflow uses; this warning is an error as soon as a store is opened."""
    calls = [[*TRAIN, "--device", "cpu"], ["list", "runs"]]
    codes, printed, error = run(calls, tmp_path, {"PYTHONWARNINGS": "error"})
    assert codes == [0, 0], error.decode()
    assert b"SADeprecationWarning" in error and b"complete" in printed
