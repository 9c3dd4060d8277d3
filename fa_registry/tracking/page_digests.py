"""Digests of the pages that an audit wrote into the store, so that an export is what was written.

An audit's own run has a file with the SHA-256 of its pages, and that file's SHA-256 in a tag. An audited run has two pages of its
newest audit, and their SHA-256 in a tag: every audit replaces them. Older releases recorded no digests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fa_registry import jsonio
from fa_registry.errors import IntegrityError, InvalidFields
from fa_registry.tracking import schema
from fa_registry.tracking.base import StoredRun, Tracker
from fa_registry.tracking.reader import check_files
from fa_registry.tracking.writer import folder_digests

SEAL = "digests.json"  # next to an audit's pages


def seal_folder(folder: Path) -> dict[str, str]:
    """Write the digests of all files in `folder` to a file in it; return the tag of the audit's run."""
    (folder / SEAL).write_text(jsonio.pretty(folder_digests(folder)), encoding="utf-8")
    return {schema.TAG_PAGES: jsonio.file_digest(folder / SEAL)}


def seal_pages(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the tag of a run to which these pages were attached."""
    return {schema.TAG_PAGES: jsonio.canonical(digests)}


def check_audit_pages(tracker: Tracker, audit: StoredRun, names: Sequence[str] = ()) -> dict[str, int]:
    """Return name → size in bytes of an audit's pages, or of `names`; empty for an older release's audit.

    Raises:
        IntegrityError: names every page that is missing or was changed.
    """
    seal = audit.tags.get(schema.TAG_PAGES)
    if not seal:
        return {}
    checked = check_files(tracker, audit.run_id, {SEAL: seal})
    recorded = jsonio.decode(dict[str, str], jsonio.read_json(tracker.artifact(audit.run_id, SEAL)), SEAL)
    wanted = {name: recorded.get(name, "none") for name in names} if names else recorded
    return checked | check_files(tracker, audit.run_id, wanted)


def check_run_pages(tracker: Tracker, run: StoredRun) -> dict[str, int]:
    """Return name → size in bytes of a run's attached pages; raise as `check_audit_pages`."""
    tag = run.tags.get(schema.TAG_PAGES)
    if not tag:
        return {}
    try:
        recorded = jsonio.decode(dict[str, str], jsonio.loads(tag), schema.TAG_PAGES)
    except (ValueError, RecursionError, InvalidFields) as error:
        raise IntegrityError(
            f"run {run.run_id}: the tag {schema.TAG_PAGES} is not as an audit wrote it: {error}"
        ) from error
    return check_files(tracker, run.run_id, recorded)
