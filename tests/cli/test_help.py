"""The list of commands, and what the shell completes: asked as bash, zsh and fish ask."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from fa_registry import methods
from fa_registry.cli import GROUPS, main
from fa_registry.inspection.plugin_list import CATALOGS
from fa_registry.studies import study


def test_every_command_is_in_one_group_on_one_whole_line():
    text = CliRunner().invoke(main, ["--help"], prog_name="fa-registry", terminal_width=80).output
    assert max(map(len, text.splitlines())) <= 80
    listed = [line.split()[0] for line in text.partition("Train:")[2].splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(main.commands)
    assert [title for title in GROUPS if f"\n{title}:\n" in text] == ["Train", "Judge", "Inspect", "Share"]
    assert "..." not in text.partition("Train:")[2]  # click's sign that a line was cut


def offered(line: str, shell: str = "bash") -> list[str]:
    """What a shell receives after this line, the last word of which is being typed."""
    arguments = line.split(" ")
    env = {"_FA_REGISTRY_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(arguments) - 1)}
    env |= {"COMP_CWORD": arguments[-1]} if shell == "fish" else {}
    answer = CliRunner().invoke(main, [], env=env, prog_name="fa-registry")
    lines = answer.stdout.splitlines()
    return lines[1::3] if shell == "zsh" else [entry.split(",", 1)[1].split("\t")[0] for entry in lines]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_names_are_completed_in_every_shell(shell):
    assert offered("fa-registry ver", shell) == ["verify"]
    assert offered("fa-registry train --method d", shell) == [
        name for name in methods.CATALOG.names() if name.startswith("d")
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fa-registry study ", study.names()),
        ("fa-registry run paper", ["paper", "paper-full"]),
        ("fa-registry audit --study dig", ["digits"]),
        ("fa-registry audit --edition 2026-05", ["2026-05", "2026-05:strict"]),
        ("fa-registry audit --editions 2026-05,2026-12", ["2026-05,2026-12", "2026-05,2026-12:token"]),
        ("fa-registry train --architecture res", ["resmlp"]),
        ("fa-registry train --device c", ["cpu", "cuda"]),
        ("fa-registry data where cifar10", ["cifar10", "cifar100"]),
        ("fa-registry analyse first", ["first-fire"]),
        ("fa-registry compare bp weight_f", ["weight_fa"]),
        ("fa-registry list ru", ["runs"]),
        ("fa-registry info credit", ["credit_bridge"]),
        ("fa-registry info regression --family ", sorted(CATALOGS)),
    ],
)
def test_a_name_is_completed_where_one_is_asked_for(line, expected):
    assert offered(line) == expected


def test_a_path_is_completed_where_a_study_or_an_edition_may_be_a_file():
    for line in ("fa-registry study ./my", "fa-registry audit --edition mine.t"):
        env = {"_FA_REGISTRY_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        answer = CliRunner().invoke(main, [], env=env, prog_name="fa-registry")
        assert answer.stdout == f"file,{line.split()[-1]}\n"


@pytest.mark.long
def test_a_shell_waits_for_nothing_heavy():
    code = (
        "import sys\nfrom fa_registry.cli import main\n"
        "try: main(prog_name='fa-registry')\n"
        "finally: print([name for name in ('torch', 'mlflow', 'pydantic') if name in sys.modules], file=sys.stderr)"
    )
    for line in ("fa-registry train --method d", "fa-registry study d", "fa-registry audit --edition 2"):
        env = {"_FA_REGISTRY_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        asked = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True)
        assert asked.stdout.startswith("plain,") and asked.stderr == "[]\n", asked.stderr
