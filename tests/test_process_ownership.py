"""Whose a temporary folder or a run is: nothing of a live process is ever taken for a stale file."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fa_registry import process_ownership
from tests.helpers.dead_process import FREE_PID, killed_mark, killed_tag, left_folder


def test_this_process_lives_and_one_that_is_gone_does_not():
    assert not process_ownership.is_dead(process_ownership.process_tag()) and process_ownership.is_dead(killed_tag())
    assert not process_ownership.is_abandoned(
        f"x{process_ownership.owner_suffix()}y"
    ) and process_ownership.is_abandoned(f"x{killed_mark()}y")


@pytest.mark.parametrize("tag", ["", "nonsense", "elsewhere:1:2:3", "a:b:c:d:e", f"{platform.node()}:{FREE_PID}"])
def test_what_names_no_process_of_this_machine_is_never_dead(tag):
    assert not process_ownership.is_dead(tag)


def test_a_tag_without_a_container_names_no_process_of_this_machine():
    assert not process_ownership.is_dead(f"{platform.node()}:{FREE_PID}")


def test_a_process_of_another_container_is_never_dead():
    assert not process_ownership.is_dead(f"{platform.node()}:{FREE_PID}:5:elsewhere")


def test_a_file_of_another_machine_is_never_abandoned():
    host = killed_mark().split(".")[1]
    assert not process_ownership.is_abandoned(f"x{killed_mark().replace(host, '000000')}y")


def test_the_name_of_a_temporary_file_has_host_pid_and_start(monkeypatch):
    name = process_ownership.owner_suffix()
    monkeypatch.setattr(process_ownership, "_namespace", lambda: "elsewhere")
    process_ownership._host.cache_clear()
    assert process_ownership.owner_suffix() == name


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process began")
def test_a_pid_that_was_given_again_is_another_process():
    host, pid, start, namespace = process_ownership.process_tag().split(":")
    assert process_ownership.is_dead(f"{host}:{pid}:{int(start) - 1}:{namespace}")


def test_a_process_of_which_the_system_tells_nothing_lives_as_long_as_it_is_there(monkeypatch):
    """Other users' processes, where /proc hides them; all, where there is no /proc."""
    mine, dead = process_ownership.process_tag(), killed_tag()

    def hidden(*arguments, **named):
        raise FileNotFoundError("hidden")

    monkeypatch.setattr(Path, "read_text", hidden)
    assert not process_ownership.is_dead(mine) and process_ownership.is_dead(dead)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells that a process waits to be buried")
def test_a_process_that_ended_and_was_not_waited_for_is_dead():
    host, _, _, namespace = process_ownership.process_tag().split(":")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_ownership.is_dead(f"{host}:{process.pid}:0:{namespace}")


def test_folders_of_the_killed_are_found_and_those_in_use_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, server = left_folder("fa_registry-run-", tmp_path), tmp_path / "pymp-abc"
    server.mkdir()
    (server / f"fa_registry-server{killed_mark()}").touch()
    (tmp_path / "pymp-of-another-program").mkdir()
    with process_ownership.temp_dir("fa_registry-run-") as mine:
        assert mine.parent == tmp_path and process_ownership.abandoned_folders() == [left, server]
        for path in process_ownership.abandoned_folders():
            process_ownership.remove_quietly(path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine.name, "pymp-of-another-program"])
    assert not mine.exists()


def test_a_link_that_bears_the_mark_of_the_killed_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "kept").mkdir()
    link = tmp_path / "tmp" / f"fa_registry-run-{killed_mark()}x"
    link.symlink_to(tmp_path / "kept")
    assert process_ownership.abandoned_folders() == []
    process_ownership.remove_quietly(link)
    assert (tmp_path / "kept").is_dir()


def test_processes_of_a_parent_that_is_gone_are_found(monkeypatch):
    # by the usual name, a command that another test runs at this moment would end the one that it finds abandoned
    monkeypatch.setattr(process_ownership, "VARIABLE", "FA_REGISTRY_OF_THIS_TEST")
    waits = [sys.executable, "-c", "print(flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    asked = [process_ownership.process_tag(), killed_tag()]
    children = [
        subprocess.Popen(waits, env={**os.environ, process_ownership.VARIABLE: owner}, **pipes) for owner in asked
    ]
    try:
        for child in children:
            assert child.stdout.readline()  # at work: until then, Linux may show it without an environment
        found = process_ownership.abandoned_processes()
        assert children[0].pid not in found and (children[1].pid in found or sys.platform != "linux")
    finally:
        for child in children:
            child.communicate(b"\n")
