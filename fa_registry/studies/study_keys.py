"""Keys of a study.toml that are misspelt or in the wrong table.

Such a key is reported and then read as if it were right, so that its value is checked too and nothing counts as missing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fa_registry.errors import MOST_KNOWN, Problem, Steps, closest_name, join_names
from fa_registry.jsonio import TomlFile

Names = Mapping[str, tuple[str, ...]]  # table as the file writes it, e.g. "grid.recipe" → its keys


class FileTable(NamedTuple):
    """A table of the file: the path to it, its name in a header, and its keys."""

    steps: Steps
    header: str
    names: tuple[str, ...]

    @property
    def label(self) -> str:
        return {"": "the top of the file", "grid": "[[grid]]"}.get(self.header, f"[{self.header}]")


class KeyCorrection:
    """Contents of a study.toml with misspelt and misplaced keys corrected.

    Args:
        file: the file.
        names: keys of each table.

    Attributes:
        file: the file with the corrected contents and the lines of the original.
        problems: one problem for each corrected key.
    """

    def __init__(self, file: TomlFile, names: Names):
        self.file = TomlFile(file.path, copy.deepcopy(file.table), file.text)
        self.problems: list[Problem] = []
        self._names = names
        for depth in range(4):  # the outer tables first, because their keys are tables
            for table in [table for table in self._tables() if len(table.steps) == depth]:
                self._correct(table)
            if depth == 0:
                self._correct_brackets()

    def _tables(self) -> Iterator[FileTable]:
        """Yield all tables that the file has or could have."""
        grids = self.file.table.get("grid")
        count = len(grids) if isinstance(grids, list) else 1
        for header, names in self._names.items():
            first, *rest = header.split(".")
            for index in range(count) if first == "grid" else ():
                yield FileTable(("grid", index, *rest), header, names)
            if first != "grid":
                yield FileTable((first,) if first else (), header, names)

    def _correct_brackets(self) -> None:
        """Replace `[grid]` by `[[grid]]`, and `[[recipe]]` by `[recipe]`."""
        for name, value in self.file.table.items():
            if name == "grid" and isinstance(value, dict):
                self._report((name,), f"expected a list of tables (write [[{name}]] instead of [{name}])")
                self._move_lines((name,), (name, 0))
                self.file.table[name] = [value]
            elif name in ("recipe", "controls") and isinstance(value, list) and [*map(type, value)] == [dict]:
                self._report((name,), f"expected a table (write [{name}] instead of [[{name}]])")
                self._move_lines((name, 0), (name,))
                self.file.table[name] = value[0]

    def _correct(self, table: FileTable) -> None:
        """Report and correct the unknown keys of a table."""
        contents = self._at(table.steps)
        for name in [name for name in contents or () if table.names and name not in table.names]:
            places = sorted(self._tables(), key=lambda each: each.steps[:2] != table.steps[:2])  # the same grid first
            all_names = [known for each in places for known in each.names]
            if name not in all_names and table.header.endswith("_options"):
                continue  # reported with the name of the plug-in
            own = closest_name(name, table.names)
            right = name if name in all_names else own or closest_name(name, all_names)
            if not right:
                self._report((*table.steps, name), f"unknown; known: {join_names(sorted(table.names), MOST_KNOWN)}")
                del contents[name]
                continue
            target = table if right == own else next(each for each in places if right in each.names)
            place = "" if target is table else f" at {target.label}" if not target.steps else f" in {target.label}"
            text = f"belongs to {target.label}" if right == name else f"unknown; did you mean {right}{place}?"
            self._report((*table.steps, name), text)
            self._move(table.steps, name, target.header, right)

    def _move(self, old: Steps, name: str, header: str, new_name: str) -> None:
        """Move a key to the table `header`, of the same grid or else of all grids, that lacks the key."""
        value = self._at(old).pop(name)
        for table in [table for table in self._tables() if table.header == header]:
            is_of_grid = old[:1] == table.steps[:1] == ("grid",)
            contents = None if is_of_grid and old[:2] != table.steps[:2] else self._at(table.steps, creates=True)
            if contents is not None and new_name not in contents:
                contents[new_name] = value
                self._move_lines((*old, name), (*table.steps, new_name))

    def _at(self, steps: Steps, creates: bool = False) -> dict[str, Any] | None:
        """Return the table at a path; None if there is none and none can be created."""
        found: Any = self.file.table
        for step in steps:
            if creates and isinstance(found, dict) and step != "grid":
                found = found.setdefault(step, {})
            elif isinstance(found, dict):
                found = found.get(step)
            else:
                found = found[step] if isinstance(found, list) and step < len(found) else None
        return found if isinstance(found, dict) else None

    def _move_lines(self, old: Steps, new: Steps) -> None:
        length, lines = len(old), self.file.lines
        lines |= {(*new, *steps[length:]): line for steps, line in lines.items() if steps[:length] == old}

    def _report(self, steps: Steps, text: str) -> None:
        self.problems.append(self.file.located(Problem(steps, text)))
