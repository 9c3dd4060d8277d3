"""What only a person can fill in: marked blanks of the Markdown form, carried over when it is rendered again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fa_registry.errors import UsageError
from fa_registry.reporting.parts import Blank

OPENING = re.compile(r"<!-- fa:blank ([\w-]+) -->")
CLOSING = "<!-- /fa:blank -->"
WHOLE = re.compile(r"<!-- fa:blank ([\w-]+) -->\n?(.*?)\n?<!-- /fa:blank -->", re.DOTALL)
PROMPTS = (
    ("motivation", "Motivation", "Why this method, in this setting? What was expected before the runs?"),
    ("claim", "Claim wording", "The sentence the paper will print, within the claims above."),
    ("limitations", "Known limitations", "What these runs cannot show."),
)


def read_blanks(form: Path) -> dict[str, str]:
    """What people wrote into an existing form. Raises UsageError where it cannot be told: their text would be lost."""
    if not form.is_file():
        return {}
    try:
        return _written(form.read_text(encoding="utf-8"), str(form))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{form}: its blanks cannot be kept: expected UTF-8, found {error.reason} at byte {error.start}; "
            "save it as UTF-8 or move the file away"
        ) from error


def check_kept(written: Mapping[str, str], page: str, form: Path) -> None:
    """Raise UsageError unless the new page of `form` holds every word that people wrote, so that it may replace the old."""
    kept = _written(page, f"{form} as it would be written anew") if any(written.values()) else {}
    lost = [key for key, text in written.items() if text and kept.get(key) != text]
    if lost:
        raise UsageError(
            f"{form}: what people wrote into {', '.join(lost)} would be lost: expected it in its blank of the new page; "
            "let the template form.md.j2 write every one of `blanks` with its markers, or move the file away"
        )


def _written(text: str, subject: str) -> dict[str, str]:
    """The blanks of a form by name; UsageError unless every opening marker has the next closing one for itself."""
    opened = OPENING.findall(text)
    found = WHOLE.findall(text)
    if (
        [name for name, _ in found] != opened
        or len(set(opened)) != len(opened)
        or text.count(CLOSING) != len(opened)
        or any(OPENING.search(body) for _, body in found)
    ):
        raise UsageError(
            f"{subject}: its blanks cannot be kept: expected every '<!-- fa:blank NAME -->' once and closed by one "
            f"'{CLOSING}', found {', '.join(opened) or 'none'} opened and {text.count(CLOSING)} times closed; "
            "mend the markers or move the file away"
        )
    return {name: body.strip("\n") for name, body in found}


def blanks(written: Mapping[str, str]) -> tuple[Blank, ...]:
    """The form's blanks with what is in them, and those an older template had, so that no one's words are dropped."""
    known = [Blank(key, title, prompt, written.get(key, "")) for key, title, prompt in PROMPTS]
    names = {key for key, _, _ in PROMPTS}
    kept = [
        Blank(key, key, "Kept from an earlier form.", text)
        for key, text in written.items()
        if key not in names and text
    ]
    return (*known, *kept)
