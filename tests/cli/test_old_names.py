"""Old names of commands and options work for one release and print one line that gives the new name; help does not list them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fa_registry.cli import OLD_COMMANDS, OLD_OPTIONS, main


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize(("old", "new"), OLD_COMMANDS.items())
def test_an_old_command_is_the_new_one_and_says_so(old, new):
    before, after = run(old, "--help"), run(new, "--help")
    assert before.exit_code == after.exit_code == 0 and before.stdout == after.stdout
    assert before.stderr == f"fa-registry: {old} is now called {new}\n" and after.stderr == ""
    assert f"  {old} " not in run("--help").stdout


@pytest.mark.parametrize(("old", "new"), OLD_OPTIONS.items())
def test_an_old_option_is_the_new_one_and_says_so(old, new):
    homes = [
        (name, option) for name, command in main.commands.items() for option in command.params if new in option.opts
    ]
    assert homes
    for name, option in homes:
        assert f"  {old} " not in run(name, "--help").stdout
        typed = [old, "--help"] if option.is_flag else [f"{old}=1", "--help"]
        result = run(name, *typed)
        assert result.stderr == f"fa-registry: {old} is now called {new}\n" and result.exit_code == 0


def test_an_option_that_a_command_never_had_is_still_unknown():
    result = run("list", "--silence", "3")
    assert result.exit_code == 2 and "is now called" not in result.stderr and "No such option" in result.stderr


def test_values_reach_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("study", "paper", "--data=digits", "--scale", "0.02", "--dry-run", "--no-probe", "--json")
    new = run("study", "paper", "--replace-dataset", "digits", "--scale", "0.02", "--dry-run", "--no-timing", "--json")
    assert (
        result.exit_code == new.exit_code == 0 and result.stdout == new.stdout and '"dataset": "digits"' in new.stdout
    )
    assert result.stderr.splitlines()[:2] == [
        "fa-registry: --data is now called --replace-dataset",
        "fa-registry: --no-probe is now called --no-timing",
    ]
