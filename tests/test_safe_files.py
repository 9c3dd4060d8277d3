"""Files of others: links, pipes, files without an end, names that lead out of their folder."""

import os
import zipfile
from pathlib import Path

import pytest

from fa_registry import jsonio, process_ownership, safe_files
from fa_registry.errors import IntegrityError, InvalidFields, StoreError, UsageError, unknown_name_text
from fa_registry.safe_files import UnreadableFile, check_file, copy_into, join_safely, open_zip, read_file


@pytest.fixture
def hostile(tmp_path):
    """A file of each kind that is none, by its name."""
    (tmp_path / "secret").write_text("private")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_a_regular_file_is_read_whole(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file", limit=5) == b"12345"
    assert check_file(tmp_path / "file", limit=5) == tmp_path / "file"


@pytest.mark.parametrize("name", ["link", "pipe", "endless", "folder", "missing", "zero\0byte"])
@pytest.mark.parametrize("read", [read_file, check_file, jsonio.read_json])
def test_what_is_no_regular_file_is_refused_at_once(hostile, name, read):
    """At once: a pipe without a writer would hold a reader forever, /dev/zero would fill the memory."""
    with pytest.raises(UnreadableFile):
        read(hostile / name)


@pytest.mark.parametrize("device", ["/dev/zero", "/proc/self/environ"])
def test_a_device_and_a_file_that_says_it_is_empty_are_bounded(device):
    with pytest.raises(UnreadableFile):
        read_file(Path(device), limit=3)


def test_one_byte_too_many_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"123456")
    for read in (read_file, check_file):
        with pytest.raises(UnreadableFile, match="6 bytes"):
            read(tmp_path / "file", limit=5)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "link", "folder/../../x", "linked/file"])
def test_a_name_that_leads_out_of_its_folder_is_refused(hostile, name):
    (hostile / "linked").symlink_to(hostile / "folder")
    with pytest.raises(UnreadableFile):
        join_safely(hostile, name)
    assert join_safely(hostile, "folder/missing") == hostile / "folder" / "missing"


@pytest.mark.parametrize(
    "text", ["[1e999]", "[NaN]", "[-Infinity]", '{"a": 1, "a": 2}', "[" * 100_000, "9" * 5000, "{", "\ufeff1"]
)
def test_json_that_cannot_be_written_again_is_refused(tmp_path, text):
    (tmp_path / "file.json").write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableFile, match="cannot be read as JSON"):
        jsonio.read_json(tmp_path / "file.json")


def test_what_is_put_inside_writes_through_no_link(hostile, monkeypatch):
    """Neither one in the place of the file nor one that waits by the name that it has until it is whole."""
    source = hostile / "source"
    source.mkdir()
    (source / "page").write_text("new")
    (hostile / "folder" / "page").symlink_to(hostile / "secret")
    copy_into(hostile / "folder", source)
    assert not (hostile / "folder" / "page").is_symlink() and (hostile / "folder" / "page").read_text() == "new"
    monkeypatch.setattr(process_ownership, "owner_suffix", lambda: ".known")
    (hostile / "folder" / ".page.known").symlink_to(hostile / "secret")
    with pytest.raises(FileExistsError):
        copy_into(hostile / "folder", source)
    assert (hostile / "secret").read_text() == "private"


def test_an_archive_whose_list_of_files_is_too_long_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for place in range(1_000):
            archive.writestr(f"{place:04}", b"")
        archive.writestr("last", b"x" * 100_000)
    with open_zip(path) as archive:
        assert len(archive.infolist()) == 1_001 and archive.read("last") == b"x" * 100_000
    monkeypatch.setattr(safe_files, "ONE_READ", 50_000)  # of the list: 1,001 entries of 46 bytes and a name of 4
    with (
        pytest.raises(zipfile.BadZipFile, match="the list of files in the zip archive has more than 50,000 bytes"),
        open_zip(path),
    ):
        pass


@pytest.mark.parametrize("kind", [UsageError, IntegrityError, StoreError])
def test_no_error_is_longer_than_a_person_reads(kind):
    assert str(kind("x" * 10**6)) == "x" * 3_900 + "…" and str(kind("short")) == "short"
    assert InvalidFields("study", ["a" * 10**6, *map(str, range(10**5))]).problems[-1] == "99999"
    assert len(str(InvalidFields("study", ["a" * 10**6, *map(str, range(10**5))]))) < 3_200
    assert len(unknown_name_text("field", "x" * 10**6, ["y" * 10**5] * 10**4)) < 9_000
