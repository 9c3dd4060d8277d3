"""Check or update the generated parts of docs/ and README."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from fa_registry import methods
from fa_registry.protocol.rules import Edition, shipped_editions
from fa_registry.reference import CHECKOUT, filled
from fa_registry.reference.architecture import architecture_reference
from fa_registry.reference.commands import commands_reference, python_reference
from fa_registry.reference.files import files_reference
from fa_registry.reference.templates import templates_reference
from fa_registry.workflows.editions import DEFAULT_EDITION
from fa_registry.workflows.plugin_list import all_cards

WIDTH = 132


def readme_reference() -> str:
    """Return README.md with the current list of methods and table of editions."""
    listed = textwrap.fill(", ".join(f"`{name}`" for name in methods.CATALOG.names()) + ".", WIDTH)
    rows = [_row(edition) for edition in shipped_editions()]
    return filled("README.md", listed, "\n".join(["| edition | title | source of the rules |", "|---|---|---|", *rows]))


def recorded_cards() -> str:
    """Return fa_registry/cards.json with the current cards of the built-in plug-ins."""
    return json.dumps(all_cards(), indent=1, ensure_ascii=False) + "\n"


def _row(edition: Edition) -> str:
    default = ", the default" if edition.name == DEFAULT_EDITION else ""
    cells = (f"`{edition.name}`{default}", edition.title, edition.source)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "README.md": readme_reference,
        "fa_registry/cards.json": recorded_cards,
        "docs/architecture.md": architecture_reference,
        "docs/python-api.md": python_reference,
        "docs/reference-cli.md": commands_reference,
        "docs/reference-files.md": files_reference,
        "docs/reference-templates.md": templates_reference,
    }
)


def stale(folder: Path = CHECKOUT) -> list[str]:
    """Return the names of the pages that are missing or do not match the code."""
    paths = {name: folder / name for name in PAGES}
    return [
        name for name, path in paths.items() if not path.is_file() or path.read_text(encoding="utf-8") != PAGES[name]()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the names of stale pages, or with `--write` update them. Return 1 if a page remains stale."""
    parser = argparse.ArgumentParser(prog="python -m fa_registry.reference", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages instead of only listing the stale pages")
    parser.add_argument(
        "--folder", type=Path, default=CHECKOUT, help="the repository to check [the repository of this module]"
    )
    options = parser.parse_args(arguments)
    stale_pages = stale(options.folder)
    for name in stale_pages:
        if options.write:
            (options.folder / name).parent.mkdir(exist_ok=True)
            (options.folder / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"{name}: {'written' if options.write else 'is stale; update it with --write'}")
    return int(bool(stale_pages) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
