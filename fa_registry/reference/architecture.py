"""The picture of the house in docs/architecture.md, read from the imports: its rooms, and who asks whom."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from fa_registry.reference import CHECKOUT, filled

PACKAGE = CHECKOUT / "fa_registry"
FACES = ("__init__", "__main__")

Arrows = Mapping[str, set[str]]


def architecture_reference() -> str:
    """docs/architecture.md with its picture and its table of rooms as the code is now; the prose around them as it stands."""
    return filled("docs/architecture.md", picture())


def picture() -> str:
    """A Mermaid flowchart: one box a row of the house, the highest on top, and under it what each room is."""
    arrows = imports()
    row_of = rows(arrows)
    floors = sorted(set(row_of.values()), reverse=True)
    rooms = {floor: sorted(room for room, row in row_of.items() if row == floor) for floor in floors}
    boxes = [f'  row{floor}["{" · ".join(rooms[floor])}"]' for floor in floors]
    stairs = [f"  row{above} --> row{below}" for above, below in zip(floors, floors[1:], strict=False)]
    table = [f"| `{room}` | {_what(room)} |" for floor in floors for room in rooms[floor]]
    return "\n".join(
        [
            "Rows of rooms; an arrow is `may import`:",
            "",
            "```mermaid",
            "flowchart TB",
            *boxes,
            *stairs,
            "```",
            "",
            "| room | what it is |",
            "|---|---|",
        ]
        + table
    )


def imports() -> dict[str, set[str]]:
    """Room → the other rooms of the package that any of its files imports, inside functions too. A room is a package or a file."""
    arrows: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = _room(path)
        if room not in FACES:
            arrows.setdefault(room, set()).update(_imported(path) - {room})
    known = set(arrows)
    return {room: others & known for room, others in arrows.items()}


def rows(arrows: Arrows) -> dict[str, int]:
    """Room → its row: 0 asks nobody, every other stands one above the highest that it asks. Rooms in a circle share a row."""
    row_of = dict.fromkeys(arrows, 0)
    for _ in arrows:  # as many rounds as there are rooms are enough without a circle, and end where there is one
        risen = {
            room: max((row_of[other] + 1 for other in others if room not in arrows[other]), default=0)
            for room, others in arrows.items()
        }
        if risen == row_of:
            break
        row_of = risen
    return row_of


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imported(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == PACKAGE.name:
            inside = node.module.split(".")[1:]
            rooms |= {inside[0]} if inside else {alias.name for alias in node.names}
    return rooms


def _what(room: str) -> str:
    """The first sentence of the room's own docstring."""
    single = PACKAGE / f"{room}.py"
    source = (single if single.is_file() else PACKAGE / room / "__init__.py").read_text(encoding="utf-8")
    words = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    return words.partition(". ")[0].rstrip(".").replace("|", "\\|")
