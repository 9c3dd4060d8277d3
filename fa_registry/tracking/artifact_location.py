"""Location of the folder with a run's files, even after the store was moved.

A store keeps the files of its runs next to its database.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shlex
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from fa_registry import process_ownership
from fa_registry.errors import StoreError
from fa_registry.safe_files import UnreadableFile, join_safely
from fa_registry.tracking.schema import TAG_ARTIFACTS
from fa_registry.tracking.store import ARTIFACTS, check_writable, probe_sqlite, sqlite_path
from fa_registry.tracking.store_errors import refused

BUCKETS = ("s3", "gs", "wasbs", "abfss")
# Not in sqlite stores: a received file must cause no web request.
SERVICES = (*BUCKETS, "mlflow-artifacts", "http", "https")
RUN_ID = re.compile("[0-9a-f]{32}")
KERNELS = ("proc", "dev", "sys")  # system folders with links to files of other processes
MLFLOWS = "mlruns"  # folder, below the working folder, in which MLflow's client stores experiments
ROOT = re.compile(rf"(?P<folder>.*)/(?P<name>{ARTIFACTS}|{MLFLOWS})/(?P<experiment>.+)")
ADDRESSES = {
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "model_versions": ("source", "storage_location"),
    "logged_models": ("artifact_location",),
}  # table → its columns that contain addresses
ALLOWED = "FA_REGISTRY_ARTIFACTS"  # environment variable: further folders in which a store's files may be written
BUSY_SECONDS = 120.0  # wait at most this long for another process to finish writing


def local_folder(uri: str, store: str, run_id: str) -> Path | None:
    """Return the local folder that a recorded artifact address of a run refers to.

    A database contains the addresses that were valid on the machine where the database was created. The function therefore also
    searches for the folder next to the database. The returned folder might not exist. None means that a remote service stores the
    files.

    Raises:
        UnreadableFile: the address refers to a folder outside the run's artifacts, or addresses of this type are not supported.
            Addresses are untrusted (docs/decisions/18).
    """
    if not uri.startswith(("file:///", "/")):
        if uri.partition(":")[0] in (BUCKETS if sqlite_path(store) else SERVICES):
            return None
        raise UnreadableFile(
            Path(uri), f"is not a supported artifact location; expected a folder or an address of {', '.join(BUCKETS)}"
        )
    folder, database = _path(uri), sqlite_path(store)
    _check_own(folder, run_id)
    experiment, run_part, remainder = str(folder).partition(f"/{run_id}/artifacts")
    sibling = _neighbour(experiment, database) if database else None
    if sibling:
        root, name = sibling
        folder = join_safely(root, f"{name}{run_part}{remainder}")  # the root may be a link to a larger disk
    _check_own(Path(os.path.realpath(folder)), run_id)
    return folder


class OutsideStore(StoreError):
    """Error: files would be written outside the store without the user's permission."""


def check_inside_store(folder: Path, store: str) -> None:
    """Raise OutsideStore if `folder` is not below the folder of an sqlite database.

    The creator of a store chooses its addresses and links, so these are untrusted. The user can allow further folders with the
    environment variable FA_REGISTRY_ARTIFACTS.
    """
    database = sqlite_path(store)
    if database is None:
        return
    target = os.path.realpath(folder)
    allowed_folders = [str(database.parent), *filter(None, os.environ.get(ALLOWED, "").split(os.pathsep))]
    if not any(Path(target).is_relative_to(os.path.realpath(root)) for root in allowed_folders):
        raise OutsideStore(
            f"store {store}: the artifact folder {target} is outside the folder {database.parent}. Nothing was written, because "
            f"the creator of the store chose that artifact folder. If that folder is yours, set the environment variable "
            f"{ALLOWED}={shlex.quote(target)} and repeat the command. Separate several folders by {os.pathsep!r}. "
            "`fa-registry verify` needs no permission, because it writes nothing"
        )


def check_location(location: str, store: str) -> None:
    """Raise OutsideStore if an experiment's recorded artifact location is outside the store."""
    database = sqlite_path(store)
    if database and location.startswith(("file:///", "/")):
        folder = _path(location)
        sibling = _neighbour(str(folder), database)
        check_inside_store(sibling[0] / sibling[1] if sibling else folder, store)


def resolve_artifact(folder: Path, recorded: str) -> str:
    """Return where missing files belong, for an error message.

    They were expected in the local `folder`; `recorded` is the artifact address in the store.
    """
    return (
        f"{folder} (recorded: {recorded}). A store must be copied together with its artifacts: copy the missing folder "
        f"to that path, or create a link named {ARTIFACTS} next to the database"
    )


def _path(uri: str) -> Path:
    return Path(os.fsdecode(unquote_to_bytes(uri.removeprefix("file://"))))


