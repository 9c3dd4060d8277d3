"""What people wrote is never lost: kept, or the rendering refuses."""

from __future__ import annotations

import pytest

from fa_registry.errors import UsageError
from fa_registry.reporting.pages.form import blanks, check_kept, read_blanks


def test_a_form_that_is_not_there_has_no_words(tmp_path):
    assert read_blanks(tmp_path / "none.md") == {}


def test_words_are_read_as_they_were_written(tmp_path):
    form = tmp_path / "form.md"
    form.write_text("x\n<!-- fa:blank claim -->\n**Ours** <b>&</b>\n\nmore\n<!-- /fa:blank -->\ny", encoding="utf-8")
    assert read_blanks(form) == {"claim": "**Ours** <b>&</b>\n\nmore"}


@pytest.mark.parametrize(
    "text",
    [
        "<!-- fa:blank claim -->\nmine\n",
        "<!-- fa:blank claim -->\nmine\n<!-- fa:blank other -->\n<!-- /fa:blank -->",
        "<!-- fa:blank claim -->a<!-- /fa:blank --><!-- fa:blank claim -->b<!-- /fa:blank -->",
        "<!-- fa:blank claim -->\nmine\n<!-- /fa:blank -->\nmine too\n<!-- /fa:blank -->",
    ],
)
def test_broken_markers_are_refused(tmp_path, text):
    form = tmp_path / "form.md"
    form.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"form\.md: its blanks cannot be kept"):
        read_blanks(form)


def test_a_form_that_is_no_utf_8_is_named(tmp_path):
    form = tmp_path / "form.md"
    form.write_bytes("<!-- fa:blank claim -->\nGewöhnlich\n<!-- /fa:blank -->".encode("latin-1"))
    with pytest.raises(UsageError, match=r"form\.md: its blanks cannot be kept: expected UTF-8, found .* at byte 27"):
        read_blanks(form)


CLAIM = "<!-- fa:blank claim -->\n{}\n<!-- /fa:blank -->"


def test_a_new_page_that_holds_the_words_may_replace_the_old(tmp_path):
    check_kept({"claim": "mine", "motivation": ""}, CLAIM.format("mine"), tmp_path / "form.md")
    check_kept({"claim": ""}, "a template without blanks", tmp_path / "form.md")


@pytest.mark.parametrize(
    "page", ["no blanks", CLAIM.format("min"), CLAIM.format("mine\n<!-- /fa:blank -->"), CLAIM.format("&lt;mine&gt;")]
)
def test_a_new_page_that_drops_the_words_may_not(tmp_path, page):
    with pytest.raises(UsageError, match=r"form\.md"):
        check_kept({"claim": "mine"}, page, tmp_path / "form.md")


def test_blanks_of_an_older_template_are_kept():
    made = blanks({"claim": "mine", "retired": "old words"})
    assert {blank.key: blank.text for blank in made} == {
        "motivation": "",
        "claim": "mine",
        "limitations": "",
        "retired": "old words",
    }
