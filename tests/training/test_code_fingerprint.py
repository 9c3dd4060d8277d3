"""What distinguishes the code that trained a run from today's, in the text that study, train and audit print."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from fa_registry import tasks
from fa_registry.plugin_registry import source_digest
from fa_registry.training.code_fingerprint import (
    fingerprint,
    fingerprint_changes,
    packages_of,
    plugins_of,
    runs_others_code,
)
from tests.helpers.plugins import NAME, PACKAGE, installed, installed_member
from tests.helpers.tiny_tasks import tiny_spec

A, B = "a" * 64, "b" * 64


def mine(version: str = "0.1", digest: str = A, package: str = "mine") -> dict:
    return {"package": package, "version": version, "digest": digest}


@pytest.mark.parametrize(
    ("before", "today", "line"),
    [
        ({"version": 1}, {"version": 1}, ""),
        ({"version": 1}, {"version": 2}, "method m: version 1 → 2"),
        ({"version": 3}, {"version": 2}, "method m: version 3 → 2"),
        (
            None,
            {"version": 1},
            "method m: the run recorded no code of this plug-in; the installed code is version 1 of the built-in plug-in",
        ),
        (mine(), mine(), ""),
        (mine(), mine("0.2"), ""),  # the same source in another release
        (mine(), mine(digest=B), "method m: source edited (digest aaaaaaaa… → bbbbbbbb…)"),
        (mine(), mine("0.2", B), "method m: mine 0.1 → mine 0.2 (digest aaaaaaaa… → bbbbbbbb…)"),
        (mine(), {"version": 1}, "method m: package mine 0.1 (digest aaaaaaaa…) → version 1 of the built-in plug-in"),
        ({"version": 1}, mine(), "method m: version 1 of the built-in plug-in → package mine 0.1 (digest aaaaaaaa…)"),
        (
            None,
            mine(),
            "method m: the run recorded no code of this plug-in; the installed code is package mine 0.1 (digest aaaaaaaa…)",
        ),
    ],
)
def test_what_changed_is_reported_in_text(before, today, line):
    recorded = {"methods/m": before} if before else {}
    assert fingerprint_changes(recorded, {"methods/m": today}) == ((line,) if line else ())


def test_a_diagnostic_that_came_or_went_changes_nothing_an_edited_one_does():
    assert fingerprint_changes({}, {"diagnostics/d": mine(), "diagnostics/h_norm": {"version": 1}}) == ()
    assert fingerprint_changes({"diagnostics/d": mine()}, {}) == ()
    (change,) = fingerprint_changes({"diagnostics/d": mine()}, {"diagnostics/d": mine(digest=B)})
    assert "d: source edited" in change and "aaaaaaaa" in change and B[:8] in change


def test_a_run_of_ours_alone_names_versions():
    code = fingerprint(tiny_spec(dataset="random_targets:digits"))
    assert {"methods/dfa", "architectures/resmlp", "datasets/random_targets:digits", "diagnostics/gamma"} <= set(code)
    assert all(set(entry) == {"version"} for entry in code.values())


TASK = """
import dataclasses
from fa_registry.tasks.classification import Classification

class Mine(Classification):
    card = dataclasses.replace(Classification.card, name="mine_task")

PLUGIN = Mine()
"""
DATA = """
import dataclasses
from fa_registry.datasets.digits import Digits

class Mine(Digits):
    card = dataclasses.replace(Digits.card, name="mine_data", task="mine_task")

PLUGIN = Mine()
"""


@pytest.fixture
def third_party_data(tmp_path):
    """A data set of one package with the task of another package."""
    with (
        installed_member(tmp_path / "task", "tasks", "mine_task", TASK),
        installed_member(tmp_path / "data", "datasets", "mine_data", DATA),
    ):
        yield


@pytest.mark.parametrize("dataset", ["mine_data", "random_targets:mine_data"])
def test_the_packages_of_a_run_include_its_data_set_and_its_task(third_party_data, dataset):
    """An audit groups runs by their packages before any import, and recomputes each in another process."""
    spec = dataclasses.replace(tiny_spec(), dataset=dataset)
    assert packages_of(spec) == {"mine_data", "mine_task"} and runs_others_code(spec)
    assert not {"mine_data", "mine_task"} & set(sys.modules)
    assert packages_of(tiny_spec()) == frozenset() == packages_of(tiny_spec(dataset="random_targets:digits"))


@pytest.mark.parametrize("dataset", ["mine_data", "random_targets:mine_data"])
def test_an_edited_task_or_data_set_of_a_run_is_another_code(third_party_data, tmp_path, dataset):
    spec = dataclasses.replace(tiny_spec(), dataset=dataset)
    before = fingerprint(spec)
    assert {"datasets/mine_data", "tasks/mine_task", f"datasets/{dataset}"} <= set(before)
    assert (tasks.CATALOG, "mine_task") in plugins_of(spec, before)
    for kind in ("task", "data"):
        module = tmp_path / kind / f"mine_{kind}.py"
        text = module.read_text()
        module.write_text(text + "# edited\n")
        source_digest.cache_clear()
        (line,) = fingerprint_changes(before, fingerprint(spec))
        assert f"mine_{kind}: source edited (digest " in line
        module.write_text(text)
        source_digest.cache_clear()
    assert fingerprint_changes(before, fingerprint(spec)) == ()


def test_every_file_of_the_package_is_in_the_digest(tmp_path):
    with installed(tmp_path) as plugin:
        first = source_digest(f"{PACKAGE}.{NAME}")
        helper = tmp_path / PACKAGE / "deep" / "helper.py"
        helper.parent.mkdir()
        helper.write_text("SCALE = 5\n")
        plugin.forget()
        second = source_digest(f"{PACKAGE}.{NAME}")
        helper.rename(helper.with_name("other.py"))
        plugin.forget()
        assert len({first, second, source_digest(f"{PACKAGE}.{NAME}")}) == 3


def test_a_module_alone_and_a_part_of_a_shared_name_have_digests_of_their_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lone_rule.py").write_text("PLUGIN = 1\n")
    for name in ("mine", "yours"):
        (tmp_path / "shared_name" / name).mkdir(parents=True)
        (tmp_path / "shared_name" / name / "__init__.py").write_text(f"PLUGIN = '{name}'\n")
    before = source_digest("shared_name.mine")
    assert len({before, source_digest("shared_name.yours"), source_digest("lone_rule")}) == 3
    (tmp_path / "shared_name" / "yours" / "__init__.py").write_text("PLUGIN = 'edited'\n")
    source_digest.cache_clear()
    assert source_digest("shared_name.mine") == before  # another distribution's part of the name
