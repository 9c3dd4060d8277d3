"""A store in a folder of a group: a setgid folder, in which all users have the umask 002."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from fa_registry.tracking.artifact_location import rewrite_addresses
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.helpers.unprivileged_user import GROUP, as_member_of_group

pytestmark = pytest.mark.long

FIRST, SECOND = 60011, 60012
NETWORK = ("--set", "architecture.d_hidden=16", "--set", "architecture.num_blocks=2", "--device", "cpu")
TRAIN = ("train", "--method", "dfa", "--epochs", "1", *NETWORK)
AUDIT = ("audit", "--experiment", "fa_registry", "--edition", "2026-05", "--exit-zero", "--out")


@pytest.fixture
def umask():
    previous = os.umask(0o002)
    yield
    os.umask(previous)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("mask", "expected"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_the_database_has_the_mode_that_the_umask_leaves(mask, expected, umask, tmp_path):
    os.umask(mask)
    MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert mode(tmp_path / "mlflow.db") == mode(tmp_path / "mlflow.db.lock") == expected


def test_so_has_a_backup_of_the_database(umask, tmp_path):
    MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert mode(rewrite_addresses(tmp_path / "mlflow.db", {})) == 0o664


@pytest.fixture
def shared_folder():
    """A setgid folder of the group. pytest's own folders are closed to other users."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, FIRST, GROUP)
        folder.chmod(0o2775)
        yield folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
@pytest.mark.long
def test_two_users_of_a_group_write_to_one_store(shared_folder, tmp_path, monkeypatch):
    folder = shared_folder
    monkeypatch.setenv("MPLCONFIGDIR", str(folder / "reports-fonts"))  # matplotlib's usual folder may be root's
    first = [(*TRAIN, "--seed", "1")]
    second = [(*TRAIN, "--seed", "2"), (*AUDIT, "reports"), ("optimize-store",)]
    for calls, user in ((first, FIRST), (second, SECOND)):
        answers = as_member_of_group(calls, folder, user)
        assert [answer[0] for answer in answers] == [0] * len(calls), answers
    written = [path for path in folder.rglob("*") if "reports" not in path.parts[len(folder.parts)]]
    assert {path.stat().st_gid for path in written} == {GROUP}
    assert [path for path in written if not mode(path) & stat.S_IWGRP] == []
