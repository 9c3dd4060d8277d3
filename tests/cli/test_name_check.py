"""Names are looked up before PyTorch and MLflow are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The exit code and the large packages that the command has imported.
TRIED = """
import sys
from fa_registry.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, *({"torch", "mlflow"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("train --method dfaa --seed 7 --epochs 3", "'dfa'"),
        ("train --method dfa --seed 7 --edition 2026-13", "'2026-13'"),
        ("study tinny --jobs 2", "'tinny'"),
        ("worker digits tinny", "'tinny'"),
        ("run digits --replace-dataset digit", "'digits'"),
        ("audit --study tinny --exit-zero", "'tinny'"),
        ("analyse sensitivty --study digits", "'sensitivity'"),
        ("info dfaa", "'dfa'"),
    ],
)
def test_a_mistyped_name_imports_no_large_package(workplace, arguments, name):
    call = [sys.executable, "-c", TRIED, *arguments.split()]
    result = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (result.stdout, name in result.stderr) == ("2\n", True), result


def test_all_problems_are_reported_together_if_another_option_may_be_wrong(workplace, monkeypatch):
    from tests.commands.conftest import call

    result = call("train", "--method", "dfaa", "--seed", "many")
    assert result.exit_code == 2 and "'dfaa'" in result.stderr and "'many'" in result.stderr
