"""Which editions are the shipped ones, and what people read of one that is not. A name proves nothing, a digest does.

Asked of this installation's own files whenever an edition is loaded or a report is shown: a report, a tag or a file may
call its edition whatever it likes.
"""

from __future__ import annotations

import functools
import tomllib
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType

from fa_registry import resources
from fa_registry.jsonio import file_digest
from fa_registry.records import EditionReference

SHIPPED, OWN, FOREIGN = STANDINGS = ("shipped", "own", "foreign")
DIGEST = 8  # characters of an edition's digest in tags, aliases and on pages: enough to tell a handful of files apart
# Signs that look like the colon before a variant's name, beyond those that NFKD makes one.
COLONS = str.maketrans(dict.fromkeys("\u2236\ua789\u02d0\u0589\u05c3\u16ec", ":"))
# Letters that pass for a digit of a date, after case folding: Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee. The
# digits of other scripts are read as what they count.
LOOK_LIKE = {
    "0": "o\u03bf\u043e\u0585\u10ff",
    "1": "li\u0131\u03b9\u0456\u04cf\u01c0|",
    "2": "z\u01a8",
    "4": "\u0447\uabae",
    "5": "s\u0455\u01bd",
    "6": "b\u0431",
}
DIGITS = str.maketrans({letter: digit for digit, letters in LOOK_LIKE.items() for letter in letters})


@functools.cache
def digests() -> Mapping[str, str]:
    """The name of every shipped edition, each followed by its variants → SHA-256 of its file."""
    digest_of: dict[str, str] = {}
    for path in sorted(resources.editions().glob("*.toml")):
        variants = tomllib.loads(path.read_text(encoding="utf-8")).get("variant", {})
        digest = file_digest(path)
        digest_of |= dict.fromkeys((path.stem, *(f"{path.stem}:{variant}" for variant in variants)), digest)
    return MappingProxyType(digest_of)


def claimed(name: str) -> str:
    """The shipped edition that a reader would take `name` for, or for a variant of; empty where it is nobody's.

    Case, blanks, invisible characters, kinds of hyphens and letters that look like digits make no difference to a reader.
    """
    plain = unicodedata.normalize("NFKD", name).translate(COLONS).partition(":")[0]
    stems = {_skeleton(known): known for known in digests() if ":" not in known}
    return stems.get(_skeleton(plain), "")


def _skeleton(text: str) -> str:
    """The letters and digits alone, look-alikes as the digit that they look like."""
    looks = unicodedata.normalize("NFKD", text).casefold().translate(DIGITS)
    kept = (letter for letter in looks if unicodedata.category(letter)[0] in "LN")
    return "".join(str(unicodedata.digit(letter, letter)) for letter in kept)


def impersonation(name: str, digest: str) -> str:
    """What is wrong with an edition's name where it is a shipped one's and the file is not; empty where nothing is."""
    taken = claimed(name)
    if not taken or digests()[taken] == digest:
        return ""
    shown = repr(name) if name.isascii() else f"{name!r} ({ascii(name)})"
    return (
        f"name: {shown} reads as the shipped edition {taken}, but the file's SHA-256 is {digest[:DIGEST]}…, not "
        f'{digests()[taken][:DIGEST]}…; give it a name of its own (and `based_on = "{taken}"`, if it is)'
    )


def standing(edition: EditionReference) -> str:
    """shipped: this installation's own file; foreign: it has the name of one and is not; own: somebody's own."""
    if digests().get(edition.name) == edition.digest:
        return SHIPPED
    return FOREIGN if claimed(edition.name) else OWN


def edition_words(edition: EditionReference) -> str:
    """What people read of an edition: `2026-11`, `mine (based on 2026-11)`, or that it only calls itself so.

    An own edition of another name has it before: `lenient, mine (own rules)`.
    """
    if standing(edition) == SHIPPED:
        return edition.name
    if standing(edition) == FOREIGN:
        return f"{edition.name} (not this installation's: digest {edition.digest[:DIGEST]})"
    whose = "mine" if edition.name == "mine" else f"{edition.name}, mine"
    if edition.based_on:
        return f"{whose} (based on {edition.based_on})"
    # None: an older release wrote the reference, which did not look what the edition is based on
    return f"{whose} ({'not a shipped edition' if edition.shipped is None else 'own rules'})"


def verdict_mark(edition: EditionReference) -> str:
    """What a verdict must carry wherever it stands alone, as `mine 1a2b3c4d`; empty by a shipped edition as it is."""
    whose = {SHIPPED: "", OWN: f"mine {edition.digest[:DIGEST]}", FOREIGN: f"not shipped {edition.digest[:DIGEST]}"}
    mark = whose[standing(edition)]
    if not edition.overrides:
        return mark
    return f"{mark} modified" if mark else "modified edition"
