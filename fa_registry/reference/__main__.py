"""`python -m fa_registry.reference`: whether the generated pages of docs/ are as the code is; --write makes them so."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from fa_registry.reference.architecture import architecture_reference
from fa_registry.reference.commands import commands_reference
from fa_registry.reference.files import files_reference
from fa_registry.reference.templates import templates_reference

PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "architecture.md": architecture_reference,
        "reference-cli.md": commands_reference,
        "reference-files.md": files_reference,
        "reference-templates.md": templates_reference,
    }
)
DOCS = Path(__file__).parents[2] / "docs"  # of a checkout; an installed package has none


def stale(folder: Path = DOCS) -> list[str]:
    """The pages that are not there or not as the code is."""
    paths = {name: folder / name for name in PAGES}
    return [
        name for name, path in paths.items() if not path.is_file() or path.read_text(encoding="utf-8") != PAGES[name]()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Prints the stale pages, or writes them; exit 1 if any is stale and stays so."""
    parser = argparse.ArgumentParser(prog="python -m fa_registry.reference", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the pages instead of comparing them")
    parser.add_argument("--folder", type=Path, default=DOCS, help="where they are [docs/ of this checkout]")
    wanted = parser.parse_args(arguments)
    old = stale(wanted.folder)
    for name in old:
        if wanted.write:
            (wanted.folder / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"{name}: {'written' if wanted.write else 'is stale; write it again with --write'}")
    return int(bool(old) and not wanted.write)


if __name__ == "__main__":
    sys.exit(main())
