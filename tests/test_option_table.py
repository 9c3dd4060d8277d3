"""One declaration of an option: click, the signature, the docstring and completion have it from there."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
import numpy
import pytest
from click.testing import CliRunner

import fa_registry
from fa_registry import api
from fa_registry.cli import main
from fa_registry.cli.options import takes
from fa_registry.errors import UsageError
from fa_registry.option_table import MISSING, build, documented, merged, nested, option, options_of, takes_options

# a function of the API → its command, and the options that only Python has
COMMANDS = {"train": ("train", {"executor"}), "work": ("worker", set()), "import_bundle": ("import", set())}
COMMANDS |= {name: (name, set()) for name in ("study", "audit", "compare", "verify", "bundle", "report")}
# what a command has beside the table: its operands, how a result is printed and how a process ends
BESIDE = {"as_json", "exit_zero"}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_and_function_have_their_options_from_the_same_table(name):
    command, only_python = COMMANDS[name]
    table = {each.name: each for each in getattr(fa_registry, name).options}
    parameters = inspect.signature(getattr(fa_registry, name)).parameters
    typed = {found.name: found for found in main.commands[command].params if isinstance(found, click.Option)}
    assert typed.keys() - BESIDE == table.keys() - only_python and table.keys() <= parameters.keys()
    text = inspect.getdoc(getattr(fa_registry, name))
    for each in table.values():
        assert text.count(f"\n    {each.name}: ") == 1
        assert parameters[each.name].default == (inspect.Parameter.empty if each.default is MISSING else each.default)
        if each.name not in only_python:
            shown = typed[each.name]
            assert shown.help == each.help and shown.opts + shown.secondary_opts == each.flag.split("/")


def test_every_public_function_of_the_api_takes_its_options_from_the_table():
    functions = {
        name for name, found in vars(api).items() if inspect.isfunction(found) and found.__module__ == api.__name__
    }
    assert functions == {*COMMANDS, "forget"}
    assert all(getattr(api, name).options for name in functions)


def numbers(pairs):
    return {name: int(value) for name, value in (pair.split("=") for pair in pairs)}


@dataclass(frozen=True)
class Inner:
    speed: int = option(2, "Speed of the wind.", bounds=(1, 9), metavar="KNOTS")


@dataclass(frozen=True)
class Scratch:
    """One option of each kind; a field more is an option more everywhere."""

    target: str = option(MISSING, "Where to go, unless --is-still.")
    is_still: bool = option(False, "Do not move.")
    names: tuple[Any, ...] = option((), "Several names.", "--name", is_list=True, completes=("north", "south"))
    weights: Mapping[str, int] = option(None, "Weights.", "--weight", python="Weights by name.", pairs=numbers)
    wind: Inner = nested(Inner)


@takes_options("target")
def go(scratch: Scratch, *, how: str = "fast") -> tuple[Scratch, str]:
    """Go somewhere.

    Args:
        how: Not an option.

    Returns:
        What was given.
    """
    return scratch, how


@click.command()
@takes(go)
def gone(**arguments: Any) -> None:
    """Go."""
    click.echo(repr(go(**arguments)[0]))


def test_an_option_that_is_declared_once_is_everywhere():
    parameters = inspect.signature(go).parameters
    assert list(parameters) == ["target", "how", "is_still", "names", "weights", "speed"]
    assert parameters["target"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert (
        parameters["weights"].annotation == "Mapping[str, int] | None" and parameters["names"].annotation == "Several"
    )
    lines = inspect.getdoc(go).splitlines()
    args = lines[lines.index("Args:") + 1 : lines.index("Returns:") - 1]
    assert args[:2] == ["    how: Not an option.", "    target: Where to go, unless is_still."]
    assert "    weights: Weights by name." in args and len(args) == 6
    words = CliRunner().invoke(gone, ["--help"]).output
    assert "--speed KNOTS" in words and "[default: 2; 1<=x<=9]" in words
    names = next(found for found in gone.params if found.name == "names")
    assert [item.value for item in names.shell_complete(click.Context(gone), "north,s")] == ["north,south"]


def test_an_unknown_option_of_a_function_suggests_the_known_one():
    with pytest.raises(TypeError, match=r"go\(\) got an unexpected keyword argument 'name'; .*did you mean 'names'"):
        go("here", name="north")


@pytest.mark.parametrize("text", [",", " , ,", " "])
def test_a_list_of_separators_is_refused(text):
    with pytest.raises(UsageError, match="names: expected values separated by commas, found"):
        go("here", names=text)  # would select all names
    assert go("here", names="")[0].names == go("here")[0].names == ()
    assert go("here", names=numpy.array([1, 2]))[0].names == (1, 2)


def test_both_ways_make_the_same_object():
    expected = Scratch("home", True, ("a", "b"), {"x": 1, "y": 2}, Inner(7))
    given = {"is_still": True, "names": "a,b", "weights": {"x": 1, "y": 2}, "speed": 7}
    assert go("home", **given) == (expected, "fast") and go("home", **given, how="slow")[1] == "slow"
    typed = ["--target", "home", "--is-still", "--name", "a,b", "--weight", "x=1", "--weight", "y=2", "--speed", "7"]
    assert CliRunner().invoke(gone, typed).output == f"{expected}\n"
    assert (
        go("home")[0] == Scratch("home")
        and CliRunner().invoke(gone, ["--target", "home"]).output == f"{Scratch('home')}\n"
    )
    assert CliRunner().invoke(gone, []).exit_code == 2


def test_a_name_that_is_no_option_is_refused():
    with pytest.raises(TypeError, match=r"go\(\) got an unexpected keyword argument 'sped'"):
        go("home", sped=1)


def test_a_part_of_a_group_can_be_taken():
    assert [each.name for each in options_of(Scratch, "speed target")] == ["target", "speed"]
    assert build(Inner, {"speed": 3, "other": 1}) == Inner(3)


def test_of_two_groups_with_one_name_the_first_describes_the_option():
    @dataclass(frozen=True)
    class Other:
        speed: int = option(3, "Speed of the current.")

    assert [each.help for each in merged(options_of(Inner), options_of(Other))] == ["Speed of the wind."]


def test_without_docstrings_there_is_none_to_complete():
    assert documented(None, options_of(Inner)) is None
    assert documented("Go.\n\n    >>> go()\n    1\n    ", options_of(Inner)).index("Args:") < 12


def test_options_of_a_group_are_independent_of_its_subclass():
    @dataclass(frozen=True)
    class Faster(Inner):
        speed: int = option(9, "Speed of a storm.")

    assert [each.default for each in (*options_of(Inner), *options_of(Faster))] == [2, 9]
    assert dataclasses.asdict(Faster()) == {"speed": 9}
