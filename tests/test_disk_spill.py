"""Records in a spill file: only the memory use differs."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from fa_registry import disk_spill, parallel
from fa_registry.disk_spill import SpilledFields, SpillFile, replace_fields


@dataclass(frozen=True)
class Word(SpilledFields):
    SPILLED_FIELDS = ("letters", "counts")

    name: str
    letters: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    language: str = "en"


def word(name: str) -> Word:
    return Word(name, tuple(name), {letter: name.count(letter) for letter in name})


@pytest.fixture(autouse=True)
def all_lie(monkeypatch):
    monkeypatch.setattr(disk_spill, "AS_THEY_ARE", 0)


def lies(record) -> bool:
    return not {*record.SPILLED_FIELDS} & {*vars(record)}


def test_what_lies_there_is_as_it_was():
    (spilled,) = SpillFile().spill_all([word("banana")])
    assert lies(spilled) and spilled.letters == tuple("banana") and spilled.counts["a"] == 3
    assert spilled == word("banana") != word("banane") and repr(spilled) == repr(word("banana"))
    with pytest.raises(AttributeError, match="Word has no attribute 'vowels'"):
        spilled.vowels  # noqa: B018


def test_the_first_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(disk_spill, "AS_THEY_ARE", 2)
    spilled = SpillFile().spill_all(map(word, ("one", "two", "three")))
    assert list(map(lies, spilled)) == [False, False, True] and spilled == [word("one"), word("two"), word("three")]


def test_copies_and_other_processes_get_the_whole():
    spilled = SpillFile().spill(word("banana"))
    for other in (copy.copy(spilled), pickle.loads(pickle.dumps(spilled)), replace(spilled, name="banana")):
        assert not lies(other) and other == spilled


def test_another_value_leaves_the_rest_where_it_lies():
    spilled = SpillFile().spill(word("banana"))
    other = replace_fields(spilled, counts={}, language="de")
    assert other == Word("banana", tuple("banana"), {}, "de") and "letters" not in vars(other)
    assert spilled == word("banana") and pickle.loads(pickle.dumps(other)) == other


def test_each_finds_its_own_when_more_were_asked_than_are_kept():
    names = [f"word {number}" for number in range(3 * disk_spill.READ_LAST)]
    spilled = SpillFile().spill_all(map(word, names))
    assert [record.letters for record in (*spilled, *spilled[::-1])] == [tuple(name) for name in (*names, *names[::-1])]


def test_a_copy_of_the_process_reads_the_same_file(tmp_path):
    spilled = SpillFile().spill_all(word(f"word {number}") for number in range(40))
    parallel.parallel_for(lambda record: (tmp_path / record.name).write_text("".join(record.letters)), spilled)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        record.name: record.name for record in spilled
    }


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux lists the open files")
def test_the_file_has_no_name_and_goes_with_the_last_record(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_spill.tempfile, "tempdir", str(tmp_path))
    before = descriptors()
    spilled = SpillFile().spill_all([word("one"), word("two")])
    assert list(tmp_path.iterdir()) == [] and descriptors() == before + 1
    last = spilled.pop()
    del spilled
    assert last.letters == tuple("two") and descriptors() == before + 1
    del last
    assert descriptors() == before


def test_without_disk_space_they_stay_in_memory_and_it_is_logged_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(disk_spill.tempfile, "tempdir", str(tmp_path / "gone"))
    spilled = SpillFile().spill_all([word("one"), word("two")])
    assert spilled == [word("one"), word("two")] and not any(map(lies, spilled))
    (message,) = caplog.messages
    assert "records stay in memory; to use less memory, set TMPDIR to a folder with more free space" in message


def test_a_full_disk_leaves_what_lies_there_readable(monkeypatch, caplog):
    one_only = SpillFile()
    first = one_only.spill(word("one"))
    monkeypatch.setattr(type(one_only._file), "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    second = one_only.spill(word("two"))
    assert lies(first) and not lies(second) and (first, second) == (word("one"), word("two"))
