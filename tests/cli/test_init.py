"""What the command line makes of an error that a command did not expect."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from fa_registry.cli import main


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 2), (errno.EACCES, 2), (errno.EIO, 2), (None, 1)])
def test_a_disk_that_refuses_is_a_sentence_and_another_error_shows_itself(number, code, monkeypatch):
    def refuse(*given):
        raise OSError(number, os.strerror(number), "page.html") if number else OSError("unheard of")

    monkeypatch.setattr("fa_registry.inspection.doctor.examine", refuse)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == code and isinstance(result.exception, SystemExit if number else OSError)
    assert not number or os.strerror(number) in result.stderr


def test_ctrl_c_anywhere_is_exit_130_without_a_traceback(monkeypatch):
    def stopped(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("fa_registry.inspection.doctor.examine", stopped)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 130 and "Traceback" not in result.stderr


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
