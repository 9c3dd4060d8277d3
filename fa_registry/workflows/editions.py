"""Selection of the editions by which runs are judged."""

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
    """Return the name of the study's edition, or "" if the study does not exist."""
    try:
        return load_study(study).edition if study else ""
    except UnknownName:
        return ""


def load_or_name(name: str, problems: list[str], thresholds: Mapping[str, float] | None = None) -> Edition | None:
    """Load an edition with changed thresholds; on an error, return None.

    Args:
        name: Name of the edition or path of its file.
        problems: List to which errors in the edition or the thresholds are appended.
        thresholds: Mapping from a rule to its new threshold.
    """
    where = f"edition {name}: "
    try:
        edition = load_edition(name)
        where = "threshold "  # from here on, InvalidFields is about the given thresholds, not the file
        return overridden(edition, thresholds or {})
    except InvalidFields as error:
        problems += [f"{where}{problem}" for problem in error.problems]
    except UnknownName as error:
        problems.append(f"edition: {error}")
    return None


def chosen_editions(
    own: str, edition: str, editions: Sequence[str], thresholds: Mapping[str, float], problems: list[str]
) -> tuple[Edition, ...]:
    """Return the editions to judge by, the leading edition first.

    Args:
        own: The study's edition. It is the leading edition if `editions` contains it, or if no edition is given.
        editions: Several editions to judge by, instead of `edition`.
        thresholds: Mapping from a rule to its new threshold in the leading edition.
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
    return sorted(names, key=lambda name: name != leading)  # the other names keep their order


def leading_edition(chosen: RunSelector, terms: JudgingOptions) -> str:
    """Return the name of the leading edition as typed.

    The name is empty if the user gave no edition. Then the study's edition is the leading edition.
    """
    return _leading_first(chosen.as_asked.edition, terms.editions)[0] if terms.editions else terms.edition


def checked_terms(chosen: RunSelector, terms: JudgingOptions, problems: list[str]) -> tuple[Edition, ...]:
    """Return the editions to judge by, the leading edition first.

    Append errors in the options, the editions or the study to `problems`.
    """
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
        problems.append(
            f"strict: expected no edition together with --strict, found {named}; --strict judges by edition {STRICT}"
        )
    elif terms.strict:
        edition = STRICT
    return chosen_editions(own, edition, terms.editions, terms.thresholds, problems)


def signature(edition: EditionReference) -> str:
    """Return the name, digest and origin of an edition, e.g. `2026-05 23d1b7cd`.

    The word `modified` is added if thresholds were changed.
    """
    modified = " modified" if edition.overrides else ""
    text = {SHIPPED: "", OWN: " (mine)", FOREIGN: " (not this installation's)"}[provenance_of(edition)]
    return f"{edition.name} {edition.digest[:DIGEST]}{modified}{text}"
