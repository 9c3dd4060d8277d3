"""Third-party text that is shown: what is not seen is written out, no name begins a line, JSON stays what it was."""

from __future__ import annotations

import json
import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fa_registry.text_safety import (
    CATEGORIES,
    escape_control,
    escape_message,
    escape_to_one_line,
    json_text,
    json_without_password,
)

ANY = st.text(st.characters(exclude_categories=()))


def hidden(text: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) in CATEGORIES} - {"\n", "\t"}


def test_hidden_characters_are_shown():
    assert escape_control("a\u202eb\x00c\r") == "a⟨U+202E⟩b⟨U+0000⟩c⟨U+000D⟩"
    assert escape_control("tab\tline\n ü ‖\u00a0\u2009µ") == "tab\tline\n ü ‖\u00a0\u2009µ"
    assert escape_control("\x7f\x9b31m\udc80\U000e0041\ufffe") == "⟨U+007F⟩⟨U+009B⟩31m⟨U+DC80⟩⟨U+E0041⟩⟨U+FFFE⟩"


def test_the_password_of_a_store_is_not_shown():
    """An error, a log of CI and a screenshot hold its address."""
    assert (
        escape_control("store postgresql://me:pa55@host:5432/db: full") == "store postgresql://me:…@host:5432/db: full"
    )
    assert escape_control("full: postgresql://host/db?password=pa55&x=1") == "full: postgresql://host/db?password=…&x=1"
    for address in ("http://127.0.0.1:5000/#/a:b@c", "sqlite:////tmp/a:b@c/mlflow.db", "postgresql://me@host:5432/db"):
        assert escape_message(address) == address


SECRETS = ["postgresql://me:pa55@h/db", 'x://me:pa"55@h/', "x://h/db?password=pa55"]


@given(st.dictionaries(ANY, ANY | st.sampled_from(SECRETS)))
@example({str(place): address for place, address in enumerate(SECRETS)})
def test_json_with_no_password_is_json_whose_other_texts_are_as_they_were(values):
    cleaned = json.loads(json_without_password(json.dumps(values, indent=1, ensure_ascii=False)))
    kept = {name: value for name, value in values.items() if "://" not in name + value}
    assert kept.items() <= cleaned.items() and len(cleaned) <= len(values)
    assert not [value for value in cleaned.values() if "pa55" in value]


def test_what_python_calls_printable_hides_nothing():
    """`visible` lets a printable text pass without looking at its characters."""
    assert not any(char.isprintable() for char in map(chr, range(0x110000)) if unicodedata.category(char) in CATEGORIES)


@given(ANY)
def test_whatever_is_shown_is_seen_and_xml_can_hold_it(text):
    assert (
        not hidden(escape_control(text))
        and not hidden(escape_to_one_line(text))
        and "\n" not in escape_to_one_line(text)
    )
    shown = escape_control(text)
    assert ElementTree.fromstring(ElementTree.tostring(ElementTree.Element("a", b=shown), "utf-8")).get("b") == shown


@given(ANY)
def test_json_means_the_same(text):
    written = json_text(json.dumps({"a": text}, indent=1, ensure_ascii=False))
    assert json.loads(written) == json.loads(json.dumps({"a": text})) and not hidden(written)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("run x\nPASS: all good", "run x\n  PASS: all good"),
        ("3 problems\n  - one\n  - two", "3 problems\n  - one\n  - two"),
        ("a\rb\x85c\u2028d\n", "a⟨U+000D⟩b⟨U+0085⟩c⟨U+2028⟩d\n"),
    ],
)
def test_only_the_first_line_of_a_message_begins_at_the_margin(text, shown):
    assert escape_message(text) == shown
