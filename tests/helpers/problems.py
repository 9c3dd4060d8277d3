"""Problems of an InvalidFields error without the file and the line of each."""

from __future__ import annotations

from collections.abc import Iterable

from fa_registry.errors import Problem, field_path


def fields_of(problems: Iterable[Problem]) -> list[str]:
    return [field_path(problem.steps) for problem in problems]


def sentences(problems: Iterable[Problem]) -> list[str]:
    return [str(Problem(problem.steps, problem.text)) for problem in problems]
