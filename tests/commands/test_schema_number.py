"""Each store, bundle, edition and file of another schema number is refused in one line, with exit code 2."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

import fa_registry
from fa_registry import bundled_files
from fa_registry.bundles import archive
from fa_registry.errors import UsageError
from fa_registry.protocol.rules import load_edition
from fa_registry.schema_number import SCHEMA, check_schema
from fa_registry.tracking import schema
from fa_registry.tracking.mlflow_tracker import MlflowTracker
from tests.commands.conftest import STUDY, call

OTHERS = [SCHEMA - 1, SCHEMA + 1, None]  # None: the file contains no number


def store_of(number: int | None, kind: str = "run") -> None:
    """Change the number of one run of the store."""
    tracker = MlflowTracker()
    run = tracker.search({schema.TAG_KIND: kind})[0]
    if number is None:
        tracker.remove_tags(run.run_id, [schema.TAG_SCHEMA])
    else:
        tracker.log(run.run_id, tags={schema.TAG_SCHEMA: str(number)})


def report_of(number: int | None) -> None:
    raw = json.loads(Path("reports/audit.json").read_text(encoding="utf-8"))
    del raw["schema"]
    Path("other.json").write_text(json.dumps(raw if number is None else {**raw, "schema": number}), encoding="utf-8")


def bundle_of(number: int | None) -> None:
    folder = Path("packed")
    (folder / "audit").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "SCHEMA", number)
        archive.pack(folder, Path("other.fa.zip"), {"study": "s", "audit": "a", "light": True, "made_by": "9"})


def toml_of(text: str) -> Callable[[int | None], None]:
    return lambda number: Path("other.toml").write_text(f"schema = {number}\n{text}", encoding="utf-8")


EDITION = (bundled_files.editions() / "2026-12.toml").read_text(encoding="utf-8").replace('"2026-12"', '"mine"', 1)
KINDS: dict[str, tuple[Callable[[int | None], Any], tuple[str, ...]]] = {
    "store, listed": (store_of, ("list", "runs")),
    "store, audited": (store_of, ("audit", "--study", "tiny", "--trust-logged")),
    "store, trained": (store_of, ("study", "tiny", "--device", "cpu")),
    "audit in a store": (lambda number: store_of(number, "audit"), ("report", "--study", "tiny")),
    "report": (report_of, ("report", "other.json")),
    "report, verified": (report_of, ("verify", "other.json")),
    "bundle": (bundle_of, ("verify", "other.fa.zip")),
    "bundle, imported": (bundle_of, ("import", "other.fa.zip")),
}
# The author of these files need not write the number.
WRITTEN = {
    "edition": (toml_of(EDITION), ("audit", "--study", "tiny", "--trust-logged", "--edition", "other.toml")),
    "waivers": (toml_of(""), ("audit", "--study", "tiny", "--trust-logged", "--waivers", "other.toml")),
    "study": (toml_of(STUDY), ("study", "other.toml", "--dry-run")),
}


@pytest.mark.parametrize("number", OTHERS)
@pytest.mark.parametrize("kind", KINDS)
def test_another_number_or_none_is_refused_in_one_line(audited_copy, kind, number):
    make, command = KINDS[kind]
    make(number)
    assert refusal(audited_copy(*command)) == (2, maker(number), f"reads schema {SCHEMA}")


@pytest.mark.parametrize("number", [SCHEMA - 1, SCHEMA + 1])
@pytest.mark.parametrize("kind", WRITTEN)
def test_a_file_that_a_user_wrote_for_another_number_is_refused(audited_copy, kind, number):
    make, command = WRITTEN[kind]
    make(number)
    assert refusal(audited_copy(*command)) == (2, maker(number), f"reads schema {SCHEMA}")


def maker(number: int | None) -> str:
    return "made without a schema number" if number is None else f"made by schema {number}"


def refusal(result: Any) -> tuple[int, str, str]:
    """The exit code, who made the file, and what is read here: from one line, which also says what to do."""
    (line,) = result.stderr.strip().splitlines()
    found = re.fullmatch(
        r".*: (made [a-z]+ (?:a schema number|schema \d+)), but this fa_registry (reads schema \d+); .+", line
    )
    return result.exit_code, found[1], found[2]


@pytest.mark.parametrize("number", [SCHEMA, None])
def test_an_edition_without_a_number_is_meant_for_this_package(tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("" if number is None else f"schema = {number}\n", encoding="utf-8")
    with Path("mine.toml").open("a", encoding="utf-8") as file:
        file.write(EDITION)
    assert load_edition("mine.toml").rules == load_edition("2026-12").rules


@pytest.mark.parametrize("number", OTHERS)
def test_the_files_of_a_model_with_another_number_are_refused(tmp_path, number):
    manifest = {"digests": {}} if number is None else {"digests": {}, "schema": number}
    (tmp_path / schema.PROVENANCE).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(UsageError) as refusal:
        fa_registry.load_model(tmp_path)
    assert refusal.value.exit_code == 2 and f"reads schema {SCHEMA}" in str(refusal.value)


@pytest.mark.parametrize("found", [None, SCHEMA - 1, str(SCHEMA + 1), True, float(SCHEMA), [SCHEMA], {}, "x" * 10_000])
def test_what_is_not_the_number_is_refused_in_one_short_line(found):
    with pytest.raises(UsageError) as refusal:
        check_schema("the file", found, "write it anew")
    assert len(str(refusal.value)) < 300 and "\n" not in str(refusal.value)


@pytest.mark.parametrize("found", [SCHEMA, str(SCHEMA)])
def test_the_number_of_this_package_is_read(found):
    check_schema("the file", found, "write it anew")


def test_every_run_of_the_package_has_the_number_and_other_runs_need_none(audited_copy):
    tracker = MlflowTracker()
    runs = [run for kind in ("run", "study", "audit") for run in tracker.search({schema.TAG_KIND: kind})]
    assert {run.tags[schema.TAG_SCHEMA] for run in runs} == {str(SCHEMA)}
    provenance = tracker.artifact(tracker.search({schema.TAG_KIND: "run"})[0].run_id, schema.PROVENANCE)
    assert json.loads(provenance.read_text(encoding="utf-8"))["schema"] == SCHEMA
    MlflowClient(tracker.uri).create_run(tracker.experiment_id)
    assert call("list", "runs").exit_code == 0


@pytest.mark.long
def test_deleting_a_run_with_another_number_makes_the_store_usable(audited_copy):
    tracker = MlflowTracker()
    run = tracker.search({schema.TAG_KIND: "run"})[0]
    tracker.log(run.run_id, tags={schema.TAG_SCHEMA: str(SCHEMA + 1)})
    assert call("audit", "--study", "tiny", "--trust-logged").exit_code == 2
    tracker.discard(run.run_id)
    assert call("audit", "--study", "tiny", "--trust-logged").exit_code != 2  # the audit looks for deleted runs too
