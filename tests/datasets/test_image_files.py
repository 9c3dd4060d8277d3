"""The five published sets: the real loaders on small official files, the cache, and every way a file can be wrong."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import os
import types
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import fa_registry
from fa_registry.datasets import _files, _raw_images, cifar10, cifar100, fashion_mnist, mnist, svhn
from fa_registry.datasets._raw_images import RawImages, cache_path, cached, read_cache
from fa_registry.datasets.base import SourceFile
from fa_registry.errors import IntegrityError, UsageError
from tests.datasets import official_files as official
from tests.datasets.official_files import pixels

CPU = torch.device("cpu")
KINDS = {
    "cifar10": (cifar10.PLUGIN, official.write_cifar10),
    "cifar100": (cifar100.PLUGIN, official.write_cifar100),
    "mnist": (mnist.PLUGIN, lambda root: official.write_idx(root, "MNIST")),
    "fashion_mnist": (fashion_mnist.PLUGIN, lambda root: official.write_idx(root, "FashionMNIST")),
    "svhn": (svhn.PLUGIN, official.write_svhn),
}


@pytest.fixture(params=KINDS)
def small(request, tmp_path):
    """A data set that expects the small files below tmp_path."""
    plugin, write = KINDS[request.param]
    write(tmp_path)
    return official.shrunk(plugin, tmp_path)


@pytest.fixture
def no_torchvision(monkeypatch):
    def refuse(name):
        raise ModuleNotFoundError(name="torchvision")

    monkeypatch.setattr(_files.importlib, "import_module", refuse)


def test_pixels_and_labels_are_those_of_the_files(small, tmp_path):
    raw, card = small.raw(tmp_path), small.card
    for images, labels, samples, seed in (
        (raw.train_images, raw.train_labels, official.TRAIN, 1),
        (raw.test_images, raw.test_labels, official.TEST, 2),
    ):
        expected = torch.from_numpy(official.pixels(samples, card.image_shape, seed))
        assert images.dtype == torch.uint8 and torch.equal(images, expected)
        assert labels.dtype == torch.int64 and labels.tolist() == official.classes(samples, card.classes)


def test_the_second_load_needs_neither_the_files_nor_torchvision(small, tmp_path, request):
    first = small.load(CPU, tmp_path)
    for source in small.card.files:
        (tmp_path / source.path).unlink()
    request.getfixturevalue("no_torchvision")
    second = small.load(CPU, tmp_path, seed=5)
    assert first.digest == second.digest
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(first, name), getattr(second, name))


def test_splits_have_the_shape_of_the_card(small, tmp_path):
    splits, shape = small.load(CPU, tmp_path), small.card.image_shape
    assert splits.test_images.shape == (official.TEST, *shape) and splits.test_images.dtype == torch.float32
    batch = splits.augment(splits.train_images[:4], torch.Generator().manual_seed(0))
    assert batch.shape == (4, *shape)
    assert (small.card.augmentation[:4] == "none") == torch.equal(batch, splits.train_images[:4])


def test_every_file_that_is_missing_is_named_with_its_md5(small, tmp_path):
    for source in small.card.files[:2]:
        (tmp_path / source.path).unlink()
    with pytest.raises(IntegrityError) as refused:
        small.load(CPU, tmp_path)
    message = str(refused.value)
    assert f"2 of {len(small.card.files)} files" in message
    for source in small.card.files[:2]:
        assert f"{tmp_path / source.path}:" in message and source.md5 in message
    assert f"`fa-registry data fetch {small.card.name} --data-root {tmp_path}`" in message


@pytest.mark.parametrize("damage", [lambda content: content[:-10], lambda content: content[:-1] + b"?"])
def test_a_truncated_or_altered_file_is_refused(small, tmp_path, damage):
    path = tmp_path / small.card.files[0].path
    content = damage(path.read_bytes())
    path.write_bytes(content)
    found = f"{path}: expected MD5 {small.card.files[0].md5}, found {official.md5(content)}; the file has {len(content):,} bytes"
    with pytest.raises(IntegrityError) as refused:
        small.load(CPU, tmp_path)
    assert found in str(refused.value) and not cache_path(tmp_path, small.card.name).exists()


def test_a_data_root_that_is_not_there(small, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="nowhere: expected a folder, found nothing; create this folder"):
        small.load(CPU, tmp_path / "nowhere")
    monkeypatch.setenv("FA_REGISTRY_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="elsewhere: expected a folder"):
        small.load(CPU)
    monkeypatch.setenv("FA_REGISTRY_DATA", str(tmp_path))
    assert len(small.load(CPU).train_labels) == official.TRAIN


def test_without_torchvision_the_error_says_what_to_install(small, tmp_path, no_torchvision):
    with pytest.raises(UsageError, match="pip install torchvision"):
        small.load(CPU, tmp_path)


def test_a_label_too_few_is_refused_though_every_digest_fits(tmp_path):
    official.write_idx(tmp_path, "MNIST", train_labels=official.TRAIN - 1)
    with pytest.raises(IntegrityError, match="train: expected one label per image, found 20 images and 19 labels"):
        official.shrunk(mnist.PLUGIN, tmp_path).load(CPU, tmp_path)


def test_a_label_that_is_no_class_is_refused(tmp_path):
    official.write_cifar10(tmp_path, labels=[0, 1, 2, 12])
    with pytest.raises(IntegrityError, match="train_labels: expected classes 0 to 9, found 0 to 12"):
        official.shrunk(cifar10.PLUGIN, tmp_path).load(CPU, tmp_path)


def test_another_number_of_images_than_the_card_says_is_refused(tmp_path):
    official.write_svhn(tmp_path)
    with pytest.raises(IntegrityError, match="train: expected 73,257 images, found 20"):
        official.shrunk(svhn.PLUGIN, tmp_path, train=73_257).load(CPU, tmp_path)


def unpack(path: Path) -> None:
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()


def test_unpacked_idx_files_will_do_and_are_checked_too(tmp_path):
    official.write_idx(tmp_path, "MNIST")
    small = official.shrunk(mnist.PLUGIN, tmp_path)
    for source in small.card.files:
        unpack(tmp_path / source.path)
    assert small.raw(tmp_path).train_labels.tolist() == official.classes(official.TRAIN)
    cache_path(tmp_path, "mnist").unlink()
    path = (tmp_path / small.card.files[0].path).with_suffix("")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match=f"{path}: expected MD5 {small.card.files[0].unpacked_md5}, found"):
        small.raw(tmp_path)


def test_what_torchvision_would_prefer_to_the_checked_files_is_not_read(tmp_path):
    official.write_idx(tmp_path, "MNIST")
    small = official.shrunk(mnist.PLUGIN, tmp_path)
    processed = tmp_path / "MNIST" / "processed"
    processed.mkdir()
    for name in ("training.pt", "test.pt"):
        torch.save((torch.zeros(1, 28, 28, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)), processed / name)
    assert len(small.raw(tmp_path).train_labels) == official.TRAIN


def test_no_pickle_is_opened_before_its_digest_fits(tmp_path):
    official.write_cifar10(tmp_path)
    small = official.shrunk(cifar10.PLUGIN, tmp_path)
    trap = tmp_path / "opened"
    evil = f"cposix\nsystem\n(S'touch {trap}'\ntR.".encode()
    (tmp_path / small.card.files[-1].path).write_bytes(evil)
    with pytest.raises(IntegrityError, match=r"batches\.meta"):
        small.raw(tmp_path)
    found = {source: tmp_path / source.path for source in small.card.files}  # as if our own check had passed it
    with pytest.raises(RuntimeError, match="corrupted"):
        small.format.decode(tmp_path, found)
    assert not trap.exists()


def published_md5() -> dict[str, str]:
    """Path → MD5 as torchvision has them."""
    loaded = _files.torchvision_datasets()
    table = {name: md5 for _, name, md5 in loaded.SVHN.split_list.values()}
    for kind in (loaded.CIFAR10, loaded.CIFAR100):
        lists = [*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])]
        table |= {f"{kind.base_folder}/{name}": md5 for name, md5 in lists}
        table[kind.filename] = kind.tgz_md5
    for kind in (loaded.MNIST, loaded.FashionMNIST):
        table |= {f"{kind.__name__}/raw/{name}": md5 for name, md5 in kind.resources}
    return table


@pytest.mark.parametrize("name", KINDS)
def test_the_cards_md5_are_torchvisions(name):
    plugin, published = KINDS[name][0], published_md5()
    assert {source.path: source.md5 for source in plugin.card.files}.items() <= published.items()
    assert not plugin.format.packed or published[plugin.format.packed] == plugin.format.packed_md5


def test_cifar_is_normalised_with_the_papers_constants():
    assert dataclasses.asdict(cifar10.PLUGIN.transform) == {
        "mean": (0.4914, 0.4822, 0.4465),
        "std": (0.2470, 0.2435, 0.2616),
        "padding": 4,
    }
    assert cifar100.PLUGIN.transform.mean == (0.5071, 0.4867, 0.4408)
    assert cifar100.PLUGIN.transform.std == (0.2675, 0.2565, 0.2761)


KNOWN = "operator torchvision::nms does not exist"
MODULE = types.ModuleType("torchvision.datasets")


@pytest.fixture
def attempts(monkeypatch):
    """What successive imports do: raise, or return. The test fills it; what is left over was never tried."""
    outcomes = []

    def attempt(name):
        assert name == "torchvision.datasets"
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(_files.importlib, "import_module", attempt)
    return outcomes


@pytest.fixture
def defined(monkeypatch):
    """Names of the operators that are defined, instead of defining them."""
    names = []
    monkeypatch.setattr(torch.library, "define", lambda name, schema: names.append(name))
    monkeypatch.setattr(torch.ops, "torchvision", types.SimpleNamespace(), raising=False)
    return names


def test_an_import_that_works_defines_nothing(attempts, defined):
    attempts[:] = [MODULE]
    assert _files.torchvision_datasets() is MODULE and defined == []


def test_after_the_known_failure_both_operators_are_declared_and_it_is_tried_again(attempts, defined):
    attempts[:] = [RuntimeError(KNOWN), MODULE]
    assert _files.torchvision_datasets() is MODULE
    assert defined == ["torchvision::nms", "torchvision::qnms"]


def test_an_operator_that_exists_is_not_declared_again(attempts, defined):
    torch.ops.torchvision.nms = "there"
    attempts[:] = [RuntimeError("operator torchvision::qnms does not exist"), MODULE]
    assert _files.torchvision_datasets() is MODULE and defined == ["torchvision::qnms"]


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("operator torchvision::roi_align does not exist"),
        RuntimeError("CUDA driver version is insufficient"),
        ImportError("libc10.so: cannot open shared object file"),
        ModuleNotFoundError("No module named 'PIL'", name="PIL"),
    ],
)
def test_any_other_failure_is_raised_as_it_is(attempts, defined, failure):
    attempts[:] = [failure, MODULE]
    with pytest.raises(type(failure)) as raised:
        _files.torchvision_datasets()
    assert raised.value is failure and attempts == [MODULE] and defined == []


def test_a_second_failure_is_loud(attempts, defined):
    attempts[:] = [RuntimeError(KNOWN), RuntimeError(KNOWN)]
    with pytest.raises(RuntimeError, match=KNOWN):
        _files.torchvision_datasets()


def test_a_missing_torchvision_is_a_usage_error(attempts):
    attempts[:] = [ModuleNotFoundError("No module named 'torchvision'", name="torchvision")]
    with pytest.raises(UsageError, match="^torchvision is not installed; install it with `pip install torchvision`$"):
        _files.torchvision_datasets()


def test_the_public_way_gives_torchvision_itself():
    assert fa_registry.torchvision().transforms.Normalize((0.5,), (0.5,))(torch.ones(1, 2, 2)).max() == 1.0


def test_the_installed_one_imports():
    loaded = _files.torchvision_datasets()
    assert {"CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "SVHN"} <= set(vars(loaded))


CARD = dataclasses.replace(mnist.CARD, train_samples=12)


@pytest.fixture
def raw():
    train, test = (torch.from_numpy(pixels(12, (1, 28, 28), seed)) for seed in (1, 2))
    labels = torch.arange(12) % 10
    return RawImages(train, labels, test, labels.clone())


def never() -> RawImages:
    raise AssertionError("decoded although a cache is there")


def rewritten(path, change_metadata=lambda metadata: metadata, **parts):
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    save_file(tensors | parts, path, change_metadata(metadata))


def test_it_is_decoded_once_and_read_bit_for_bit(tmp_path, raw):
    first = cached(tmp_path, CARD, lambda: raw)
    again = cached(tmp_path, CARD, never)
    assert first.digest == again.digest == raw.digest
    assert torch.equal(again.train_images, raw.train_images) and again.train_images.dtype == torch.uint8
    assert [path.name for path in (tmp_path / "fa_registry").glob("*.partial")] == []


def test_another_process_that_decodes_is_named_and_not_waited_for_for_ever(tmp_path, raw, monkeypatch):
    monkeypatch.setattr(_raw_images, "PATIENCE", 0.0)

    def at_work() -> RawImages:
        with pytest.raises(UsageError, match=rf"mnist.*\.lock has been locked by process {os.getpid()} on .* repeat"):
            cached(tmp_path, CARD, never)
        return raw

    assert cached(tmp_path, CARD, at_work).digest == raw.digest


def test_a_decoding_that_breaks_leaves_no_cache(tmp_path, raw):
    with pytest.raises(AssertionError):
        cached(tmp_path, CARD, never)
    assert not cache_path(tmp_path, "mnist").exists()
    assert cached(tmp_path, CARD, lambda: raw).digest == raw.digest


def test_it_names_the_files_it_was_made_of(tmp_path, raw):
    cached(tmp_path, CARD, lambda: raw)
    other = dataclasses.replace(CARD, files=(SourceFile("MNIST/raw/train-images-idx3-ubyte.gz", "0" * 32),))
    with pytest.raises(IntegrityError, match="expected sources .*0000.*, found .*f68b3c2dcbeaaa9fbdd348bbdeb94873"):
        cached(tmp_path, other, never)


def test_a_changed_pixel_is_seen(tmp_path, raw):
    cached(tmp_path, CARD, lambda: raw)
    path = cache_path(tmp_path, "mnist")
    altered = raw.train_images.clone()
    altered[0, 0, 0, 0] += 1
    rewritten(path, train_images=altered)
    with pytest.raises(
        IntegrityError, match=f"{path}: expected tensors .*, found {raw.digest}; delete this cache file"
    ):
        read_cache(path, CARD)


@pytest.mark.parametrize("keep", [0, 4, 100, 5_000])
def test_a_torn_cache_is_seen(tmp_path, raw, keep):
    cached(tmp_path, CARD, lambda: raw)
    path = cache_path(tmp_path, "mnist")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        IntegrityError,
        match=f"{path}: .*found a truncated file: .*; delete this cache file, and the next run creates a new one",
    ):
        cached(tmp_path, CARD, never)


def test_another_layout_is_seen(tmp_path, raw):
    cached(tmp_path, CARD, lambda: raw)
    path = cache_path(tmp_path, "mnist")
    rewritten(path, lambda metadata: {**metadata, "format": "another"})
    with pytest.raises(IntegrityError, match="expected format fa_registry images 1, found another"):
        read_cache(path, CARD)
    save_file({"weights": torch.zeros(3)}, path)
    with pytest.raises(IntegrityError, match="found a truncated file"):
        read_cache(path, CARD)


def test_everything_in_which_the_arrays_are_not_the_cards_is_named_at_once(tmp_path, raw):
    wrong = dataclasses.replace(raw, train_images=raw.train_images[:11], test_labels=raw.test_labels - 1)
    card = dataclasses.replace(CARD, image_shape=(1, 32, 32))
    with pytest.raises(IntegrityError) as refused:
        cached(tmp_path, card, lambda: wrong)
    names = [line.strip("- ").split(":")[0] for line in str(refused.value).splitlines()[1:]]
    assert names == ["train", "train_images", "test_images", "test_labels", "train"]


def test_a_data_root_that_is_read_only_works_without_a_cache(tmp_path, raw, monkeypatch):
    card = dataclasses.replace(mnist.CARD, train_samples=len(raw.train_labels))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cached(tmp_path, card, lambda: raw) is raw and not list(tmp_path.iterdir())


def test_a_full_disk_loses_no_more_than_the_cache(tmp_path, raw, monkeypatch, caplog):
    card = dataclasses.replace(mnist.CARD, train_samples=len(raw.train_labels))

    def fill(path, content):
        path.open("wb").close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fill)
        assert cached(tmp_path, card, lambda: raw) is raw
    assert "No space left on device;" in caplog.text
    assert not list(tmp_path.rglob("*.partial")) and not cache_path(tmp_path, "mnist").exists()
    assert cached(tmp_path, card, lambda: raw) is raw and cache_path(tmp_path, "mnist").is_file()


def test_another_user_who_shares_the_data_root_may_read_the_cache(tmp_path, raw):
    before = os.umask(0o027)
    try:
        cached(tmp_path, dataclasses.replace(mnist.CARD, train_samples=len(raw.train_labels)), lambda: raw)
    finally:
        os.umask(before)
    assert cache_path(tmp_path, "mnist").stat().st_mode & 0o777 == 0o640


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """Fashion-MNIST as a package of Debian's installs it: compressed again, side by side, and nothing in the data root."""
    monkeypatch.setattr(_files, "SYSTEM", tmp_path / "system")
    monkeypatch.delenv("FA_REGISTRY_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    official.write_idx(tmp_path / "made", "FashionMNIST")
    small = official.shrunk(fashion_mnist.PLUGIN, tmp_path / "made")
    folder = fashion_mnist.PACKAGE.folder
    folder.mkdir(parents=True)
    for source in small.card.files:
        content = gzip.decompress((tmp_path / "made" / source.path).read_bytes())
        path = folder / Path(source.path).name
        path.write_bytes(gzip.compress(content, 1, mtime=7))
        assert official.md5(path.read_bytes()) != source.md5
    return dataclasses.replace(small, package=fashion_mnist.PACKAGE)


def test_the_files_of_a_package_are_found_and_not_copied(packaged, tmp_path):
    assert packaged.load(CPU).train_labels.tolist() == official.classes(official.TRAIN)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "system"]


