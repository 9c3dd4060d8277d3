"""What people wrote is never lost: kept, or the rendering refuses."""

from __future__ import annotations

import pytest

from fa_registry.errors import UsageError
from fa_registry.reporting.blanks import blanks, read_blanks


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
    ],
)
def test_broken_markers_are_refused(tmp_path, text):
    form = tmp_path / "form.md"
    form.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"form\.md: its blanks cannot be kept"):
        read_blanks(form)


def test_blanks_of_an_older_template_are_kept():
    made = blanks({"claim": "mine", "retired": "old words"})
    assert {blank.key: blank.text for blank in made} == {
        "motivation": "",
        "claim": "mine",
        "limitations": "",
        "retired": "old words",
    }
