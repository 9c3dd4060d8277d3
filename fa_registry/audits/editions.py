"""Selection of the editions that judge runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fa_registry.audits.options import JudgingOptions
from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.rules import STRICT, Edition
from fa_registry.studies.editions import DEFAULT_EDITION, edition_in_file, load_or_name
from fa_registry.studies.options import RunSelector


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


def _leading_first(edition_of_study: str, names: Sequence[str]) -> list[str]:
    leading = (edition_of_study or DEFAULT_EDITION) if (edition_of_study or DEFAULT_EDITION) in names else names[0]
    return sorted(names, key=lambda name: name != leading)  # the other names keep their order


def leading_edition(selector: RunSelector, judging: JudgingOptions) -> str:
    """Return the leading edition as the user typed it; empty if it is the study's edition."""
    return _leading_first(selector.as_asked.edition, judging.editions)[0] if judging.editions else judging.edition


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
