"""Which edition judges: the default, and loading those that were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.builtin_editions import DIGEST, FOREIGN, OWN, SHIPPED, provenance_of
from fa_registry.protocol.rules import STRICT, Edition, load_edition, overridden
from fa_registry.records import EditionReference
from fa_registry.studies.study import load_study
from fa_registry.workflows.options import JudgingOptions, RunSelector

DEFAULT_EDITION = "2026-12"


def study_edition(study: str) -> str:
    """The edition of a study by its name; empty where the name is a mere tag that no study file stands for."""
    try:
        return load_study(study).edition if study else ""
    except UnknownName:
        return ""


def load_or_name(name: str, problems: list[str], thresholds: Mapping[str, float] | None = None) -> Edition | None:
    """The edition; or None, with what is wrong with it or with the thresholds added to `problems`."""
    where = f"edition {name}: "
    try:
        edition = load_edition(name)
        where = "threshold "  # from here on what is wrong was typed, it is not the file's
        return overridden(edition, thresholds or {})
    except InvalidFields as error:
        problems += [f"{where}{problem}" for problem in error.problems]
    except UnknownName as error:
        problems.append(f"edition: {error}")
    return None


def chosen_editions(
    own: str, edition: str, editions: Sequence[str], thresholds: Mapping[str, float], problems: list[str]
) -> tuple[Edition, ...]:
    """The editions to judge by, the leading one first; what is wrong with them is added to `problems`.

    own: the study's. It leads where it is one of several, else the first of them does; alone where none is named.
    thresholds: of the leading edition, instead of its own.
    """
    if edition and editions:
        problems.append(f"editions: expected --edition or --editions, found both ({edition}; {', '.join(editions)})")
        return ()
    ordered = _leading_first(own, editions) if editions else [edition or own or DEFAULT_EDITION]
    loaded = [load_or_name(name, problems, thresholds if place == 0 else {}) for place, name in enumerate(ordered)]
    valid = tuple(filter(None, loaded))
    names_read = Counter(known.name for known in valid)
    problems += [f"editions: {name} is given twice" for name, count in names_read.items() if count > 1]
    return valid


def _leading_first(own: str, names: Sequence[str]) -> list[str]:
    leading = (own or DEFAULT_EDITION) if (own or DEFAULT_EDITION) in names else names[0]
    return sorted(names, key=lambda name: name != leading)  # sorted keeps the order of the others


def leading_edition(chosen: RunSelector, terms: JudgingOptions) -> str:
    """The one that leads, as it was typed; empty where the study's own judges alone."""
    return _leading_first(chosen.as_asked.edition, terms.editions)[0] if terms.editions else terms.edition


def checked_terms(chosen: RunSelector, terms: JudgingOptions, problems: list[str]) -> tuple[Edition, ...]:
    """The editions to judge by; what is wrong with them, or with the study that names one, is added to `problems`."""
    own = ""
    try:
        own = chosen.as_asked.edition if chosen.study else ""
    except InvalidFields as error:
        problems += error.problems
    except UnknownName as error:
        problems.append(f"study: {error}")
    edition = terms.edition
    if not isinstance(terms.strict, bool):
        problems.append(f"strict: expected True or False, found {terms.strict!r}")
    elif terms.strict and (edition or terms.editions):
        named = ", ".join(filter(None, (edition, *terms.editions)))
        problems.append(f"strict: expected no edition beside it, found {named}; it judges by {STRICT}")
    elif terms.strict:
        edition = STRICT
    return chosen_editions(own, edition, terms.editions, terms.thresholds, problems)


def signature(edition: EditionReference) -> str:
    """Which rules exactly, in one line for a tag: `2026-05 23d1b7cd`, whether a threshold is not the edition's own, and whether
    the edition is not a shipped one."""
    modified = " modified" if edition.overrides else ""
    text = {SHIPPED: "", OWN: " (mine)", FOREIGN: " (not this installation's)"}[provenance_of(edition)]
    return f"{edition.name} {edition.digest[:DIGEST]}{modified}{text}"
