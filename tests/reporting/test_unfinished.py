"""What a killed rendering left is removed by the next one; what another is writing is not."""

from __future__ import annotations

from fa_registry.reporting.render import unfinished


def test_the_folder_is_there_while_it_is_needed(tmp_path):
    with unfinished(tmp_path / "out") as folder:
        assert folder.parent == tmp_path / "out" and folder.is_dir()
    assert list((tmp_path / "out").iterdir()) == []


def test_what_the_killed_left_is_removed_and_what_is_in_use_is_not(tmp_path):
    left = tmp_path / ".rendering-killed"
    left.mkdir()
    (left / ".lock").touch()
    (left / "index.html").write_text("half")
    (tmp_path / ".rendering-mine").mkdir()
    with unfinished(tmp_path) as first:
        assert not left.exists()
        (first / "page").touch()
        with unfinished(tmp_path):
            assert (first / "page").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".rendering-mine"]
