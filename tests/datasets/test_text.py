"""text:PATH: windows of a file, the digest of its content, and every file that is refused."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from fa_registry import datasets
from fa_registry.cli import main
from fa_registry.datasets.base import Splits
from fa_registry.datasets.text import BYTES, LENGTH
from fa_registry.errors import UsageError
from fa_registry.training.run_setup import build_setup
from fa_registry.training.specs import parse_spec

CPU = torch.device("cpu")
LEAST = 20 * LENGTH + 1


def written(folder: Path, content: bytes, name: str = "mine.txt") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def numbered(windows: int, rest: int = 1) -> bytes:
    """Text in which the bytes of a window differ from those of every other window: `000000\\n000001\\n…`."""
    lines = "".join(f"{number:06d}\n" for number in range(windows * LENGTH // 7 + 20))
    return lines.encode()[: windows * LENGTH + rest]


def loaded(folder: Path, content: bytes) -> Splits:
    return datasets.get(f"text:{written(folder, content)}").load(CPU)


def bytes_of(row: torch.Tensor) -> bytes:
    return bytes(row.tolist())


@pytest.mark.parametrize("rest", [0, 1, 2, LENGTH - 1])
@pytest.mark.parametrize("windows", [21, 40, 107])
def test_every_window_lies_at_its_place_in_the_file(tmp_path, windows, rest):
    content = numbered(windows, rest)
    splits = loaded(tmp_path, content)
    whole = (len(content) - 1) // LENGTH
    train = int(whole * 0.9)
    assert (len(splits.train_images), len(splits.test_images)) == (train, whole - train - 1)
    places = [*range(train), *range(train + 1, whole)]
    rows = zip(
        [*splits.train_images, *splits.test_images], [*splits.train_labels, *splits.test_labels], places, strict=True
    )
    for inputs, targets, place in rows:
        start = place * LENGTH
        assert bytes_of(inputs) == content[start : start + LENGTH]
        assert bytes_of(targets) == content[start + 1 : start + LENGTH + 1]


def test_no_byte_of_the_file_is_in_train_and_test(tmp_path):
    """The last target of the training set is an input of no test window."""
    content = numbered(60)
    splits = loaded(tmp_path, content)
    last_of_train = content.index(bytes_of(splits.train_labels[-1])) + LENGTH  # behind the last target
    first_of_test = content.index(bytes_of(splits.test_images[0]))
    assert last_of_train <= first_of_test
    assert content.index(bytes_of(splits.test_images[-1])) > first_of_test  # in the order of the file


def test_targets_are_the_next_bytes(tmp_path):
    splits = loaded(tmp_path, numbered(40))
    for inputs, targets in ((splits.train_images, splits.train_labels), (splits.test_images, splits.test_labels)):
        assert inputs.dtype == targets.dtype == torch.int64 and inputs.shape == targets.shape
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(splits.train_images[1:, 0], splits.train_labels[:-1, -1])  # the first byte of the next window
    assert splits.entropy_rate is None


def test_the_card_names_the_file_and_its_digest(tmp_path):
    content = numbered(40) + "äöü€".encode()
    path = written(tmp_path, content)
    card = datasets.get(f"text:{path}").card
    digest = hashlib.sha256(content).hexdigest()
    assert card.name == f"text:{path}" and card.sha256 == digest and digest in card.source
    assert (card.task, card.classes, card.image_shape) == ("token_prediction", BYTES, (LENGTH,))
    splits = datasets.get(f"text:{path}").load(CPU)
    assert card.train_samples == len(splits.train_images)
    assert card.splits.startswith(f"{len(splits.train_images)} training and {len(splits.test_images)} test samples:")


def test_another_content_is_another_digest_and_the_seed_changes_nothing(tmp_path):
    one = loaded(tmp_path, numbered(40))
    assert one.digest == datasets.get(f"text:{tmp_path / 'mine.txt'}").load(CPU, None, 9).digest
    assert loaded(tmp_path, numbered(40).replace(b"3", b"4", 1)).digest != one.digest


def test_the_smallest_text_has_test_data(tmp_path):
    splits = loaded(tmp_path, numbered(20))
    assert (len(splits.train_images), len(splits.test_images)) == (18, 1)


def test_a_path_may_contain_a_colon(tmp_path):
    path = written(tmp_path, numbered(20), "a:b.txt")
    assert datasets.get(f"text:{path}").card.name == f"text:{path}"


BAD = {
    "no path": (lambda folder: "", "expected text:PATH with the path of a UTF-8 text file, for example text:README.md"),
    "no file": (lambda folder: str(folder / "none.txt"), "expected text:PATH .*, found no file"),
    "folder": (lambda folder: str(folder), "expected text:PATH .*, found a folder"),
    "empty": (lambda folder: written(folder, b""), f"expected a file of at least {LEAST:,} bytes, found 0"),
    "short": (
        lambda folder: written(folder, b"x" * (LEAST - 1)),
        f"expected a file of at least {LEAST:,} bytes, found {LEAST - 1:,}",
    ),
    "binary": (
        lambda folder: written(folder, b"x" * 1_234 + b"\xff\xfe" + b"x" * LEAST),
        "found a byte at position 1,234 that is not UTF-8",
    ),
    "latin-1": (
        lambda folder: written(folder, "ä".encode("latin-1") * LEAST),
        "found a byte at position 0 that is not UTF-8",
    ),
    "cut character": (lambda folder: written(folder, b"x" * LEAST + "€".encode()[:2]), "that is not UTF-8"),
    "long name": (lambda folder: str(folder / ("x" * 300)), "found no file|cannot be read: File name too long"),
    "null byte": (lambda folder: f"{folder}/a\0b", "found no file|cannot be read"),
    "fifo": (lambda folder: _fifo(folder), "found no file"),
}


def _fifo(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_clear_error(tmp_path, kind):
    make, message = BAD[kind]
    with pytest.raises(UsageError, match=message) as caught:
        datasets.get(f"text:{make(tmp_path)}").load(CPU)
    assert str(caught.value).startswith("data set text") and "\n" not in str(caught.value)


def test_without_a_file_the_card_says_so(tmp_path):
    gone = datasets.get(f"text:{tmp_path / 'none.txt'}")
    assert gone.card.sha256 == "" and gone.card.classes == 256 and "not on this machine" in gone.card.source
    assert gone.card.name in gone.absent() and gone.absent().endswith("no file")
    assert datasets.CATALOG.get("text").absent() == datasets.get("digits").absent() == ""
    assert datasets.get(f"text:{written(tmp_path, numbered(20))}").absent() == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    path = written(tmp_path, numbered(40))
    os.chmod(path, 0)
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        datasets.get(f"text:{path}")


def test_an_error_while_reading_is_one_clear_error(tmp_path, monkeypatch):
    path = written(tmp_path, numbered(40))
    monkeypatch.setattr(Path, "read_bytes", _fails)
    with pytest.raises(UsageError, match=rf"data set text:{path}: the file cannot be read: Input/output error"):
        datasets.get(f"text:{path}")


def _fails(path: Path) -> bytes:
    raise OSError(5, "Input/output error")


def test_a_text_whose_tokens_exceed_the_memory_is_refused(tmp_path, monkeypatch):
    content = numbered(40)
    needed = 16 * len(content)  # two tokens of 8 bytes for each byte
    path = written(tmp_path, content)
    genuine = os.sysconf

    def machine(memory: int) -> None:
        sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": memory}
        monkeypatch.setattr(os, "sysconf", lambda name: sizes[name] if name in sizes else genuine(name))

    machine(needed)
    with pytest.raises(UsageError, match="the tokens need 0.0 GiB of memory; this machine has 0.0 GiB"):
        datasets.get(f"text:{path}")
    machine(2 * needed)
    assert datasets.get(f"text:{path}").card.train_samples == 36


@pytest.mark.parametrize("change", ["other", "longer", "gone"])
def test_a_file_that_changes_while_it_is_used_is_refused(tmp_path, change):
    path = Path(written(tmp_path, numbered(40)))
    dataset = datasets.get(f"text:{path}")
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(numbered(40).replace(b"3", b"4", 1) if change == "other" else numbered(40) + b"x")
    expected = "found no file" if change == "gone" else "the file changed while it was used; start again"
    with pytest.raises(UsageError, match=expected):
        dataset.load(CPU)


def test_a_file_that_changes_after_it_was_loaded_is_loaded_again(tmp_path):
    """A process keeps the last data set that it loaded: by content, not by name."""
    path = Path(written(tmp_path, numbered(40)))
    fields = {"method": "bp", "architecture": "causal_transformer", "dataset": f"text:{path}", "epochs": 1}
    spec = parse_spec(
        {**fields, "seed": 1, "batch_size": 8, "architecture_options": {"d_hidden": 4, "num_blocks": 1, "heads": 1}}
    )
    first = build_setup(spec, CPU).splits.digest
    path.write_bytes(numbered(41))
    assert build_setup(spec, CPU).splits.digest != first


def test_the_family_has_a_card_for_lists():
    card = datasets.CATALOG.get("text").card
    assert card.name == "text" and "text:PATH" in card.line and card.task == "token_prediction"


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("text", "expected text:PATH"),
        ("text:", "expected text:PATH"),
        ("text:nofile", "found no file"),
        ("text:.", "found a folder"),
        ("text:empty.txt", f"expected a file of at least {LEAST:,} bytes, found 0"),
        ("text:binary.txt", "found a byte at position 0 that is not UTF-8"),
    ],
)
def test_a_bad_file_ends_the_command_before_training(workplace, dataset, message):
    (workplace / "empty.txt").touch()
    (workplace / "binary.txt").write_bytes(bytes(range(255, 127, -1)) * 20)
    arguments = ("train", "--dataset", dataset, "--architecture", "causal_transformer", "--method", "bp")
    result = CliRunner().invoke(main, [*arguments, "--seed", "1", "--epochs", "1", "--device", "cpu"])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit) and "Traceback" not in result.output
    assert message in result.stderr and result.stderr.count("data set text") == 1
