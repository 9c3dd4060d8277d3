"""Selection of the editions by which runs are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fa_registry.errors import InvalidFields, Problem, UnknownName, UsageError
from fa_registry.metrics import HEADLINES, Headline
from fa_registry.protocol.builtin_editions import DIGEST, FOREIGN, OWN, SHIPPED, provenance_of
from fa_registry.protocol.edition_schema import REFERENCE_METRICS
from fa_registry.protocol.rules import Edition, load_edition, overridden, shipped_editions
from fa_registry.records import EditionReference
from fa_registry.studies.options import RunSelector
from fa_registry.studies.study import load_study

DEFAULT_EDITION = "2026-12"


def study_edition(study: str) -> str:
    """Return the name of the study's edition; "" if the study does not exist."""
    try:
        return load_study(study).edition if study else ""
    except UnknownName:
        return ""


def load_or_name(name: str, problems: list[str], thresholds: Mapping[str, float] | None = None) -> Edition | None:
    """Load an edition, by name or path, and change the thresholds of its rules.

    On an error, append a message to `problems` and return None.
    """
    prefix = f"edition {name}: "
    try:
        edition = load_edition(name)
        prefix = "threshold "  # from here on, InvalidFields is about the given thresholds, not the file
        return overridden(edition, thresholds or {})
    except InvalidFields as error:
        problems += [f"{prefix}{problem}" for problem in error.problems]
    except UnknownName as error:
        problems.append(Problem(("edition",), str(error)))
    return None


def headline_of_edition(edition: Edition) -> Headline | None:
    """Return the main metric whose margin the edition judges, or None if the edition judges no margin."""
    names = (REFERENCE_METRICS[rule.fires] for rule in edition.rules if rule.reference and rule.gating)
    return next((HEADLINES[name] for name in names), None)


def edition_for(headline: Headline) -> str:
    """Return the name of the newest built-in edition that judges a main metric; empty if there is none."""
    fitting = [item.name for item in shipped_editions() if headline_of_edition(item) == headline]
    return DEFAULT_EDITION if DEFAULT_EDITION in fitting else next(reversed(fitting), "")


def check_headlines(editions: Sequence[Edition], headlines: Sequence[Headline]) -> None:
    """Raise UsageError if an edition judges a main metric that is not the main metric of the runs."""
    problems = [problem for edition in editions if (problem := headline_problem(edition, headlines))]
    if problems:
        raise UsageError("; ".join(problems))


def headline_problem(edition: Edition, headlines: Sequence[Headline]) -> str:
    """Return an error if an edition judges a main metric that is not in `headlines`; otherwise ""."""
    judged = headline_of_edition(edition)
    if judged is None or judged in headlines or not headlines:
        return ""
    advised = edition_for(headlines[0])
    advice = f"; use --edition {advised}" if advised else ""
    return (
        f"edition {edition.name} judges the {judged.symbol}, but the main metric of these runs is the "
        f"{headlines[0].symbol}{advice}"
    )


def edition_in_file(selector: RunSelector) -> str:
    """Return the edition that a study.toml with other invalid fields names; empty if it names none."""
    try:
        name = selector.file.table.get("edition")
    except InvalidFields:  # the file is not TOML
        return ""
    return name if isinstance(name, str) else ""


def signature(edition: EditionReference) -> str:
    """Return the name, digest and origin of an edition, e.g. `2026-05 23d1b7cd`.

    The word `modified` is added if thresholds were changed.
    """
    modified = " modified" if edition.overrides else ""
    text = {SHIPPED: "", OWN: " (mine)", FOREIGN: " (not the built-in edition)"}[provenance_of(edition)]
    return f"{edition.name} {edition.digest[:DIGEST]}{modified}{text}"
