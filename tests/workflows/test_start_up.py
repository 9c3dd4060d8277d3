"""Tests that commands which only read do not import torch, which takes a second of CPU time."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

from fa_registry.workflows import plugin_list

LIBRARIES = ("mlflow", "pandas", "matplotlib", "scipy")
CODE = """
import sys
from fa_registry.cli import main
try:
    main(sys.argv[2:], standalone_mode=False)
finally:  # some commands end with sys.exit
    found = [name for name in sys.argv[1].split(",") if name in sys.modules]
    print(f"imported: {found}", file=sys.stderr)
"""


def check_imports(spared: tuple[str, ...], *arguments: str) -> None:
    """Run a command in a new process, and check that it imports neither torch nor the libraries `spared`."""
    command = [sys.executable, "-c", CODE, ",".join(("torch", *spared)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "imported: []" in done.stderr, done.stderr


@pytest.mark.parametrize("family", plugin_list.CATALOGS)
def test_a_list_of_built_in_plugins_imports_none_of_them(family):
    check_imports(LIBRARIES, "list", family)


def test_the_card_of_a_built_in_plugin_imports_nothing_heavy():
    check_imports(LIBRARIES, "info", "dfa")


def test_show_and_list_runs_and_diff_and_report_do_not_import_torch(trained):
    run = json.loads(trained("list", "runs", "--json").stdout)[0]["run_id"]
    check_imports(("matplotlib",), "list", "runs")
    check_imports(("matplotlib",), "show", run)
    assert trained("audit", "--study", "tiny", "--device", "cpu", "--trust-logged", "--exit-zero").exit_code == 0
    check_imports(LIBRARIES, "diff", "reports/audit.json", "reports/audit.json")
    check_imports(("mlflow",), "report", "reports/audit.json", "--out", "again")


def test_a_changed_source_file_or_a_third_party_plugin_makes_the_recorded_cards_unused(monkeypatch, tmp_path):
    cards = json.loads(plugin_list.CARDS.read_text(encoding="utf-8"))
    assert plugin_list.recorded_cards("methods")["dfa"] == cards["methods"]["dfa"]["card"]
    with monkeypatch.context() as patch:
        patch.setattr(importlib.metadata, "entry_points", lambda group: [group])
        assert plugin_list.recorded_cards("methods") == {}
    cards["methods"]["dfa"] |= {"source": "0" * 64, "card": {"line": "old"}}
    monkeypatch.setattr(plugin_list, "CARDS", tmp_path / "cards.json")
    plugin_list.CARDS.write_text(json.dumps(cards), encoding="utf-8")
    assert plugin_list.recorded_cards("methods") == {}
    assert "old" not in {row["line"] for row in plugin_list.members("methods")}
