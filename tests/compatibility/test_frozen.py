"""Stored and printed names, identities and verdicts are those of the last commit before issue 33; its files still work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compatibility.frozen import FILE, NONCE, PRINTED, STORE, WORDED_OTHERWISE, record, run, unpacked
from tests.helpers.pictures import blank_pictures

FROZEN = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def now():
    """The record; no picture is drawn in it, nor in the tests of this file."""
    with blank_pictures():
        yield record()


@pytest.mark.parametrize("part", [part for part in sorted(FROZEN) if part != "commands"])
def test_what_is_stored_has_the_same_names(now, part):
    assert now[part] == FROZEN[part]


@pytest.mark.parametrize("command", sorted(FROZEN["commands"]))
def test_a_command_prints_the_same_keys_and_exits_with_the_same_code(now, command):
    if command in WORDED_OTHERWISE:
        assert now["commands"][command]["exit"] == 3 and FROZEN["commands"][command]["exit"] == 0
        assert set(now["commands"][command]["shape"][0]) == set(FROZEN["commands"][command]["shape"][0])
        return
    assert now["commands"][command] == FROZEN["commands"][command]


@pytest.mark.parametrize("command", ["verify store", "verify bundle"])
def test_every_run_of_before_is_verified_and_only_pages_and_sentences_are_not(command):
    states = {one["name"]: one["integrity"] for one in PRINTED[command]}
    other = {name: state for name, state in states.items() if state["state"] != "verified"}
    assert len(states) - len(other) >= 6 and all(name.startswith(("the pages", "the verdicts")) for name in other)
    for state in other.values():
        assert state["state"] == "unverifiable"
        assert any("only the wording" in detail or "another release" in detail for detail in state["details"])


def test_templates_an_edition_and_waivers_of_before_still_work():
    with unpacked():
        audit = ["audit", "--study", "study.toml", "--store", STORE, "--nonce", NONCE, "--exit-zero", "--trust-logged"]
        result = run(*audit, "--templates", "templates", "--out", "theirs")
        assert result.exit_code == 0 and Path("theirs/index.html").stat().st_size > 20_000
        assert run(*audit, "--edition", "ours.toml", "--out", "ours").exit_code == 0
        report = json.loads(Path("ours/audit.json").read_text(encoding="utf-8"))
        assert report["edition"]["name"] == "ours"
        states = {(one["record"]["spec"]["method"], one["verdict"]["label"]) for one in report["runs"]}
        assert ("dfa", "LOOK(D3 waived)") in states


def test_one_run_of_before_trained_again_has_the_same_numbers():
    with unpacked():
        again = ["study", "study.toml", "--seeds", "1", "--store", "sqlite:///fresh.db", "--jobs", "1"]
        assert run(*again).exit_code == 0
        series = [
            json.loads(run("show", run_id, "--json", "--store", store).stdout)
            for store in (STORE, "sqlite:///fresh.db")
            for run_id in [_dfa(store)]
        ]
        assert series[0]["spec"] == series[1]["spec"]
        assert _numbers(series[1]["measurements"]) == pytest.approx(
            _numbers(series[0]["measurements"]), rel=1e-5, abs=1e-6
        )


def _dfa(store: str) -> str:
    listed = json.loads(run("list", "runs", "--store", store, "--json").stdout)
    return next(one["run_id"] for one in listed if one["method"] == "dfa" and "s1" in one["name"])


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in _numbers(value[key])]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [value] if isinstance(value, float) else []
