"""Tests that commands which only read do not import torch, which takes a second of CPU time."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys

import pytest

from fa_registry import bundled_files, methods, plugin_registry
from fa_registry.inspection import plugin_list
from fa_registry.plugin_registry import Catalog

pytestmark = pytest.mark.long

LIBRARIES = ("mlflow", "pandas", "matplotlib", "scipy")
CODE = """
import json, sys
from fa_registry.cli import main
for arguments in json.loads(sys.argv[2]):
    try:
        main(arguments, standalone_mode=False)
        code = 0
    except SystemExit as error:  # some commands end with sys.exit
        code = error.code or 0
    found = [name for name in sys.argv[1].split(",") if name in sys.modules]
    print(f"exit {code}, imported: {found} by {arguments}", file=sys.stderr)
"""


def check_imports(spared: tuple[str, ...], *commands: tuple[str, ...]) -> None:
    """Run commands in one new process, and check that none imports torch or one of the libraries `spared`."""
    command = [sys.executable, "-c", CODE, ",".join(("torch", *spared)), json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr.count("exit 0, imported: []") == len(commands), done.stderr


def test_lists_and_a_card_of_built_in_plugins_import_none_of_them():
    check_imports(LIBRARIES, *(("list", family) for family in plugin_list.CATALOGS), ("info", "dfa"))


def test_what_reads_a_store_or_a_report_and_a_complete_study_do_not_import_torch(audited_copy):
    run = json.loads(audited_copy("list", "runs", "--json").stdout)[0]["run_id"]
    study = ("study", "tiny", "--device", "cpu")
    check_imports(("matplotlib",), ("list", "runs"), ("show", run), (*study, "--dry-run"), study)
    check_imports(LIBRARIES, ("diff", "reports/audit.json", "reports/audit.json"))
    check_imports(("mlflow",), ("report", "reports/audit.json", "--out", "again"))


def test_a_third_party_plugin_makes_the_recorded_cards_unused_in_lists(monkeypatch):
    assert plugin_list.recorded_plugins("methods")["dfa"]["card"]["name"] == "dfa"
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [group])
    assert plugin_list.recorded_plugins("methods") == {}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"methods": {}}', '{"methods": {"source": "0", "plugins": {"dfa": {}}}}']
)
def test_a_file_of_another_source_is_not_used(text, monkeypatch, tmp_path):
    monkeypatch.setattr(plugin_registry, "CARDS", tmp_path / "cards.json")
    plugin_registry.CARDS.write_text(text, encoding="utf-8")
    assert Catalog("methods", "method").recorded == plugin_list.recorded_plugins("methods") == {}
    assert {row["name"] for row in plugin_list.members("methods")} == set(methods.CATALOG.names())


@pytest.mark.parametrize(
    ("file", "old", "new", "result"),
    [
        ("dfa.py", "MethodCard(", "MethodCard(version=7, ", "7 7 True"),
        pytest.param("base.py", "import abc", "import abc, os", "1 1 True", marks=pytest.mark.long),  # its package's
    ],
)
def test_an_edited_source_is_imported_instead_of_described_by_an_old_card(file, old, new, result, tmp_path):
    shutil.copytree(bundled_files.PACKAGE, tmp_path / "fa_registry", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "fa_registry" / "methods" / file
    code = (
        "import sys\nfrom fa_registry import methods\ncard = methods.CATALOG.describe('dfa').card\n"
        "print(card.version, methods.CATALOG.code('dfa')['version'], 'fa_registry.methods.dfa' in sys.modules)"
    )
    command = [sys.executable, "-P", "-c", code]

    def described() -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()

    assert described() == "1 1 False"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    assert described() == result