def _neighbour(experiment: str, database: Path) -> tuple[Path, str] | None:
    """Return (artifact root next to the database, path relative to this root), or None.

    The result is None if the recorded folder is a folder that the user chose. In three cases, the folder counts as not chosen by
    the user:

    - The recorded folder is in a folder named `mlartifacts`.
    - The recorded folder is in MLflow's default folder `mlruns`, and a folder `mlruns` exists next to the database.
    - The recorded folder is in `mlruns`, and a database of the same name exists next to this `mlruns`: the store was copied.
    """
    match = ROOT.fullmatch(experiment)
    if not match:
        return None
    root = database.parent / match["name"]
    is_in_store = (
        match["name"] == ARTIFACTS or os.path.isdir(root) or os.path.exists(f"{match['folder']}/{database.name}")
    )
    return (root, match["experiment"]) if is_in_store else None


def _check_own(folder: Path, run_id: str) -> None:
    is_run_folder = RUN_ID.fullmatch(run_id) and f"/{run_id}/artifacts/" in f"{folder}/"
    if not is_run_folder or ".." in folder.parts or folder.parts[1] in KERNELS or "\0" in str(folder):
        raise UnreadableFile(
            folder, f"is not the artifact folder of run {run_id}: expected a path that ends with {run_id}/artifacts"
        )


@dataclass(frozen=True)
class ArtifactLocations:
    """Folders in which the files of a database's runs are stored.

    Attributes:
        moved: mapping from an address prefix in the database to the current address prefix of the same files.
        lacking: mapping run id → text that names the expected folder, for runs whose artifact folder is missing.
        count: number of runs with recorded files.
    """

    moved: Mapping[str, str]
    lacking: Mapping[str, str]
    count: int


def placed(database: Path) -> ArtifactLocations:
    """Compare the addresses in a database with the files on disk. Change nothing."""
    with probe_sqlite(database) as connection:
        locations = connection.execute("SELECT DISTINCT CAST(artifact_location AS TEXT) FROM experiments").fetchall()
        recorded_runs = connection.execute(
            "SELECT run_uuid, CAST(artifact_uri AS TEXT) FROM runs JOIN tags USING (run_uuid) "
            "WHERE key = ? AND lifecycle_stage = 'active'",
            (TAG_ARTIFACTS,),
        ).fetchall()
    missing_folders = {}
    for run_id, uri in recorded_runs:
        with contextlib.suppress(UnreadableFile):  # reported when that run is read
            folder = local_folder(uri or "", f"sqlite:///{database}", run_id)
            if folder and not os.path.isdir(folder):
                missing_folders[run_id] = resolve_artifact(folder, uri)
    return ArtifactLocations(
        dict(filter(None, (_moved(uri or "", database) for (uri,) in locations))), missing_folders, len(recorded_runs)
    )


def _moved(uri: str, database: Path) -> tuple[str, str] | None:
    """Return the recorded and the current address prefix, or None if they are equal."""
    sibling = _neighbour(str(_path(uri)), database) if uri.startswith(("file:///", "/")) else None
    if not sibling or not os.path.isdir(sibling[0]):
        return None
    root, name = sibling
    old = uri.rsplit("/", name.count("/") + 1)[0]
    if not old.endswith(f"/{root.name}") or (os.path.isdir(_path(old)) and os.path.samefile(_path(old), root)):
        return None
    return f"{old}/", f"{root.as_uri() if uri.startswith('file:') else root}/"


def rewrite_addresses(database: Path, prefixes: Mapping[str, str]) -> Path:
    """Replace address prefixes in the database of a moved store in a single transaction.

    MLflow's client cannot change an address, and MLflow's pages read only the recorded address.

    Args:
        database: sqlite file of the store.
        prefixes: mapping from a recorded address prefix to the current one.

    Returns:
        The path of the backup that was made before the change.

    Raises:
        StoreError: the database cannot be written.
    """
    check_writable(f"sqlite:///{database}")
    backup = database.with_name(f"{database.name}.before-{datetime.datetime.now():%Y%m%dT%H%M%S}")
    temporary = database.with_name(f".{backup.name}{process_ownership.owner_suffix()}")
    try:
        with refused(f"store {database}"), contextlib.closing(_opened(database)) as connection:
            temporary.touch()  # the mode of a file that sqlite creates does not depend on a umask such as 002
            connection.execute("BEGIN IMMEDIATE")  # no other process writes between the copy and the change
            with contextlib.closing(_opened(database)) as source, contextlib.closing(_opened(temporary)) as copy:
                source.backup(copy)
            os.replace(temporary, backup)
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table in ADDRESSES.keys() & tables:
                for column in ADDRESSES[table]:
                    for old, new in prefixes.items():
                        connection.execute(
                            f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                            (new, len(old) + 1, len(old), old),
                        )
            connection.execute("COMMIT")
    finally:
        temporary.unlink(missing_ok=True)
    return backup


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
