"""A tiny study, trained and audited by three editions, and what tests of promoting look at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from fa_registry.cli import main
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from fa_registry.tracking.models import ModelRegistry

STUDY = """
name = "tiny"
title = "One method, one seed"
edition = "2026-05"
cost = "a second"

[recipe]
epochs = 1

[[grid]]
methods = ["dfa"]
architectures = ["resmlp"]
datasets = ["digits"]
seeds = [1]
architecture_options = { d_hidden = 16, num_blocks = 2 }
"""


@dataclass(frozen=True)
class Judged:
    """A store with dfa, FAIL(D3) by 2026-05 and WARN by 2026-12, and its frozen control."""

    folder: Path

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.db'}"

    @property
    def tracker(self) -> MlflowTracker:
        return MlflowTracker(self.store)

    @property
    def registry(self) -> ModelRegistry:
        return ModelRegistry(self.store)

    def run(self, method: str = "dfa") -> StoredRun:
        """Named by its label."""
        (found,) = self.tracker.search({schema.TAG_KIND: "run", "fa.method": method})
        return found

    def artifact(self, run: StoredRun, name: str) -> Path:
        path = self.tracker.artifact(run.run_id, name)
        assert path is not None
        return path

    def promote(self, run: StoredRun, *arguments: str) -> Result:
        command = ["promote", run.run_id, *arguments, "--store", self.store]
        return CliRunner().invoke(main, command, catch_exceptions=False)

    def promoted(self, run: StoredRun, *arguments: str) -> dict[str, Any]:
        """What promote printed, which must have gone well."""
        result = self.promote(run, *arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def check_refused(self, run: StoredRun, *arguments: str, code: int = 2) -> str:
        """What promote said; it has made no version, and left nothing among the run's artifacts."""
        before = self._left(run)
        result = self.promote(run, *arguments)
        assert result.exit_code == code, result.output
        assert self._left(run) == before
        return result.stderr

    def versions(self) -> dict[str, str]:
        """Every version of a model (`NAME/1`) and the id of its run."""
        found = self.registry.client.search_model_versions()
        return {f"{version.name}/{version.version}": version.run_id for version in found}

    def _left(self, run: StoredRun) -> tuple[set[Path], dict[str, str]]:
        """Every file of the run, and every version."""
        return set(self.folder.glob(f"mlartifacts/**/{run.run_id}/**/*")), self.versions()


def judged_study(folder: Path) -> None:
    """Train and audit the tiny study in `folder`."""
    study = folder / "tiny" / "study.toml"
    study.parent.mkdir(parents=True)
    study.write_text(STUDY, encoding="utf-8")
    store = Judged(folder).store
    for command in (
        ["study", str(study), "--jobs", "1", "--checkpoint-every", "1"],
        ["audit", "--study", str(study), "--editions", "2026-05,2026-12", "--out", str(folder / "out"), "--exit-zero"],
    ):
        result = CliRunner().invoke(main, [*command, "--device", "cpu", "--store", store], catch_exceptions=False)
        assert result.exit_code == 0, result.output


@contextmanager
def spoilt(path: Path, content: bytes | None) -> Iterator[None]:
    """`path` with other content, or without the file; as it was afterwards."""
    before = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


@contextmanager
def tagged(judged: Judged, run: StoredRun, **tags: str) -> Iterator[StoredRun]:
    """The run with other tags (`fa_status` for fa.status), which it loses again."""
    names = {name.replace("_", ".", 1): value for name, value in tags.items()}
    judged.tracker.log(run.run_id, tags=names)
    try:
        yield judged.tracker.get(run.run_id)
    finally:
        judged.tracker.log(run.run_id, tags={name: run.tags.get(name, "") for name in names})
