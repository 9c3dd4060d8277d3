"""What distinguishes the code that trained a run from today's, in the text that study, train and audit print."""

from __future__ import annotations

import pytest

from fa_registry.plugin_registry import source_digest
from fa_registry.training.code_fingerprint import fingerprint, fingerprint_changes
from tests.helpers.plugins import NAME, PACKAGE, installed
from tests.helpers.tiny_tasks import tiny_spec

A, B = "a" * 64, "b" * 64


def mine(version: str = "0.1", digest: str = A, package: str = "mine") -> dict:
    return {"package": package, "version": version, "digest": digest}


@pytest.mark.parametrize(
    ("before", "today", "line"),
    [
        ({"version": 1}, {"version": 1}, ""),
        ({"version": 1}, {"version": 2}, "method m: version 1 → 2"),
        ({"version": 3}, {"version": 2}, "method m: version 3 → 2"),
        (None, {"version": 1}, ""),  # an older release: taken for version 1
        (None, {"version": 2}, "method m: version 1 → 2"),
        (mine(), mine(), ""),
        (mine(), mine("0.2"), ""),  # the same source in another release
        (mine(), mine(digest=B), "method m: source edited (digest aaaaaaaa… → bbbbbbbb…)"),
        (mine(), mine("0.2", B), "method m: mine 0.1 → mine 0.2 (digest aaaaaaaa… → bbbbbbbb…)"),
        (mine(), {"version": 1}, "method m: package mine 0.1 (digest aaaaaaaa…) → version 1 of the built-in plug-in"),
        ({"version": 1}, mine(), "method m: version 1 of the built-in plug-in → package mine 0.1 (digest aaaaaaaa…)"),
        (
            None,
            mine(),
            "method m: its source was not recorded with the run; the installed source is package mine 0.1 (digest aaaaaaaa…)",
        ),
    ],
)
def test_what_changed_is_reported_in_text(before, today, line):
    sealed = {"methods/m": before} if before else None
    assert fingerprint_changes(sealed, {"methods/m": today}) == ((line,) if line else ())


def test_a_diagnostic_that_came_or_went_changes_nothing_an_edited_one_does():
    assert fingerprint_changes({}, {"diagnostics/d": mine()}) == ()
    assert fingerprint_changes({"diagnostics/d": mine()}, {}) == ()
    assert fingerprint_changes({"diagnostics/d": mine()}, {"diagnostics/d": mine(digest=B)}) == (
        "diagnostic d: source edited (digest aaaaaaaa… → bbbbbbbb…)",
    )


def test_a_run_of_ours_alone_names_versions():
    code = fingerprint(tiny_spec(dataset="random_targets:digits"))
    assert {"methods/dfa", "architectures/resmlp", "datasets/random_targets:digits", "diagnostics/gamma"} <= set(code)
    assert all(set(entry) == {"version"} for entry in code.values())


def test_every_file_of_the_package_is_in_the_digest(tmp_path):
    with installed(tmp_path) as plugin:
        first = source_digest(f"{PACKAGE}.{NAME}")
        helper = tmp_path / PACKAGE / "deep" / "helper.py"
        helper.parent.mkdir()
        helper.write_text("SCALE = 5\n")
        plugin.forget()
        second = source_digest(f"{PACKAGE}.{NAME}")
        helper.rename(helper.with_name("other.py"))
        plugin.forget()
        assert len({first, second, source_digest(f"{PACKAGE}.{NAME}")}) == 3


def test_a_module_alone_and_a_part_of_a_shared_name_have_digests_of_their_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lone_rule.py").write_text("PLUGIN = 1\n")
    for name in ("mine", "yours"):
        (tmp_path / "shared_name" / name).mkdir(parents=True)
        (tmp_path / "shared_name" / name / "__init__.py").write_text(f"PLUGIN = '{name}'\n")
    before = source_digest("shared_name.mine")
    assert len({before, source_digest("shared_name.yours"), source_digest("lone_rule")}) == 3
    (tmp_path / "shared_name" / "yours" / "__init__.py").write_text("PLUGIN = 'edited'\n")
    source_digest.cache_clear()
    assert source_digest("shared_name.mine") == before  # another distribution's part of the name
