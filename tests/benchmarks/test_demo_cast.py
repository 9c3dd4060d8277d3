"""Tests of the recorder of the demo, and of the recording itself."""

import json
import sys
from pathlib import Path

from benchmarks import demo_cast

BAR, ERASED = "all runs 1/2\r\nrun a\n", "\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K"


def test_a_command_is_recorded_in_a_terminal_by_whole_lines(tmp_path):
    code = "import sys; print(sys.stdout.isatty()); print('two')"
    text = "".join(text for _, text in demo_cast.by_line(demo_cast.recorded([sys.executable, "-c", code], tmp_path)))
    assert text == "True\r\ntwo\r\n"


def test_an_event_ends_with_a_line():
    assert list(demo_cast.by_line(iter([(1.0, "a/"), (2.0, "b\nc"), (3.0, "d")]))) == [(2.0, "a/b\n"), (3.0, "cd")]


def test_only_frames_of_the_bars_are_left_out():
    frames = [(0.0, "start\n")] + [(0.1 * at, f"{ERASED}{BAR}") for at in range(1, 90)] + [(9.0, f"{ERASED}end\n")]
    kept = demo_cast.thinned(frames)
    assert len(kept) < 10 and kept[0] == frames[0] and kept[-1] == frames[-1]


def test_paths_of_the_machine_are_replaced(tmp_path):
    text = demo_cast.without_machine(f"report: {tmp_path.as_uri()}/index.html {Path.home()}/x", tmp_path)
    assert text == "report: file:~/fa_registry/index.html ~/x"


def test_the_recording_is_an_asciinema_file_and_the_picture_loads_nothing():
    header, *events = map(json.loads, (demo_cast.IMAGES / "demo.cast").read_text("utf-8").splitlines())
    assert header["version"] == 2 and header["width"] == demo_cast.COLUMNS
    times = [seconds for seconds, kind, _ in events if kind == "o"]
    assert len(times) == len(events) and times == sorted(times)
    assert "@font-face" not in (demo_cast.IMAGES / "demo.svg").read_text("utf-8")
