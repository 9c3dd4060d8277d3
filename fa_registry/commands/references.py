"""Where an audited study's published figures are: in the reference.toml beside its study.toml, if it has one."""

from __future__ import annotations

from fa_registry.errors import InvalidFields, UnknownName
from fa_registry.protocol.reproduction import FILE, load_reference
from fa_registry.records import Reference
from fa_registry.studies.study import find


def study_reference(study: str, problems: list[str]) -> Reference | None:
    """The reference of a study by name or path; None without a study or a file. What is wrong is added to `problems`."""
    if not study:
        return None
    try:
        folder = find(study).parent
    except UnknownName:  # whoever selects the runs says so, with the nearest name
        return None
    if not (folder / FILE).is_file():
        return None
    try:
        return load_reference(folder.resolve())
    except InvalidFields as error:
        problems += error.problems
        return None
