"""Catalogs: built-in files and third-party entry points."""

from __future__ import annotations

import sys
import threading
import types
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from fa_registry import architectures, datasets, diagnostics, methods, plugin_registry
from fa_registry.errors import PluginError, UnknownName
from fa_registry.methods.base import Method, MethodCard
from fa_registry.methods.dfa import PLUGIN as DFA
from fa_registry.plugin_registry import Catalog

GROUP = "fa_registry.methods"


@pytest.fixture
def entry_points(monkeypatch):
    """Pretend that other packages bring these: entry_points(name="module:attribute", …)."""

    def install(**points: str) -> Catalog:
        found = [EntryPoint(name, value, GROUP) for name, value in points.items()]
        monkeypatch.setattr(plugin_registry, "entry_points", lambda path: EntryPoints(found))
        return Catalog("methods", "method", Method, card=MethodCard)

    return install


@pytest.fixture
def third_party(monkeypatch):
    """An importable module `their_method` that binds GOOD (a Method) and BAD (a text)."""
    module = types.ModuleType("their_method")
    module.GOOD, module.BAD = DFA, "no method at all"
    module.__spec__ = types.SimpleNamespace(origin="their/method.py")
    monkeypatch.setitem(sys.modules, "their_method", module)


def test_built_in_members_are_the_files_of_the_folder():
    assert {"bp", "fa", "dfa"} <= set(methods.CATALOG.names())
    assert methods.CATALOG.names() == sorted(methods.CATALOG.names())
    assert not {"base", "__init__"} & set(methods.CATALOG.names())
    assert not any(name.startswith("_") for name in diagnostics.CATALOG.names())


@pytest.mark.parametrize("family", [methods, architectures, datasets, diagnostics], ids=lambda family: family.__name__)
def test_every_member_loads_and_is_named_like_its_file(family):
    for name in family.CATALOG.names():
        assert family.CATALOG.get(name).card.name == name


def test_unknown_name_says_which_was_meant():
    with pytest.raises(UnknownName, match=r"unknown method 'dfaa' \(did you mean 'dfa'\?\); known: .*bp.*dfa"):
        methods.CATALOG.get("dfaa")


def test_an_entry_point_is_found_like_a_built_in(entry_points, third_party):
    found = entry_points(mine="their_method:GOOD")
    assert "mine" in found.names()
    assert found.get("mine") is DFA
    assert found.location("mine").file == "their/method.py"


def test_a_builtin_name_stays_builtin_and_it_is_logged_who_wanted_it(entry_points, third_party, caplog):
    found = entry_points(dfa="their_method:GOOD", mine="their_method:GOOD")
    assert found.location("dfa").is_builtin and found.get("dfa") is DFA and "mine" in found.members()
    text = "their/method.py (their_method:GOOD) is not used:"
    (fault,) = found.faults()
    assert fault.name == "dfa" and text in fault.why and "methods/dfa.py" in fault.why and text in caplog.text


def test_of_two_packages_with_one_name_neither_is_taken_and_both_are_named(monkeypatch, third_party):
    found = [EntryPoint("mine", f"their_method:{what}", GROUP) for what in ("GOOD", "BAD")]
    monkeypatch.setattr(plugin_registry, "entry_points", lambda path: EntryPoints(found))
    methods_of = Catalog("methods", "method", Method)
    with pytest.raises(PluginError, match=r"'mine' is registered twice: .* and their/method.py \(their_method:BAD\)"):
        methods_of.get("mine")
    assert "mine" not in methods_of.members() and "dfa" in methods_of.members()


def test_an_entry_point_that_is_read_twice_is_one(monkeypatch, third_party):
    found = [EntryPoint("mine", "their_method:GOOD", GROUP)] * 2
    monkeypatch.setattr(plugin_registry, "entry_points", lambda path: EntryPoints(found))
    assert Catalog("methods", "method", Method).faults() == []


def test_a_plugin_of_another_kind_is_refused(entry_points, third_party):
    with pytest.raises(
        PluginError, match=r"their_method:BAD is a str, expected an instance of fa_registry.methods.base.Method"
    ):
        entry_points(mine="their_method:BAD").get("mine")


def test_a_missing_attribute_is_named(entry_points, third_party):
    with pytest.raises(PluginError, match="their/method.py defines no NOTHING"):
        entry_points(mine="their_method:NOTHING").get("mine")


