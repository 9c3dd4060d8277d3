"""data list, where, fetch, check: what is here, what is missing, and how to mend it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from urllib.error import URLError

import pytest

from fa_registry import datasets
from fa_registry.datasets import _files, cifar10, fashion_mnist, mnist
from fa_registry.datasets._raw_images import cache_path
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import fields
from tests.datasets import official_files as official

PARTS = ("--set", "architecture.d_hidden=16,architecture.num_blocks=1,batch_size=4", "--device", "cpu")
TRAIN = ("train", "--method", "bp", "--seed", "1", "--epochs", "1", *PARTS)


@pytest.fixture(autouse=True)
def nothing_is_installed(monkeypatch, tmp_path):
    """Regardless of the packages of this machine."""
    monkeypatch.setattr(_files, "SYSTEM", tmp_path / "system")


@pytest.fixture
def catalog(monkeypatch):
    """Put a data set into the catalog under its own name, for this test."""

    def put(plugin):
        get = datasets.CATALOG.get
        monkeypatch.setattr(datasets.CATALOG, "get", lambda name: plugin if name == plugin.card.name else get(name))
        return plugin

    return put


@pytest.fixture
def small(workplace, catalog):
    """mnist, expecting the small files in ./data."""
    official.write_idx(Path("data"), "MNIST")
    return catalog(official.shrunk(mnist.PLUGIN, Path("data")))


@pytest.fixture
def offline(monkeypatch):
    def refuse(*arguments, **options):
        raise URLError("no network")

    loaded = _files.torchvision_datasets()
    monkeypatch.setattr(loaded.utils, "_get_redirect_url", refuse)
    monkeypatch.setattr(loaded.utils, "_urlretrieve", refuse)


def rows(result):
    return {row["name"]: row for row in json.loads(result.stdout)}


def test_list_says_of_every_set_what_it_needs_and_what_is_here(registry, small):
    listed = rows(registry("data", "list", "--json"))
    assert set(listed) == set(datasets.CATALOG.names())
    assert listed["digits"]["files"] == listed["teacher_student"]["files"] == 0
    assert (listed["cifar10"]["files"], listed["cifar10"]["missing"]) == (7, 7)
    assert (listed["mnist"]["files"], listed["mnist"]["missing"], listed["mnist"]["decoded"]) == (4, 0, False)
    small.raw(Path("data").absolute())
    assert rows(registry("data", "list", "mnist", "--json"))["mnist"]["decoded"]


def test_where_gives_absolute_paths_and_md5(registry, workplace):
    text = registry("data", "where", "cifar10", "--data-root", "elsewhere").stdout
    for name, md5 in ((one.path, one.md5) for one in cifar10.CARD.files):
        assert any(str(workplace / "elsewhere" / name) in line and md5 in line for line in text.splitlines())
    assert str(workplace / "elsewhere" / "cifar-10-python.tar.gz") in text and "c58f30108f718f92" in text
    found = json.loads(registry("data", "where", "random_targets:mnist", "--json").stdout)
    assert [row["kind"] for row in found[:2]] == ["source", "or unpacked"]
    assert found[0]["path"] == str(workplace / "data" / mnist.CARD.files[0].path) and not found[0]["present"]


def test_fetch_without_a_network_names_every_missing_file_and_its_place(registry, workplace, offline):
    for name in ("cifar10", "mnist", "svhn"):
        result = registry("data", "fetch", name, "--data-root", "files")
        assert result.exit_code == 3
        for source in datasets.get(name).card.files:
            assert str(workplace / "files" / source.path) in result.stderr and source.md5 in result.stderr
        assert "no network" in result.stderr
    wrong = (("fetch",), ("fetch", "cifar10", "--data-root", "taken/below"), ("fashion_mnist",), ("check", "mnits"))
    Path("taken").write_text("a file")
    assert {registry("data", *arguments).exit_code for arguments in wrong} == {2}


def test_fetch_unpacks_an_archive_that_was_put_there(registry, workplace, catalog, offline):
    import tarfile

    official.write_cifar10(Path("made"))
    small = official.shrunk(cifar10.PLUGIN, Path("made"))
    Path("files").mkdir()
    packed = Path("files") / small.format.packed
    with tarfile.open(packed, "w:gz") as archive:
        archive.add("made/cifar-10-batches-py", "cifar-10-batches-py")
    layout = dataclasses.replace(small.format, packed_md5=official.md5(packed.read_bytes()))
    catalog(dataclasses.replace(small, format=layout))
    result = registry("data", "fetch", "cifar10", "--data-root", "files", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert all(row["ok"] for row in found)
    assert cache_path(Path("files"), "cifar10").is_file()


def test_fetch_downloads_only_what_is_not_as_published(registry, small, monkeypatch):
    path = Path("data") / small.card.files[1].path
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    fetched = []

    def serve(url, file, chunk_size=0):
        fetched.append(url)
        Path(file).write_bytes(whole)

    loaded = _files.torchvision_datasets()
    monkeypatch.setattr(loaded.utils, "_get_redirect_url", lambda url, max_hops: url)
    monkeypatch.setattr(loaded.utils, "_urlretrieve", serve)
    result = registry("data", "fetch", "mnist")
    assert result.exit_code == 0, result.output
    assert [url.rpartition("/")[2] for url in fetched] == ["train-labels-idx1-ubyte.gz"]


def test_check_reports_files_counts_and_cache(registry, small):
    result = registry("data", "check", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and {row["name"] for row in found} == {"mnist"}
    assert [row["found"] for row in found[:-1]] == ["as published"] * 4
    assert found[-1]["found"].startswith("20 training and 6")
    (Path("data") / small.card.files[0].path).unlink()
    assert json.loads(registry("data", "check", "mnist", "--json").stdout)[0]["ok"]  # the data are decoded


def test_check_exits_3_on_a_broken_file_and_on_a_broken_cache(registry, small):
    root = Path("data").absolute()
    path = root / small.card.files[2].path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    result = registry("data", "check", "mnist", "--json")
    bad = [row for row in json.loads(result.stdout) if not row["ok"]]
    assert result.exit_code == 3 and [row["what"] for row in bad] == [str(path), "images"]
    assert small.card.files[2].md5 in bad[0]["found"]
    path.write_bytes(whole)
    small.raw(root)
    cache = cache_path(root, "mnist")
    cache.write_bytes(cache.read_bytes()[:-1])
    path.unlink()
    result = registry("data", "check")
    assert result.exit_code == 3 and "truncated file" in result.stdout
    assert "not needed" not in result.stdout  # a cache that cannot be read makes up for no missing file


def test_training_on_files_that_are_not_there_ends_before_a_run_is_made(registry, workplace):
    result = registry(*TRAIN, "--dataset", "cifar10")
    assert result.exit_code == 2 and str(workplace / "data") in result.stderr
    Path("data").mkdir()
    result = registry(*TRAIN, "--dataset", "random_targets:mnist")
    assert result.exit_code == 3 and "data set mnist" in result.stderr
    study = Path("tiny/study.toml")
    study.write_text(study.read_text(encoding="utf-8").replace('["digits"]', '["cifar10", "digits"]'), encoding="utf-8")
    result = registry("study", "tiny", "--device", "cpu")
    assert result.exit_code == 3 and "data set cifar10" in result.stderr and not MlflowTracker().search({})


def test_a_run_on_files_is_trained_and_audited(registry, small):
    result = registry(*TRAIN, "--dataset", "mnist", "--json")
    assert result.exit_code == 0, result.output
    run_id = json.loads(result.stdout)["run_id"]
    audit = json.loads(registry("audit", "--run", run_id, "--data-root", "data", "--json").stdout)["report"]
    assert audit["runs"][0]["record"]["integrity"]["state"] == "verified"


@pytest.mark.long
def test_a_set_with_an_argument_has_one_identity_and_its_card_in_the_audit(registry):
    large = (*TRAIN, "--set", "batch_size=2560")
    first = registry(*large, "--dataset", "teacher_student:.50", "--json")
    again = registry(*large, "--dataset", "teacher_student:0.5", "--json")
    run_id = json.loads(first.stdout)["run_id"]
    assert json.loads(again.stdout)["run_id"] == run_id
    audit = json.loads(registry("audit", "--run", run_id, "--json").stdout)["report"]
    assert audit["cards"]["datasets/teacher_student:0.5"]["classes"] == 10
    assert json.loads(registry("info", "teacher_student:0.5", "--json").stdout)["name"] == "teacher_student:0.5"
    assert fields(registry(*TRAIN, "--dataset", "teacher_student:0.3")) == ["dataset"]


def test_list_check_and_where_agree_on_the_files_of_a_package(registry, workplace, catalog):
    official.write_idx(Path("made"), "FashionMNIST")
    small = official.shrunk(fashion_mnist.PLUGIN, Path("made"))
    catalog(dataclasses.replace(small, package=fashion_mnist.PACKAGE))
    result = registry("data", "check", "fashion_mnist")
    assert result.exit_code == 2 and fashion_mnist.PACKAGE.name in result.stderr
    fashion_mnist.PACKAGE.folder.mkdir(parents=True)
    for source in small.card.files:
        (Path("made") / source.path).rename(fashion_mnist.PACKAGE.folder / Path(source.path).name)
    assert json.loads(registry("data", "list", "fashion_mnist", "--json").stdout)[0]["missing"] == 0
    found = json.loads(registry("data", "check", "fashion_mnist", "--json").stdout)
    assert all(row["ok"] for row in found)
