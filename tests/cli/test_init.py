"""What the command line makes of an error that a command did not expect."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from fa_registry.cli import main


@pytest.mark.parametrize(
    ("number", "text"),
    [(errno.ENOSPC, "Free some disk space"), (errno.EACCES, "readable and writable"), (errno.EIO, "Check the disk")],
)
def test_a_disk_that_refuses_is_a_sentence(number, text, monkeypatch):
    def refuse(*given):
        raise OSError(number, os.strerror(number), "page.html")

    monkeypatch.setattr("fa_registry.inspection.doctor.examine", refuse)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert (
        f"the disk reports an error: {os.strerror(number)} (page.html); data that were written before are kept"
        in result.stderr
    )
    assert text in result.stderr


def test_another_error_of_the_system_is_a_fault_of_ours_and_shows_itself(monkeypatch):
    def refuse(*given):
        raise OSError("unheard of")

    monkeypatch.setattr("fa_registry.inspection.doctor.examine", refuse)
    assert isinstance(CliRunner().invoke(main, ["doctor"]).exception, OSError)


def test_ctrl_c_anywhere_is_exit_130_without_a_traceback(monkeypatch):
    def stopped(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("fa_registry.inspection.doctor.examine", stopped)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 130 and result.stderr.endswith("stopped on request; the same command can be repeated\n")


def test_the_quick_end_of_a_process_flushes_its_files_and_calls_its_exit_handlers(tmp_path):
    code = (
        "import atexit, gc, sys\n"
        "from fa_registry.cli import main\n"
        "atexit.register(lambda: print('handler called', gc.get_freeze_count() > 0))\n"
        "kept = [open(sys.argv[1], 'w')]\n"
        "kept[0].write('flushed')\n"
        "main(['list', 'nonsense'])"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "text"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "handler called True\n"), done.stderr
    assert (tmp_path / "text").read_text() == "flushed"