BROKEN = {
    "absent": ("absent_package.method:PLUGIN", "absent_package.method cannot be imported: ModuleNotFoundError"),
    "raising": ("raising:PLUGIN", r"raising.py cannot be imported: ZeroDivisionError: at import"),
    "below": ("raising.below:PLUGIN", r"raising.below cannot be imported: ZeroDivisionError: at import"),
    "leaving": ("leaving:PLUGIN", r"leaving.py cannot be imported: SystemExit: 7"),
    "vanishing": ("vanishing:PLUGIN", r"vanishing.py cannot be imported: SystemExit: 0"),
    "odd": ("odd:PLUGIN", r"odd.py cannot be imported: GeneratorExit"),
    "malformed": ("no module: at all", "cannot be imported: "),
    "cardless": ("cardless:PLUGIN", r"the card of cardless:PLUGIN is a str, expected an instance of .*MethodCard"),
}
SOURCES = {
    "raising": "raise ZeroDivisionError('at\\nimport')",
    "leaving": "raise SystemExit(7)",
    "vanishing": "import os\nos._exit(0)",
    "odd": "raise GeneratorExit",
    "cardless": "from fa_registry.methods.dfa import DirectFeedbackAlignment\n"
    "class Cardless(DirectFeedbackAlignment):\n    card = 'mine'\nPLUGIN = Cardless()",
}


@pytest.fixture
def broken(entry_points, monkeypatch, tmp_path):
    """A catalog of methods with every kind of broken plugin in it."""
    for name, source in SOURCES.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return entry_points(**{name: value for name, (value, _) in BROKEN.items()})


def test_what_is_broken_stands_in_nobodys_way(broken, caplog):
    assert set(BROKEN) <= set(broken.names()) and broken.get("dfa") is DFA
    usable = broken.members()
    assert list(usable) == methods.CATALOG.names() and usable["dfa"] is DFA
    assert {fault.name for fault in broken.faults()} == set(BROKEN)
    assert [name for name in BROKEN if f"left out: method {name!r}" not in caplog.text] == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_and_asked_for_says_why_each_time(broken, name):
    for _ in range(2):
        with pytest.raises(PluginError, match=BROKEN[name][1]) as caught:
            broken.get(name)
        assert str(caught.value).startswith(f"method {name!r}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("card", "text"),
    [
        ('MethodCard(name="mine", rule="r")', "TypeError: .*missing .*'citation', 'bibtex'"),
        (
            'MethodCard("mine", "r", "", "@misc{}", "e", (), ("any",), "bp", "none", "f")',
            "the card of method 'mine' has missing or invalid fields: citation",
        ),
    ],
)
def test_a_card_that_lacks_a_field_is_reported_with_its_file(entry_points, monkeypatch, tmp_path, card, text):
    (tmp_path / "careless_method.py").write_text(f"from fa_registry.methods.base import MethodCard\nCARD = {card}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=text) as caught:
        entry_points(mine="careless_method:PLUGIN").get("mine")
    assert "TypeError" not in text or f"method 'mine': {tmp_path / 'careless_method.py'} cannot be imported" in str(
        caught.value
    )


def test_where_a_member_lives_is_found_without_importing_the_packages_above_it(entry_points, monkeypatch, tmp_path):
    for package in ("loud", "loud/inner"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ZeroDivisionError")
    (tmp_path / "loud" / "inner" / "method.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    known = entry_points(mine="loud.inner.method:PLUGIN", gone="loud.nowhere.method", none="nowhere.at.all")
    assert known.location("mine").file == str(tmp_path / "loud" / "inner" / "method.py")
    assert known.location("gone").file == "loud.nowhere.method" and known.location("none").file == "nowhere.at.all"
    assert "loud" not in sys.modules


def test_what_takes_long_is_named_while_it_does(entry_points, monkeypatch, tmp_path, caplog):
    logged = threading.Event()
    monkeypatch.setitem(sys.modules, "waiting_room", types.SimpleNamespace(logged=logged))
    monkeypatch.setattr(plugin_registry, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(caplog.handler, "emit", lambda record: (caplog.handler.records.append(record), logged.set()))
    (tmp_path / "slow.py").write_text(
        "import waiting_room\nassert waiting_room.logged.wait(120)\nraise ImportError('late')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match="late"):
        entry_points(mine="slow:PLUGIN").get("mine")
    assert any("method 'mine':" in record.getMessage() for record in caplog.records)


def test_what_hangs_is_given_up_and_the_caller_does_not_continue_as_if_it_were_not_there(
    entry_points, monkeypatch, tmp_path, caplog
):
    leave = threading.Event()
    monkeypatch.setitem(sys.modules, "waiting_room", types.SimpleNamespace(leave=leave))
    monkeypatch.setattr(plugin_registry, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(plugin_registry, "MOST_SECONDS", 0.0)
    (tmp_path / "stuck.py").write_text("import waiting_room\nwaiting_room.leave.wait(300)")
    monkeypatch.syspath_prepend(tmp_path)
    known = entry_points(mine="stuck:PLUGIN")
    try:
        for ask in (lambda: known.get("mine"), known.members):
            with pytest.raises(
                PluginError, match=r"stuck.py was stopped after 0 seconds; `pip uninstall \w+` removes the package"
            ):
                ask()
    finally:
        leave.set()
    assert "takes long" in caplog.text and "left out" not in caplog.text


def test_a_ctrl_c_while_a_package_is_imported_is_one(entry_points, monkeypatch, tmp_path):
    (tmp_path / "interrupted.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        entry_points(mine="interrupted:PLUGIN").get("mine")
