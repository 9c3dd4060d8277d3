"""Selection of the editions by which runs are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fa_registry.errors import InvalidFields, UnknownName, UsageError
from fa_registry.metrics import HEADLINES, Headline
from fa_registry.protocol.builtin_editions import DIGEST, FOREIGN, OWN, SHIPPED, provenance_of
from fa_registry.protocol.edition_schema import REFERENCE_METRICS
from fa_registry.protocol.rules import STRICT, Edition, load_edition, overridden, shipped_editions
from fa_registry.records import EditionReference
from fa_registry.studies.study import load_study
from fa_registry.workflows.options import JudgingOptions, RunSelector

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
        problems.append(f"edition: {error}")
    return None


def chosen_editions(
    edition_of_study: str, edition: str, editions: Sequence[str], thresholds: Mapping[str, float], problems: list[str]
) -> tuple[Edition, ...]:
    """Return the editions that judge the runs, with the leading edition first.

    The leading edition determines the verdicts.

    Args:
        edition_of_study: The study's edition, which is the leading edition if `editions` contains it or if the user gave no
            edition.
        edition: The only edition. Empty if `editions` is given or if the user gave no edition.
        editions: Several editions, instead of `edition`.
        thresholds: Mapping from the code of a rule to its new threshold in the leading edition.
    """
    if edition and editions:
        problems.append(f"editions: expected --edition or --editions, found both ({edition}; {', '.join(editions)})")
        return ()
    ordered = (
        _leading_first(edition_of_study, editions) if editions else [edition or edition_of_study or DEFAULT_EDITION]
    )
    loaded = [load_or_name(name, problems, thresholds if index == 0 else {}) for index, name in enumerate(ordered)]
    valid_editions = tuple(filter(None, loaded))
    counts = Counter(valid_edition.name for valid_edition in valid_editions)
    problems += [f"editions: {name} is given twice" for name, count in counts.items() if count > 1]
    return valid_editions


def headline_of_edition(edition: Edition) -> Headline | None:
    """Return the main metric whose margin the edition judges, or None if the edition judges no margin."""
    names = (REFERENCE_METRICS[rule.fires] for rule in edition.rules if rule.reference and rule.gating)
    return next((HEADLINES[name] for name in names), None)


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
    fitting = [item.name for item in shipped_editions() if headline_of_edition(item) == headlines[0]]
    advised = DEFAULT_EDITION if DEFAULT_EDITION in fitting else next(reversed(fitting), "")
    advice = f"; use --edition {advised}" if advised else ""
    return (
        f"edition {edition.name} judges the {judged.symbol}, but the main metric of these runs is the "
        f"{headlines[0].symbol}{advice}"
    )


def _leading_first(edition_of_study: str, names: Sequence[str]) -> list[str]:
    leading = (edition_of_study or DEFAULT_EDITION) if (edition_of_study or DEFAULT_EDITION) in names else names[0]
    return sorted(names, key=lambda name: name != leading)  # the other names keep their order


def leading_edition(selector: RunSelector, judging: JudgingOptions) -> str:
    """Return the leading edition as the user typed it; empty if it is the study's edition."""
    return _leading_first(selector.as_asked.edition, judging.editions)[0] if judging.editions else judging.edition


def edition_in_file(selector: RunSelector) -> str:
    """Return the edition that a study.toml with other invalid fields names; empty if it names none."""
    try:
        name = selector.file.raw.get("edition")
    except InvalidFields:  # the file is not TOML
        return ""
    return name if isinstance(name, str) else ""


def checked_terms(selector: RunSelector, judging: JudgingOptions, problems: list[str]) -> tuple[Edition, ...]:
    """Return the editions that judge the runs, with the leading edition first.

    Append errors in the options, the editions or the study to `problems`.
    """
    edition_of_study = ""
    try:
        edition_of_study = selector.as_asked.edition if selector.study else ""
    except InvalidFields as error:
        problems += error.problems
        edition_of_study = edition_in_file(selector)
    except UnknownName as error:
        problems.append(f"study: {error}")
    edition = judging.edition
    if not isinstance(judging.strict, bool):
        problems.append(f"strict: expected True or False, found {judging.strict!r}")
    elif judging.strict and (edition or judging.editions):
        editions_found = ", ".join(filter(None, (edition, *judging.editions)))
        problems.append(
            f"strict: expected no edition together with --strict, found {editions_found}; --strict judges by edition {STRICT}"
        )
    elif judging.strict:
        edition = STRICT
    return chosen_editions(edition_of_study, edition, judging.editions, judging.thresholds, problems)


def signature(edition: EditionReference) -> str:
    """Return the name, digest and origin of an edition, e.g. `2026-05 23d1b7cd`.

    The word `modified` is added if thresholds were changed.
    """
    modified = " modified" if edition.overrides else ""
    text = {SHIPPED: "", OWN: " (mine)", FOREIGN: " (not the built-in edition)"}[provenance_of(edition)]
    return f"{edition.name} {edition.digest[:DIGEST]}{modified}{text}"
