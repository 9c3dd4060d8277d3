"""What cannot be known of the code's origin is not called clean."""

from __future__ import annotations

from fa_registry import provenance


def test_outside_a_checkout_nothing_is_said_about_the_tree(monkeypatch, tmp_path):
    provenance.commit.cache_clear()
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "fa_registry" / "provenance.py"))
    assert provenance.commit() == (provenance.NOT_A_CHECKOUT, None)
    provenance.commit.cache_clear()


def test_a_git_that_fails_is_unknown_not_clean(monkeypatch, tmp_path):
    provenance.commit.cache_clear()
    (tmp_path / ".git").mkdir()  # a folder of that name, and no repository in it
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "fa_registry" / "provenance.py"))
    commit, dirty = provenance.commit()
    assert commit.startswith("unknown: ") and dirty is None
    provenance.commit.cache_clear()
