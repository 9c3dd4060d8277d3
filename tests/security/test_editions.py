"""Editions that pass for a shipped one: by their name in a file, by their verdict's tag or alias, by a changed report."""

from __future__ import annotations

import json

import pytest

from fa_registry import bundled_files, jsonio
from fa_registry.jsonio import file_digest
from fa_registry.protocol.rules import load_edition
from fa_registry.tracking import schema
from fa_registry.tracking.models import ModelRegistry
from fa_registry.tracking.schema import PAGE_DIGESTS
from tests.security.conftest import call, judged

LOOSE = (  # nothing fails by these limits
    ("threshold = 50.0", "threshold = 1e12"),
    ("threshold = 1e-7", "threshold = 0.0"),
    ("threshold = 0.99", "threshold = -1.0"),
    ("threshold = 2.0", "threshold = -1000.0"),
    ("threshold = 1e-2", "threshold = 0.0"),
    ("chance = true", "chance = false"),
    ("far_seed = { level = 0.05, least = 2.0 }", ""),
)
BUILT_IN = ("2026-12", "2026-05", "2026-12:strict", "2026-04:first-release")


def loose(store, name):
    """2026-12 with other limits under `name`, in the working folder."""
    text = (bundled_files.editions() / "2026-12.toml").read_text(encoding="utf-8")
    for old, new in (('name = "2026-12"', f"name = {json.dumps(name)}"), *LOOSE):
        assert old in text
        text = text.replace(old, new)
    path = store.folder / "loose.toml"
    path.write_text(text, encoding="utf-8")
    return path


def audit_run(store):
    """The newest audit's own run."""
    known = "SELECT run_uuid FROM tags WHERE key = 'fa.kind' AND value = 'audit'"
    return store.sql(f"SELECT run_uuid FROM runs WHERE run_uuid IN ({known}) ORDER BY start_time DESC")[0][0]


def forge(store, change):
    """Let `change` edit the recorded report, and record its digests as an audit does."""
    run_id = audit_run(store)
    store.change_json(run_id, "audit.json", change)
    digest = jsonio.file_digest(store.artifacts(run_id) / "audit.json")
    store.change_json(run_id, PAGE_DIGESTS, lambda pages: pages.update({"audit.json": digest}))
    store.set_tag(run_id, schema.TAG_PAGES, jsonio.file_digest(store.artifacts(run_id) / PAGE_DIGESTS))
    store.set_tag(run_id, schema.TAG_AUDIT, jsonio.digest_of(store.json(run_id, "audit.json")))


@pytest.fixture
def edition_file(tmp_path, monkeypatch):
    """A folder without a store: what is refused here was refused before anything was looked at."""
    from tests.security.attacks import Store

    monkeypatch.chdir(tmp_path)
    return lambda name: loose(Store(tmp_path), name)


@pytest.mark.parametrize("name", [*BUILT_IN, "\u202e21-6202"])
def test_a_copy_under_a_shipped_name_or_an_unseen_one_is_refused(edition_file, name):
    """No command that takes an edition takes such a one."""
    path = edition_file(name)
    for command in ("audit --study digits", "study digits --stop-on D1", "train --method dfa --seed 1 --stop-on D1"):
        refused = call(*command.split(), "--edition", str(path))
        assert refused.exit_code == 2 and "name" in refused.stderr


@pytest.mark.parametrize("name", ["mine", "2026-12-lenient", "2099-01", "ours 2026", "édition", "2O26-12"])
def test_a_name_of_its_own_is_taken(edition_file, name):
    assert load_edition(str(edition_file(name))).based_on == "2026-12"


def test_an_unchanged_copy_is_the_shipped_edition(edition_file):
    path = edition_file("x")
    path.write_bytes((bundled_files.editions() / "2026-12.toml").read_bytes())
    assert load_edition(str(path)).reference == load_edition("2026-12").reference


