"""What may not change when names and sentences do: `python -m tests.compatibility.frozen --write` records it in frozen.json.

before_33.tar.xz holds a store, a bundle, an audit, user templates, an edition, waivers and a study file that commit 9d8cfb8 wrote,
the last one before issue 33. Everything here is observed through the command line and through the files that it writes, so that
the record does not depend on any name inside the library.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import re
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from click.testing import CliRunner, Result

from fa_registry.cli import main
from fa_registry.studies.study import load_study

# The pages and sentences of another release cannot be rendered again to the same bytes: `verify` calls these two unverifiable.
WORDED_OTHERWISE = ("verify audit", "verify bundle", "verify store")
HERE = Path(__file__).parent
FILE = HERE / "frozen.json"
PACKED = HERE / "before_33.tar.xz"
MADE_IN = "/tmp/before_33"  # where the archive's store believes its artifacts are
STORE = "sqlite:///store.db"
NONCE = "00112233445566778899aabbccddeeff"
SHIPPED = Path(__file__).resolve().parents[2]

# name → arguments; each prints JSON, and the exit code is recorded too
COMMANDS: dict[str, list[str]] = {
    "list runs": ["list", "runs", "--store", STORE],
    "list methods": ["list", "methods"],
    "list studies": ["list", "studies"],
    "list editions": ["list", "editions"],
    "list diagnostics": ["list", "diagnostics"],
    "list analyses": ["list", "analyses"],
    "list architectures": ["list", "architectures"],
    "card dfa": ["card", "dfa"],
    "card gamma": ["card", "gamma"],
    "card resmlp": ["card", "resmlp"],
    "watch": ["watch", "--once", "--store", STORE],
    "dry run": ["study", "study.toml", "--dry-run", "--no-probe", "--keep-trained", "--store", STORE],
    "compare": ["compare", "dfa", "bp", "--study", "study.toml", "--store", STORE],
    "analyse": ["analyse", "sensitivity", "--study", "study.toml", "--store", STORE],
    "verify store": ["verify", "--study", "study.toml", "--store", STORE],
    "verify audit": ["verify", "pages/audit.json", "--store", STORE],
    "verify bundle": ["verify", "before_33.fa.zip"],
    "import": ["import", "before_33.fa.zip", "--store", "sqlite:///imported.db"],
    "diff": ["diff", "pages/audit.json", "pages/audit.json"],
    "audit": ["audit", "--study", "study.toml", "--store", STORE, "--out", "again", "--nonce", NONCE, "--exit-zero"],
    "data": ["data", "list"],
    "doctor": ["doctor", "--store", STORE],
    "train": ["train", "--method", "dfa", "--seed", "1", "--epochs", "1", "--store", "sqlite:///fresh.db"],
    "lint": ["lint", "loop.py"],
}
# what commands printed in `record`, by their names
PRINTED: dict[str, Any] = {}
# keys whose own names are data: runs, methods, packages, files
ANY_KEY = re.compile(r"^[0-9a-f]{12,}$")


@contextlib.contextmanager
def unpacked() -> Iterator[Path]:
    """The archive in a temporary folder that is the working directory; the store's artifact addresses point into it."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name).resolve()
        with tarfile.open(PACKED) as archive:
            # Python 3.11.3 and older have no filters
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        with sqlite3.connect(folder / "store.db") as store:
            for table, column in (("runs", "artifact_uri"), ("experiments", "artifact_location")):
                store.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (MADE_IN, str(folder)))
            _rescale_gradients(store)
        yield folder


def _rescale_gradients(store: sqlite3.Connection) -> None:
    """Give the logged ‖g‖ the scale of the mean loss. The commit that made the archive logged that of one sample."""
    for run_id, uri in store.execute("SELECT run_uuid, artifact_uri FROM runs").fetchall():
        series = Path(uri.removeprefix("file://")) / "series.parquet"
        rows = pq.read_table(series).to_pylist() if series.is_file() else []
        gradients = [row for row in rows if "g_norm_mean_ce" in row.values()]
        last = max((row["site"] for row in gradients), default=0)
        for row in gradients:
            keys = [f"g_norm/site_{row['site']:02d}", *(["g_L"] if row["site"] == last else [])]
            for table in ("metrics", "latest_metrics"):
                for key in keys:
                    where = (row["value"], run_id, key, row["epoch"])
                    store.execute(f"UPDATE {table} SET value = ? WHERE run_uuid = ? AND key = ? AND step = ?", where)


