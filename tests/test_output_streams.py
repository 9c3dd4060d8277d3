"""Streams that outlive their reader, and what is still an error of a disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings

import pytest

from fa_registry.output_streams import _OutlivingFile, has_reader, outlive_readers, print_warnings
from fa_registry.tracking.store_errors import StoreRefusal, refused


@pytest.fixture
def pipe():
    """A file over a pipe whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    yield _OutlivingFile(write, "wb", closefd=False)
    os.close(write)


def test_a_pipe_without_a_reader_takes_everything(pipe):
    assert pipe.write(b"abc") == 3 and pipe.is_abandoned
    os.write(pipe.fileno(), b"as a library in C does")


def test_a_terminal_that_is_gone_takes_everything():
    main, terminal = os.openpty()
    os.close(main)
    file = _OutlivingFile(terminal, "wb", closefd=False)
    assert file.write(b"abc") == 3 and file.is_abandoned
    os.close(terminal)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_is_still_an_error():
    with _OutlivingFile("/dev/full", "wb") as file, pytest.raises(OSError) as refusal:
        file.write(b"abc")
    assert refusal.value.errno == errno.ENOSPC and not file.is_abandoned


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_shows_at_shutdown(unbuffered):
    """Python's own code for a standard stream that cannot be flushed at its end is 120."""
    read, write = os.pipe()
    os.close(read)
    code = (
        "import sys, fa_registry.output_streams as streams\n"
        "streams.outlive_readers(); streams.outlive_readers()\n"
        "sys.stdout.write('late'); assert sys.stdout.encoding and sys.stdout.name == '<stdout>'\n"
        "sys.exit(7)"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ended = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, env=environment)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (7, b"")


def test_a_stream_that_is_not_the_processs_own_stays(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # as with `>&-`
    outlive_readers()
    assert sys.stdout is None and has_reader(None)


def test_a_closed_pipe_is_no_refusal_of_a_disk_and_a_full_disk_is():
    with pytest.raises(BrokenPipeError), refused("the disk"):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    assert StoreRefusal("the disk", BrokenPipeError(errno.EPIPE, "Broken pipe")).kind == ""
    with pytest.raises(StoreRefusal, match="the disk reports an error: No space left on device"), refused("the disk"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


PRINTED = "Γ │ é \udcc3"  # the last is a byte of a file name


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("latin-1", b"? ? \xe9 \xc3"), ("ascii", b"? ? ? \xc3"), ("ascii:surrogateescape", b"? ? ? \xc3")],
)
@pytest.mark.parametrize("command", ["print(TEXT, end='')", "import click; click.echo(TEXT, nl=False)"])
def test_a_character_that_the_encoding_lacks_is_replaced(encoding, expected, command):
    code = f"import fa_registry.output_streams as streams\nstreams.outlive_readers()\nTEXT = {PRINTED!a}\n{command}"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, expected, b"")


def test_an_error_handler_that_the_user_has_chosen_stays():
    code = "import fa_registry.output_streams as streams\nstreams.outlive_readers()\nprint('Γ', end='')"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1:xmlcharrefreplace", "PYTHONUTF8": "1"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert ended.stdout == b"&#915;"


@pytest.mark.parametrize("options", [["-W", "error"], ["-W", "err::UserWarning"], []])
def test_a_warning_is_printed_and_not_raised_also_in_a_process_that_is_started(options):
    warns = "import warnings; warnings.warn('of a dependency')"
    code = (
        "import fa_registry.output_streams as streams, multiprocessing.util as util, subprocess, sys\n"
        f"streams.print_warnings()\n{warns}\n"
        f"child = [sys.executable, *util._args_from_interpreter_flags(), '-c', {warns!r}]\n"
        "sys.exit(subprocess.run(child).returncode)"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "" if options else "error,ignore::ResourceWarning"}
    ended = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0 and ended.stderr.count("of a dependency") >= 2
    assert "Traceback" not in ended.stderr


def test_without_an_option_the_filters_of_warnings_stay():
    """pytest sets its filters without an option of the interpreter."""
    with pytest.raises(UserWarning):
        print_warnings()
        warnings.warn("still an error", UserWarning, stacklevel=1)
