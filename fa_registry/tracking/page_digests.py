"""Digests of the pages that an audit wrote into the store.

An export compares the pages with these digests. An audit's own run has the file digests.json with the SHA-256 of each page. A
tag of the audit's own run contains the SHA-256 of digests.json. Each audited run has two pages of its newest audit, and a tag
contains their SHA-256.
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


def write_page_digests(folder: Path) -> dict[str, str]:
    """Write the digests of all files in `folder` to digests.json.

    Return the tag of the audit's own run, with the SHA-256 of digests.json.
    """
    (folder / schema.PAGE_DIGESTS).write_text(jsonio.pretty(folder_digests(folder)), encoding="utf-8")
    return {schema.TAG_PAGES: jsonio.file_digest(folder / schema.PAGE_DIGESTS)}


def page_digests_tag(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the tag with the digests of an audit's pages on a run: page name → SHA-256."""
    return {schema.TAG_PAGES: jsonio.canonical(digests)}


def check_audit_pages(tracker: Tracker, audit: StoredRun, names: Sequence[str] = ()) -> dict[str, int]:
    """Compare an audit's pages with their recorded digests.

    Args:
        audit: the audit's own run.
        names: pages to check; empty means all pages.

    Returns:
        Mapping from page name to size in bytes.

    Raises:
        IntegrityError: a page is missing or was changed. The message lists all such pages.
    """
    sizes = check_files(tracker, audit.run_id, {schema.PAGE_DIGESTS: audit.tags.get(schema.TAG_PAGES, "none")})
    content = jsonio.read_json(tracker.artifact(audit.run_id, schema.PAGE_DIGESTS))
    recorded = jsonio.decode(dict[str, str], content, schema.PAGE_DIGESTS)
    page_digests = {name: recorded.get(name, "none") for name in names} if names else recorded
    return sizes | check_files(tracker, audit.run_id, page_digests)


def check_run_pages(tracker: Tracker, run: StoredRun) -> dict[str, int]:
    """Compare an audit's pages on a run with their digests; return and raise as `check_audit_pages`.

    The mapping is empty if no audit has judged the run.
    """
    tag = run.tags.get(schema.TAG_PAGES)
    if not tag:
        return {}
    try:
        recorded = jsonio.decode(dict[str, str], jsonio.loads(tag), schema.TAG_PAGES)
    except (ValueError, RecursionError, InvalidFields) as error:
        raise IntegrityError(
            f"run {run.run_id}: the tag {schema.TAG_PAGES} was changed after the audit and cannot be read: {error}"
        ) from error
    return check_files(tracker, run.run_id, recorded)