def run(*arguments: str) -> Result:
    """The command in this process, with its output; an error that is no exit is raised."""
    result = CliRunner().invoke(main, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def shape(value: Any) -> Any:
    """Keys and types of a JSON value: a list becomes the union of its items, a number a number."""
    if isinstance(value, dict):
        if value and all(ANY_KEY.match(key) for key in value):
            return {"*": shape(list(value.values()))[0]}
        return {key: shape(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [union(shape(item) for item in value)] if value else []
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return "null" if value is None else type(value).__name__


def union(shapes: Iterator[Any]) -> Any:
    """One shape that covers all: keys of any; several types as `a | b`."""
    found = list(shapes)
    if all(isinstance(one, dict) for one in found):
        return {
            key: union(one[key] for one in found if key in one) for key in sorted({key for one in found for key in one})
        }
    if all(isinstance(one, list) for one in found):
        items = [item for one in found for item in one]
        return [union(iter(items))] if items else []
    texts = {one if isinstance(one, str) else json.dumps(one, sort_keys=True) for one in found}
    return " | ".join(
        sorted(part for text in texts for part in ([text] if text.startswith(("{", "[")) else text.split(" | ")))
    )


def stored(database: str) -> dict[str, list[str]]:
    """Names in a store's tables, and paths of the artifacts of its runs, with run ids and numbers taken out."""
    with sqlite3.connect(database) as store:
        names = {
            table: sorted({_plain(name) for (name,) in store.execute(f"SELECT DISTINCT key FROM {table}")})
            for table in ("tags", "params", "latest_metrics")
        }
        folders = [Path(uri.removeprefix("file://")) for (uri,) in store.execute("SELECT artifact_uri FROM runs")]
    paths = {
        _plain(str(path.relative_to(folder))) for folder in folders for path in folder.rglob("*") if path.is_file()
    }
    return {**names, "artifacts": sorted(paths)}


def _plain(name: str) -> str:
    return re.sub(r"[0-9a-f]{8,}", "ID", name)


def identities() -> dict[str, list[str]]:
    """Every shipped study with the number of its runs and a digest over their identities."""
    found = {}
    for path in sorted((SHIPPED / "projects").glob("*/study.toml")):
        specs = sorted(spec.identity for spec in load_study(path.parent.name).specs)
        found[path.parent.name] = [str(len(specs)), hashlib.sha256("\n".join(specs).encode()).hexdigest()]
    return found


def judged(report: dict[str, Any]) -> list[list[str]]:
    """Run, verdict and fired rules of every run of an audit.json."""
    return sorted(
        [one["record"]["run_id"], one["verdict"]["label"], one["record"]["integrity"]["state"]]
        for one in report["runs"]
    )


def record() -> dict[str, Any]:
    """All that is frozen; takes about a minute."""
    editions = (SHIPPED / "fa_registry" / "protocol" / "editions").glob("*.toml")
    frozen: dict[str, Any] = {
        "editions": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(editions)},
        "commands": {},
    }
    with unpacked():
        frozen["identities"] = identities()
        for name, arguments in COMMANDS.items():
            result = run(*arguments, "--json")
            PRINTED.pop(name, None)
            with contextlib.suppress(json.JSONDecodeError):
                PRINTED[name] = json.loads(result.stdout)
            frozen["commands"][name] = {"exit": result.exit_code, "shape": shape(PRINTED.get(name))}
        frozen["store after an audit"] = stored("store.db")
        frozen["imported store"] = stored("imported.db")
        frozen["store of one run"] = stored("fresh.db")
        with open("again/audit.csv", newline="", encoding="utf-8") as file:
            frozen["audit.csv"] = next(csv.reader(file))
        frozen["audit.json"] = shape(json.loads(Path("again/audit.json").read_text(encoding="utf-8")))
        frozen["verdicts"] = judged(json.loads(Path("again/audit.json").read_text(encoding="utf-8")))
        frozen["pages"] = sorted(
            {_plain(str(path.relative_to("again"))) for path in Path("again").rglob("*") if path.is_file()}
        )
    return frozen


if __name__ == "__main__":
    if "--write" in sys.argv:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        found = record()
        for name in WORDED_OTHERWISE:  # what the release of the archive answered stays
            found["commands"][name] = json.loads(FILE.read_text(encoding="utf-8"))["commands"][name]
        FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    print(FILE)
