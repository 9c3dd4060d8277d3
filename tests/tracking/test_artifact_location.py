"""Where a run's files are looked for: next to the database, regardless of its addresses, and never in an unrelated folder."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from fa_registry.safe_files import UnreadableFile
from fa_registry.tracking.artifact_location import (
    ALLOWED,
    OutsideStore,
    check_inside_store,
    check_location,
    local_folder,
)

RUN = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("file:///home/author/mlartifacts/mine/{run}/artifacts", "{here}/mlartifacts/mine/{run}/artifacts"),  # a copy's
        ("file://{here}/mlartifacts/mine/{run}/artifacts", "{here}/mlartifacts/mine/{run}/artifacts"),
        (
            "file:///home/author/mlartifacts/theirs/{run}/artifacts",
            "{here}/mlartifacts/theirs/{run}/artifacts",
        ),  # lacking
        ("/a/mlartifacts/b/mlartifacts/{run}/artifacts", "{here}/mlartifacts/b/mlartifacts/{run}/artifacts"),
        ("/a/mlartifacts/group/mine/{run}/artifacts/x", "{here}/mlartifacts/group/mine/{run}/artifacts/x"),
        ("{here}/other/mlruns/1/{run}/artifacts", "{here}/mlruns/1/{run}/artifacts"),  # of a copy's original
        ("/data/mlruns/1/{run}/artifacts", "/data/mlruns/1/{run}/artifacts"),
        ("file:///data/a%20b/{run}/artifacts", "/data/a b/{run}/artifacts"),
        ("file:///data/{run}/artifacts/promoted/1", "/data/{run}/artifacts/promoted/1"),
        ("s3://bucket/1/2/artifacts", None),
    ],
)
def test_files_that_a_database_names_next_to_any_database_are_looked_for_next_to_it(tmp_path, address, expected):
    (tmp_path / "mlartifacts" / "mine").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mlflow.db").touch()
    folder = local_folder(address.format(here=tmp_path, run=RUN), f"sqlite:///{tmp_path / 'mlflow.db'}", RUN)
    assert folder == (Path(expected.format(here=tmp_path, run=RUN)) if expected else None)
    assert local_folder("mlflow-artifacts:/1/2/artifacts", "http://127.0.0.1:5000", RUN) is None


@pytest.mark.parametrize(
    "address",
    [
        "file:///home/reviewer",
        "file:///home/{run}/artifactsx",
        "file:///home/{run}/artifacts/../../secret",
        "file:///proc/self/cwd/{run}/artifacts",
        "file:///a/mlartifacts/../{run}/artifacts",
        "file://{here}/mlartifacts/linked/{run}/artifacts",
        "file://{here}/link",
        "file://another-host/{run}/artifacts",
        "file:///data/%00/{run}/artifacts",
        "ftp://host/{run}/artifacts",
        "http://host/{run}/artifacts",
        "mlartifacts/{run}/artifacts",
    ],
)
def test_an_address_that_leads_out_of_the_runs_own_folder_is_refused(tmp_path, address):
    (tmp_path / "private" / RUN / "artifacts").mkdir(parents=True)
    (tmp_path / "mlartifacts").mkdir()
    (tmp_path / "mlartifacts" / "linked").symlink_to(tmp_path / "private")
    with pytest.raises(UnreadableFile):
        local_folder(address.format(here=tmp_path, run=RUN), f"sqlite:///{tmp_path / 'mlflow.db'}", RUN)


@pytest.fixture
def store(tmp_path) -> str:
    (tmp_path / "own" / "mlartifacts").mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    return f"sqlite:///{tmp_path / 'own' / 'mlflow.db'}"


def test_files_are_written_inside_the_store_or_where_the_user_allows_it(tmp_path, store, monkeypatch):
    outside = tmp_path / "disk" / "a b"
    check_inside_store(tmp_path / "own" / "mlartifacts" / RUN, store)
    with pytest.raises(OutsideStore, match=f"{ALLOWED}='{outside}'"):
        check_inside_store(outside, store)
    check_inside_store(outside, "postgresql://server/store")
    monkeypatch.setenv(ALLOWED, f"/nowhere{os.pathsep}{tmp_path / 'disk'}")
    check_inside_store(outside, store)
    with pytest.raises(OutsideStore):
        check_inside_store(tmp_path / "disk-of-others", store)


@pytest.mark.parametrize(
    ("location", "refused"),
    [
        ("file://{disk}/mine", True),
        ("{disk}/mine", True),
        ("{own}/mlartifacts/../../disk", True),
        ("{own}/mlartifacts/linked/mine", True),
        ("{own}/mlartifacts/mine", False),
        ("/author/mlartifacts/mine", False),  # of a copied store: written next to its database
        ("s3://bucket/mine", False),
        ("mlflow-artifacts:/1", False),
    ],
)
def test_an_experiments_location_is_checked_with_its_links_followed(tmp_path, store, location, refused):
    (tmp_path / "own" / "mlartifacts" / "linked").symlink_to(tmp_path / "disk")
    address = location.format(disk=tmp_path / "disk", own=tmp_path / "own")
    with pytest.raises(OutsideStore) if refused else nullcontext():
        check_location(address, store)
