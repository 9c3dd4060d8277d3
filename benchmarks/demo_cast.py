"""Record a command in a terminal as an asciinema file, with a picture of its last screen.

`python -m benchmarks.demo_cast` records `fa-registry run digits`, the second part of `make demo`.
It writes docs/images/demo.cast and docs/images/demo.svg.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import json
import os
import pty
import re
import shlex
import socket
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COMMAND = ("fa-registry", "run", "digits")
FOLDER = "~/fa_registry"  # replaces the folder in which the command runs
COLUMNS, ROWS, SHOWN = 110, 34, 24  # size of the terminal, and lines in the picture
LONGEST_PAUSE = 1.5  # seconds that a player waits at most between two lines
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # would load fonts from the network
ERASURE = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")  # deletes the last frame of the progress bars
FRAME = 3.0  # seconds between two frames of the progress bars
CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-ln-z]")  # all sequences except colours, which end in m


def recorded(command: Sequence[str], folder: Path) -> Iterator[tuple[float, str]]:
    """Run a command in a terminal; yield each output with its time in seconds since the start.

    Raises:
        SystemExit: the command ended with an error other than "some methods fail" (1).
    """
    start = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            data = os.read(terminal, 2**16)
        except OSError:  # Linux reports the end of the terminal as an error
            data = b""
        if not data:
            break
        yield time.monotonic() - start, decoder.decode(data)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code not in (0, 1):
        raise SystemExit(f"{shlex.join(command)} ended with exit code {code}")


def by_line(events: Iterator[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Join the outputs to whole lines, so a path is never split between two events."""
    rest, seconds = "", 0.0
    for seconds, text in events:
        rest += text
        lines, end, rest = rest.rpartition("\n")
        if end:
            yield seconds, lines + end
    if rest:
        yield seconds, rest


def thinned(events: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out most frames of the progress bars: keep one frame in FRAME seconds, and all other output.

    A frame is left out together with the erasure that follows it, if the erasure removes exactly the lines of the frame.
    """
    parts = [(seconds, part) for seconds, text in events for part in re.split(rf"(?={ERASURE.pattern})", text)]
    frames: list[list[Any]] = []
    for seconds, part in parts:  # each frame begins with an erasure, and may continue in the next event
        if frames and not ERASURE.match(part):
            frames[-1][1] += part
        else:
            frames.append([seconds, part])
    kept, last = [], -FRAME
    for (seconds, frame), (_, after) in pairwise([*frames, [0.0, ""]]):
        drawn = frame[(ERASURE.match(frame) or re.match("", frame)).end() :].count("\n")
        erased = ERASURE.match(after)
        is_bar = bool(erased) and frame.startswith(erased[0] + "all runs") and erased[0].count("\x1b[1A") == drawn
        if is_bar and seconds - last < FRAME:
            continue  # the erasures of this and of the next frame are the same, so the next one replaces it
        last = seconds if is_bar else last
        kept.append((seconds, frame))
    return kept


def without_machine(text: str, folder: Path) -> str:
    """Replace the paths and the name of this machine."""
    replacements = {str(folder.resolve()): FOLDER, str(folder): FOLDER, str(Path.home()): "~", sys.prefix: ".venv"}
    for path, name in replacements.items():
        text = text.replace(path, name)
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host", text).replace(f"file://{FOLDER}", f"file:{FOLDER}")


def cast(title: str, events: Sequence[tuple[float, str]]) -> str:
    """Return the text of an asciinema file of version 2."""
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "idle_time_limit": LONGEST_PAUSE, "title": title}
    lines = [[round(seconds, 3), "o", text] for seconds, text in events]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (header, *lines))


def picture(title: str, text: str) -> str:
    """Return an SVG picture of the last lines of a terminal."""
    lines = [CONTROL.sub("", line).rpartition("\r")[2] for line in text.replace("\r\n", "\n").rstrip("\n").split("\n")]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(lines[-SHOWN:])), soft_wrap=False)
    return FONT_FACE.sub("", console.export_svg(title=title, unique_id="demo"))


def main() -> None:
    """Record the demo and write both files."""
    shown = f"$ {shlex.join(COMMAND)}\r\n"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "fa_registry"
        folder.mkdir()
        lines = by_line(recorded([str(Path(sys.executable).with_name(COMMAND[0])), *COMMAND[1:]], folder))
        events = thinned([(0.0, shown), *((seconds, without_machine(text, folder)) for seconds, text in lines)])
    (IMAGES / "demo.cast").write_text(cast("fa-registry run digits", events), "utf-8")
    (IMAGES / "demo.svg").write_text(picture(COMMAND[0], "".join(text for _, text in events)), "utf-8")


if __name__ == "__main__":
    main()
