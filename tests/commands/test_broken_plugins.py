"""Packages that cannot be used: requests to others continue, requests to them report why."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from fa_registry import diagnostics, methods, plugin_registry
from fa_registry.inspection import plugin_list
from tests.commands.conftest import TRAIN
from tests.helpers.plugins import NAME, installed

pytestmark = pytest.mark.long

WHY = "ZeroDivisionError: at import"


@pytest.fixture
def careless(tmp_path, monkeypatch):
    """A package whose method and diagnostic both raise on import, and whose second method takes the name of a built-in one."""
    points = "[fa_registry.methods]\nbroken = careless\ndfa = careless\n[fa_registry.diagnostics]\nworse = careless\n"
    with brought(tmp_path, monkeypatch, {"careless": "raise ZeroDivisionError('at import')"}, points):
        yield


@contextmanager
def brought(folder, monkeypatch, sources, points):
    """A package of these modules with these entry points, installed."""
    information = folder / "site-packages" / "careless-1.0.dist-info"
    information.mkdir(parents=True)
    for name, source in sources.items():
        (information.parent / f"{name}.py").write_text(source)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: careless\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(information.parent)
    for family in (methods, diagnostics):
        vars(family.CATALOG).pop("_locations", None)
    yield
    monkeypatch.undo()
    plugin_registry.IMPORTED.clear()
    for family in (methods, diagnostics):
        vars(family.CATALOG).pop("_locations", None)


def test_what_hangs_or_kills_its_process_is_named_and_no_other_waits_for_it(registry, tmp_path, monkeypatch):
    here = f"import os, signal, time\nassert os.getpid() != {os.getpid()}, 'imported here'\n"
    sources = {"deadly": here + "os.kill(os.getpid(), signal.SIGKILL)", "stuck": here + "time.sleep(3600)"}
    points = "[fa_registry.methods]\ndeadly = deadly\nstuck = stuck\n"
    monkeypatch.setattr(plugin_list, "IMPORT_SECONDS", 8.0)
    with brought(tmp_path, monkeypatch, sources, points):
        for call in (TRAIN, ("study", "tiny", "--dry-run"), ("info", "dfa"), ("list", "studies")):
            assert registry(*call).exit_code == 0
        lines = {row["name"]: row["line"] for row in json.loads(registry("list", "methods", "--json").stdout)}
        vars(methods.CATALOG).pop("_locations")  # and with it what list has found out
        found = {row["check"]: row["found"] for row in json.loads(registry("doctor", "--json").stdout)}
    assert "SIGKILL" in found["plugin deadly"] and "sent no heartbeat" in found["plugin stuck"]
    assert "SIGKILL" in lines["deadly"] and "sent no heartbeat" in lines["stuck"] and "dfa" in lines


def test_lists_hold_the_good_and_the_broken_with_its_reason(registry, careless):
    rows = json.loads(registry("list", "methods", "--json").stdout)
    assert {"bp", "dfa", "ep"} <= {row["name"] for row in rows}
    (broken,) = (row for row in rows if row["name"] == "broken")
    assert WHY in broken["line"]
    ours, theirs = (row for row in rows if row["name"] == "dfa")
    assert Path(ours["file"]).parts[-2:] == ("methods", "dfa.py") and "is not used:" in theirs["line"]
    (worse,) = (row for row in json.loads(registry("list", "diagnostics", "--json").stdout) if row["name"] == "worse")
    assert WHY in worse["line"]
    doctor = registry("doctor", "--json")
    wrong = {row["check"]: row["found"] for row in json.loads(doctor.stdout) if not row["ok"]}
    assert set(wrong) == {"plugin broken", "plugin dfa", "plugin worse"} and doctor.exit_code == 1
    assert WHY in wrong["plugin broken"]


def test_others_train_and_are_audited_and_it_is_reported_what_did_not_measure(registry, careless):
    trained = registry(*TRAIN)
    assert trained.exit_code == 0, trained.stderr
    assert trained.stderr.count(WHY) == 1
    result = registry("audit", "--experiment", "fa_registry", "--device", "cpu", "--json")
    (run,) = json.loads(result.stdout)["report"]["runs"]
    assert run["record"]["integrity"]["state"] == "verified"


@pytest.mark.parametrize("call", [("info", "broken"), ("train", "--method", "broken", "--seed", "1")])
def test_asked_for_by_name_it_is_one_sentence(registry, careless, call):
    result = registry(*call)
    assert result.exit_code == 2 and result.stderr.count(WHY) == 1 and "Traceback" not in result.stderr


def test_a_run_whose_plugin_broke_since_is_reported_and_the_others_are_judged(unpublished, registry, tmp_path):
    with installed(tmp_path / "site-packages") as plugin:
        own = [NAME if word == "dfa" else word for word in TRAIN]
        assert registry(*own).exit_code == registry(*TRAIN).exit_code == 0
        plugin.edit("import torch\n", "import torch\nraise ZeroDivisionError('at import')\n")
        result = registry("audit", "--experiment", "fa_registry", "--device", "cpu", "--json")
        report = json.loads(result.stdout)["report"]
    states = {run["record"]["spec"]["method"]: run["record"]["integrity"] for run in report["runs"]}
    assert states["dfa"]["state"] == "verified" and states[NAME]["state"] == "unverifiable"
    assert WHY in json.dumps(states[NAME])