@pytest.mark.long
def test_a_verdict_by_an_edition_of_ones_own_says_so_wherever_it_is_read(store, audit):
    path = loose(store, "mine")
    digest = file_digest(path)
    run_id = store.run_id(method="dfa", seed=1)
    shipped = judged(audit(published=True)[1], method="dfa", seed=1)[0].verdict
    assert shipped.outcome != "pass"  # what follows is worth nothing if it was good
    code, report = audit("--edition", "loose.toml", published=True)
    assert code == 0 and judged(report, method="dfa", seed=1)[0].verdict.outcome == "pass"

    edition = report.edition
    assert (edition.shipped, edition.based_on, edition.digest) == (False, "2026-12", digest)
    differences = {
        (difference.rule, difference.field): (difference.shipped, difference.this) for difference in edition.differences
    }
    assert differences == {
        ("D1", "threshold"): (50.0, 1e12),
        ("D1", "either growth_init threshold"): (50.0, 1e12),
        ("D2", "threshold"): (1e-7, 0.0),
        ("D2", "also gain threshold"): (1e-2, 0.0),
        ("D2", "guard fidelity threshold"): (0.99, -1.0),
        ("D2", "guard_also fidelity_batch threshold"): (0.99, -1.0),
        ("D3", "threshold"): (2.0, -1000.0),
        ("D3", "chance"): (True, False),
    }

    assert "<b>mine (based on 2026-12)</b>" in (store.folder / "pages" / "index.html").read_text(encoding="utf-8")
    for form in (store.folder / "pages" / "forms").glob("dfa-*.*"):
        assert "mine (based on 2026-12)" in form.read_text(encoding="utf-8").replace("\\", ""), form

    tags = store.tags(run_id)
    assert tags[schema.TAG_VERDICT] == f"PASS (mine {digest[:8]})"
    assert tags[f"fa.verdict.mine.{digest[:8]}"] == "PASS"
    assert tags[f"fa.verdict.2026-12.{load_edition('2026-12').digest[:8]}"] == shipped.label
    assert "mine (based on 2026-12)" in tags[schema.TAG_NOTE]
    assert store.tags(audit_run(store))["fa.edition"] == "mine (based on 2026-12)"

    promoted = call("promote", run_id, "--name", "fa")
    assert promoted.exit_code == 0, promoted.output
    version = ModelRegistry().find(f"models:/fa@pass-mine-{digest[:8]}")
    assert version.tags[schema.TAG_VERDICT] == f"PASS (mine {digest[:8]})"
    assert version.tags[schema.TAG_EDITION] == f"mine (based on 2026-12), sha256 {digest}"


@pytest.mark.long
def test_a_report_that_was_changed_in_the_store_is_no_shipped_editions(store, audit):
    path = loose(store, "mine")
    audit("--edition", "loose.toml", published=True)
    run_id, real = store.run_id(method="dfa", seed=1), load_edition("2026-12").digest

    forge(store, lambda report: report["edition"].update(name="2026-12", shipped=True, based_on="", differences=[]))
    refused = call("promote", run_id)
    assert refused.exit_code == 2 and file_digest(path)[:8] in refused.output, refused.output
    assert call("report", "--study", "tiny", "--out", "again").exit_code == 0
    page = (store.folder / "again" / "index.html").read_text(encoding="utf-8")
    assert file_digest(path)[:8] in page and "<b>2026-12</b>" not in page

    forge(store, lambda report: report["edition"].update(digest=real))
    refused = call("promote", run_id)
    assert refused.exit_code == 3, refused.output


@pytest.mark.long
def test_a_verdict_that_was_changed_in_the_store_is_not_promoted(store, audit):
    """Edition, digest, limits and figures are honest, the verdict alone is forged, and the audit's own digest with it."""
    audit(published=True)
    run_id = store.run_id(method="dfa", seed=1)

    def passed(report):
        for run in report["runs"]:
            run["verdict"] = {"outcome": "pass", "label": "PASS", "flags": []}

    forge(store, passed)
    refused = call("promote", run_id)
    assert refused.exit_code == 3, refused.output