def test_a_data_root_that_is_named_must_be_there_though_the_package_is(packaged, tmp_path):
    with pytest.raises(
        UsageError, match="nowhere: expected a folder, found nothing.*apt-get install dataset-fashion-mnist"
    ):
        packaged.load(CPU, tmp_path / "nowhere")


@pytest.mark.parametrize("damage", [lambda content: content[:-10], lambda content: content[:-1] + b"?", lambda _: b"x"])
def test_a_damaged_file_of_a_package_is_refused_with_the_command_that_mends_it(packaged, damage):
    path = packaged.package.folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(IntegrityError) as refused:
        packaged.load(CPU)
    assert f"{path}: expected MD5" in str(refused.value)
    assert "apt-get install dataset-fashion-mnist" in str(refused.value)


def test_other_content_in_a_sound_gzip_file_is_refused(packaged):
    path = packaged.package.folder / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1] + b"?"))
    with pytest.raises(IntegrityError, match="1 of 4 files are missing or differ from the published files"):
        packaged.load(CPU)


def test_a_package_that_is_half_installed_is_completed_by_the_data_root(packaged, tmp_path):
    (source, *_), path = packaged.card.files, packaged.package.folder / "train-images-idx3-ubyte.gz"
    with pytest.raises(IntegrityError, match="found no file"):
        path.rename(tmp_path / "kept") and packaged.load(CPU)
    (tmp_path / "data" / source.path).parent.mkdir(parents=True)
    (tmp_path / "kept").rename(tmp_path / "data" / source.path)
    assert len(packaged.load(CPU).train_labels) == official.TRAIN


def test_a_cache_that_is_there_is_read_without_writing_anything(tmp_path, raw, monkeypatch):
    cached(tmp_path, CARD, lambda: raw)
    monkeypatch.setattr(_raw_images, "FileLock", None)  # a data root may be read-only from then on
    assert cached(tmp_path, CARD, never).digest == raw.digest
